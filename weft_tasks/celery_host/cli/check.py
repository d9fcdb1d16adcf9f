"""`check`: what is wrong, and what to do about it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from weft_tasks.celery_host.cli.parameters import DURATION
from weft_tasks.celery_host.cli.suite import with_suite

if TYPE_CHECKING:
    from weft_tasks.celery_host.cli.output import Output
    from weft_tasks.weft import Weft

DEFAULT_PATIENCE = timedelta(seconds=2)


@click.command()
@click.option("--strict", is_flag=True, help="Exit status 1 for warnings as well.")
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    default=DEFAULT_PATIENCE,
    show_default="2s",
    help="How long to wait for the broker, and for the answers of workers.",
)
@with_suite
def check(suite: Weft, output: Output, strict: bool, timeout: timedelta) -> int:
    """Find out what is wrong with the deployment. Every finding comes with its remedy.

    Looks at the settings, the store and its schema, the broker, the lock server and what it may drop, the workers
    (which of them consume what, node names that are used twice), the engines' heartbeats, the passes that beat and the
    maintenance worker keep going, clocks that disagree, and workflows that wait for a person or for an engine.

    Exit status 1 if there is an error, so that a deployment or CI can ask.
    """
    from weft_tasks.celery_host.checks import Level
    from weft_tasks.celery_host.cli.output import Marked, Mood, Table
    from weft_tasks.celery_host.cli.secrets import hide_secrets
    from weft_tasks.celery_host.words import counted

    moods = {Level.OK: Mood.GOOD, Level.WARNING: Mood.ODD, Level.ERROR: Mood.BAD}
    order = list(reversed(Level))
    found = sorted(suite.check(patience=timeout), key=lambda finding: order.index(finding.level))
    shown = [
        {
            "level": finding.level.value,
            "topic": finding.topic,
            "text": hide_secrets(finding.text, suite.app),
            "remedy": None if finding.remedy is None else hide_secrets(finding.remedy, suite.app),
        }
        for finding in found
    ]
    rows: list[tuple[object, ...]] = []
    for finding, row in zip(found, shown, strict=True):
        rows.append((Marked(finding.level.value, moods[finding.level]), row["topic"], row["text"]))
        if row["remedy"] is not None:
            rows.append(("", "", f"-> {row['remedy']}"))
    count = {level: sum(finding.level is level for finding in found) for level in Level}
    output.show(
        {"errors": count[Level.ERROR], "warnings": count[Level.WARNING], "findings": shown},
        Table(title="Findings", columns=("level", "topic", "finding"), rows=rows),
        f"{counted(count[Level.ERROR], 'error')}, {counted(count[Level.WARNING], 'warning')}",
    )
    return 1 if count[Level.ERROR] or (strict and count[Level.WARNING]) else 0
