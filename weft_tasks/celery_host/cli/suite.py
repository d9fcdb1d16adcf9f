"""From a command to the suite of the application that `-A` names, and from errors to one line and an exit status."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from weft_tasks.celery_host.cli.printable import printable

if TYPE_CHECKING:
    from weft_tasks.weft import Weft


def with_suite(function: Callable[..., int | None]) -> Callable[..., None]:
    """A command's body, called with the suite and an Output before its own parameters. It returns its exit status, None
    for 0. Adds `--json`."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for machines.")
    @click.pass_context
    @functools.wraps(function)
    def run(context: click.Context, /, as_json: bool, **given: Any) -> None:
        from weft_tasks.celery_host.cli.output import Output

        with suite_of(context) as suite:
            status = function(suite, Output(as_json=as_json), **given)
        context.exit(status or 0)

    return run


@contextmanager
def suite_of(context: click.Context) -> Iterator[Weft]:
    """The Weft of the application. Our own errors, and those of a broker that does not answer, end the command with one
    line on stderr and exit status 1: no traceback, no password, no control character."""
    from weft_tasks.celery_host.cli.secrets import hide_secrets
    from weft_tasks.errors import WeftError

    suite = _suite(context)
    try:
        yield suite
    except WeftError as error:
        raise Failure(hide_secrets(str(error), suite.app)) from None
    except Exception as error:
        if isinstance(error, BrokenPipeError | click.ClickException) or not isinstance(error, _broker_errors(suite)):
            raise
        text = f"the broker did not answer: {type(error).__name__}: {error}"
        raise Failure(hide_secrets(text, suite.app)) from None


def _broker_errors(suite: Weft) -> tuple[type[BaseException], ...]:
    from kombu.exceptions import OperationalError

    try:
        connection = suite.app.connection_for_write()
        return (OperationalError, *connection.connection_errors, *connection.channel_errors)
    except Exception:  # Of a broker URL that kombu cannot read there are no errors but its own.
        return (OperationalError,)


class Failure(click.ClickException):
    """One line on stderr, exit status 1."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(" ".join(message.split())))


def _suite(context: click.Context) -> Weft:
    app = getattr(context.obj, "app", None)
    if app is None or app.main in (None, "default"):
        raise Failure("which application? Say it before the command: celery -A YOUR_APP weft …")
    app.loader.import_default_modules()
    suite: Weft | None = getattr(app, "weft", None)
    if suite is None:
        raise Failure(f"the application {app.main!r} has no Weft: add `weft = Weft(app)` to it")
    app.finalize()
    return suite
