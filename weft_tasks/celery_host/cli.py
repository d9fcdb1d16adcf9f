"""`celery -A APP weft …`, through Celery's own plug-in point.

Celery imports this module for every one of its commands, so nothing heavy is imported at the top.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from weft_tasks.weft import Weft


@click.group()
def weft() -> None:
    """Durable workflows: schema, state and passes."""


@weft.command()
@click.pass_context
def migrate(context: click.Context) -> None:
    """Create the schema in the database of `weft_database_url`, or bring it up to this release."""
    suite = _suite(context)
    with _errors_in_one_line():
        suite.migrate()
        click.echo(f"{suite.store.database.shown_url} is at revision {_revision(suite)}")


@weft.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show engines with their heartbeats and claims, the passes, and the workflows by status."""
    suite = _suite(context)
    with _errors_in_one_line():
        shown = _status(suite)
    if as_json:
        click.echo(json.dumps(shown))
        return
    for title, rows in shown.items():
        click.echo(title)
        for row in rows:
            click.echo("  " + "  ".join(f"{key}={value}" for key, value in row.items()))


@weft.command("run-once")
@click.pass_context
def run_once(context: click.Context) -> None:
    """Run the four passes now, in this process, and print the result as JSON. Exit status 1 if one of them failed."""
    suite = _suite(context)
    with _errors_in_one_line():
        report = suite.ticks.run_once()
    click.echo(json.dumps(report, indent=2))
    context.exit(1 if report.get("failed") else 0)


def _status(suite: Weft) -> dict[str, list[dict[str, Any]]]:
    marks = suite.store.pass_marks.read_all().values()
    return {
        "engines": [
            {
                "node": engine.node,
                "id": engine.id,
                "status": engine.status.value,
                "heartbeat_age_s": round(engine.silence_ms / 1000, 1),
                "claims": engine.claims,
                "free_slots": engine.free_slots,
                "deaf": engine.is_deaf,
            }
            for engine in suite.store.engines.list()
        ],
        "passes": [
            {
                "pass": mark.kind,
                "began_ago_s": None if mark.began_ago_ms is None else round(mark.began_ago_ms / 1000, 1),
                "skipped": mark.skipped,
                "result": mark.result,
            }
            for mark in marks
        ],
        "workflows": [
            {"status": name, "count": n} for name, n in sorted(suite.store.workflows.count_by_status().items())
        ],
    }


def _revision(suite: Weft) -> str | None:
    from weft_tasks.store.schema import current_revision

    return current_revision(suite.store.database)


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


class _errors_in_one_line:
    """Our own errors end a command with one line and exit status 1, without a traceback."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        from weft_tasks.errors import WeftError

        if isinstance(error, WeftError):
            raise click.ClickException(str(error)) from None
