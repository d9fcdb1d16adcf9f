"""From a command to the suite of the application that `-A` names, and from our errors to one line on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from weft_tasks.weft import Weft


@contextmanager
def suite_of(context: click.Context) -> Iterator[Weft]:
    """The Weft of the application. Our own errors end the command with one line and exit status 1, no traceback."""
    from weft_tasks.errors import WeftError

    try:
        yield _suite(context)
    except WeftError as error:
        raise click.ClickException(str(error)) from None


def _suite(context: click.Context) -> Weft:
    app = getattr(context.obj, "app", None)
    if app is None or app.main in (None, "default"):
        raise click.ClickException("which application? Say it before the command: celery -A YOUR_APP weft …")
    app.loader.import_default_modules()
    suite: Weft | None = getattr(app, "weft", None)
    if suite is None:
        raise click.ClickException(f"the application {app.main!r} has no Weft: add `weft = Weft(app)` to it")
    app.finalize()
    return suite
