"""`top`: `status`, live."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from weft_tasks.celery_host.cli.parameters import DURATION
from weft_tasks.celery_host.cli.suite import with_suite

if TYPE_CHECKING:
    from weft_tasks.celery_host.cli.output import Output, Part
    from weft_tasks.weft import Weft

DEFAULT_INTERVAL = timedelta(seconds=2)
CHANGES_SHOWN = 8


@click.command()
@click.option(
    "--interval",
    type=DURATION,
    metavar="DURATION",
    default=DEFAULT_INTERVAL,
    show_default="2s",
    help="How often to look.",
)
@with_suite
def top(suite: Weft, output: Output, interval: timedelta) -> None:
    """Watch the deployment: what `status` shows, and the latest changes of ownership, again and again.

    Ctrl-C ends it. Into a pipe, and with --json, it prints one frame and ends. It reads the store only, and stays when
    the store is away for a while.
    """
    from weft_tasks.celery_host.cli import status

    if output.as_json or not sys.stdout.isatty():
        overview = suite.overview()
        document = {**status.document_of(overview, suite.settings), "changes": _changes_json(suite)}
        output.show(document, *status.parts_of(overview, suite.settings), _changes(suite))
        return
    try:
        _watch(_frames(suite), interval.total_seconds())
    except KeyboardInterrupt:
        return


def _watch(frames: Iterator[list[Part]], pause: float) -> None:
    from weft_tasks.celery_host.cli.output import has_rich_terminal, plain_of, rich_of

    if not has_rich_terminal():
        for parts in frames:
            click.clear()
            click.echo(plain_of(parts))
            time.sleep(pause)
        return

    from rich.console import Console, Group
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for parts in frames:
            live.update(Group(*rich_of(parts)), refresh=True)
            time.sleep(pause)


def _frames(suite: Weft) -> Iterator[list[Part]]:
    """A frame whenever it is asked for one, and never an end. A store that does not answer is a line of it."""
    from weft_tasks.celery_host.cli import status
    from weft_tasks.celery_host.cli.secrets import hide_secrets
    from weft_tasks.errors import StoreUnavailable

    # What no waiting would cure ends the command before the first frame.
    parts: list[Part] = [*status.parts_of(suite.overview(), suite.settings), _changes(suite)]
    while True:
        yield [f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z  {suite.store.database.shown_url}  Ctrl-C ends", "", *parts]
        try:
            parts = [*status.parts_of(suite.overview(), suite.settings), _changes(suite)]
        except StoreUnavailable as error:
            parts = [hide_secrets(str(error), suite.app)]


def _changes(suite: Weft) -> Part:
    from weft_tasks.celery_host.cli.history import change_row
    from weft_tasks.celery_host.cli.output import Table

    entries = suite.store.history.list(limit=CHANGES_SHOWN)
    columns = ("at", "workflow", "event", "engine", "epoch", "why")
    rows = [(entry.at, entry.workflow_id, *change_row(entry)[1:]) for entry in reversed(entries)]
    return Table(title="Latest changes of ownership", columns=columns, rows=rows)


def _changes_json(suite: Weft) -> list[dict[str, object]]:
    from weft_tasks.celery_host.cli.history import change_json

    return [
        {"workflow": entry.workflow_id, **change_json(entry)} for entry in suite.store.history.list(limit=CHANGES_SHOWN)
    ]
