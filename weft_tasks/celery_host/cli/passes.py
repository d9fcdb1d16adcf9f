"""`run-once`: the four passes, now and here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft_tasks.celery_host.cli.suite import with_suite

if TYPE_CHECKING:
    from weft_tasks.celery_host.cli.output import Output
    from weft_tasks.weft import Weft


@click.command("run-once")
@with_suite
def run_once(suite: Weft, output: Output) -> int:
    """Run the four passes now, in this process, and print their combined result.

    Renewal, reclaim, signal poll and update poll, in this order, whatever beat does meanwhile; a `run-once` that runs
    already is joined, and its result is printed. Exit status 1 if one of them failed.
    """
    from datetime import timedelta

    from weft_tasks.celery_host.cli.output import Table
    from weft_tasks.celery_host.cli.rows import outcome_of

    report = suite.ticks.run_once()
    rows: list[tuple[object, ...]] = [
        (part["pass"], part["status"], timedelta(seconds=part["seconds"]), outcome_of(part))
        for part in report["run_once"]
    ]
    joined = f", by {report['joined']}, which ran already" if "joined" in report else ""
    took = f"took {report['seconds']:.3f} s{joined}"
    failed = [
        (item["workflow"], part["pass"], item["status"], item["reason"])
        for part in report["run_once"]
        for item in part.get("failed", ())
    ]
    output.show(
        report,
        Table(title=f"One run of the passes, {took}", columns=("pass", "status", "took", "outcome"), rows=rows),
        *([Table(title="Failed", columns=("workflow", "pass", "status", "reason"), rows=failed)] if failed else []),
    )
    return 1 if report.get("failed") else 0
