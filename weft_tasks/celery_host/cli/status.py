"""`status`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from weft_tasks.celery_host.cli.suite import suite_of

if TYPE_CHECKING:
    from weft_tasks.weft import Weft


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show engines with their heartbeats and claims, the passes, and the workflows by status."""
    with suite_of(context) as suite:
        shown = _status(suite)
    if as_json:
        click.echo(json.dumps(shown))
        return
    for title, rows in shown.items():
        click.echo(title)
        for row in rows:
            click.echo("  " + "  ".join(f"{key}={value}" for key, value in row.items()))


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
