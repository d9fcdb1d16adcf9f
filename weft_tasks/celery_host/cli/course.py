"""`cancel`, `terminate`, `suspend`, `resume`, `retry` and `purge`: what changes a workflow's course from outside."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from weft_tasks.celery_host.cli.parameters import DURATION
from weft_tasks.celery_host.cli.suite import Failure, with_suite

if TYPE_CHECKING:
    from weft_tasks.celery_host.cli.output import Output
    from weft_tasks.weft import Weft

ENDINGS = ("completed", "failed", "cancelled", "terminated", "timed-out")
BATCH = 1000
_ids = click.argument("ids", metavar="ID...", nargs=-1, required=True)


@click.command()
@_ids
@with_suite
def cancel(suite: Weft, output: Output, ids: tuple[str, ...]) -> int:
    """Give each workflow ID one last turn to clean up; then it is cancelled.

    Its `on_cancel` handler runs, within `weft_cancel_bound`; a turn that runs now is fenced off and aborted. `show ID`
    tells when it is over. Exit status 1 if one of several could not be cancelled.
    """
    return _change_all(output, ids, suite.cancel, suite)


@click.command()
@_ids
@click.option("--reason", default="terminated from the command line", show_default=True, help="Kept as its error.")
@with_suite
def terminate(suite: Weft, output: Output, ids: tuple[str, ...], reason: str) -> int:
    """End each workflow ID at once, without another turn. `cancel` lets it clean up first."""
    return _change_all(output, ids, lambda id: suite.terminate(id, reason), suite)


@click.command()
@_ids
@with_suite
def suspend(suite: Weft, output: Output, ids: tuple[str, ...]) -> int:
    """Let no turn of the workflow ID run until `resume`.

    Signals and updates are kept; a turn that runs now is fenced off and aborted.
    """
    return _change_all(output, ids, suite.suspend, suite)


@click.command()
@_ids
@with_suite
def resume(suite: Weft, output: Output, ids: tuple[str, ...]) -> int:
    """Let a suspended workflow ID run on.

    It gets a turn at once, on whatever engine the reclaim pass gives it to, and takes the signals and updates that came
    meanwhile.
    """
    return _change_all(output, ids, suite.resume, suite)


@click.command()
@_ids
@with_suite
def retry(suite: Weft, output: Output, ids: tuple[str, ...]) -> int:
    """Let a failed or set-aside workflow ID try its turn again, with the signals that it had.

    \b
    celery -A APP weft list --status set-aside --json | jq -r '.workflows[].id' | xargs celery -A APP weft retry
    """
    return _change_all(output, ids, suite.retry, suite)


def _change_all(output: Output, ids: tuple[str, ...], change: Callable[[str], None], suite: Weft) -> int:
    """One after the other; what cannot be changed keeps none of the others from it. A store that does not answer ends
    it."""
    from weft_tasks.celery_host.cli.output import Table
    from weft_tasks.celery_host.cli.rows import status_words
    from weft_tasks.errors import StoreUnavailable, WeftError

    changed: list[dict[str, Any]] = []
    rows: list[tuple[object, ...]] = []
    errors: list[str] = []
    for id in ids:
        try:
            change(id)
            info = suite.describe(id)
        except StoreUnavailable:
            raise
        except WeftError as error:
            errors.append(str(error))
            changed.append({"id": id, "status": None, "error": str(error)})
        else:
            words = status_words(info)
            rows.append((id, words))
            changed.append({"id": id, "status": words.value, "error": None})
    if len(ids) == 1 and errors:
        raise Failure(errors[0])
    output.show({"workflows": changed}, Table(title="Changed", columns=("id", "status"), rows=rows))
    for text in errors:
        output.note(f"Error: {text}")
    return 1 if errors else 0


@click.command()
@click.option("--older-than", type=DURATION, metavar="DURATION", required=True, help="Ended longer ago, such as 30d.")
@click.option(
    "--status", "statuses", multiple=True, type=click.Choice(ENDINGS), help="Only these endings. May be repeated."
)
@click.option("--limit", type=click.IntRange(1), help="Stop after so many.")
@click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can answer.")
@with_suite
def purge(
    suite: Weft, output: Output, older_than: timedelta, statuses: tuple[str, ...], limit: int | None, yes: bool
) -> None:
    """Delete workflows that ended long ago, with their signals, updates and turns. There is no way back.

    The history of ownership stays for `weft_history_retention`. `weft_retention` does the same by itself, all the time.

    \b
    celery -A APP weft purge --older-than 30d --status completed
    """
    from weft_tasks.celery_host.cli.output import duration_of
    from weft_tasks.celery_host.words import counted

    which = " and ".join(statuses) if statuses else "ended"
    question = f"Delete every {which} workflow that ended more than {duration_of(older_than)} ago?"
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("say --yes: nobody is here to be asked")
        click.confirm(question, abort=True, err=True)
    purged = 0
    while limit is None or purged < limit:
        batch = BATCH if limit is None else min(BATCH, limit - purged)
        deleted = suite.purge(older_than=older_than, status=statuses or ENDINGS, limit=batch)
        purged += deleted
        if deleted < batch:
            break
    output.show({"purged": purged}, f"purged {counted(purged, 'workflow')}")
