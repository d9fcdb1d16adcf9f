"""`run-once`."""

from __future__ import annotations

import json

import click

from weft_tasks.celery_host.cli.suite import suite_of


@click.command("run-once")
@click.pass_context
def run_once(context: click.Context) -> None:
    """Run the four passes now, in this process, and print the result as JSON. Exit status 1 if one of them failed."""
    with suite_of(context) as suite:
        report = suite.ticks.run_once()
    click.echo(json.dumps(report, indent=2))
    context.exit(1 if report.get("failed") else 0)
