"""`status`: the whole deployment at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft_tasks.celery_host.cli.suite import with_suite

if TYPE_CHECKING:
    from weft_tasks.celery_host.cli.output import Output, Part
    from weft_tasks.settings import Settings
    from weft_tasks.store.overview import Overview
    from weft_tasks.weft import Weft


@click.command()
@with_suite
def status(suite: Weft, output: Output) -> None:
    """Show engines, passes, the backlog, and what is stuck.

    Engines with the age of their heartbeats (that is their health, not `inspect ping`), the workflows they hold and
    their free slots. Passes with their last run, how long it took, and how late the next one is. Workflows by status,
    and those that are due by what they wait for. Then, if there are any: workflows set aside, claims of engines that
    are gone, types that no engine knows.

    It reads the store and nothing else, so it answers while the broker is away. `check` says what to do about it.
    """
    overview = suite.overview()
    output.show(document_of(overview, suite.settings), *parts_of(overview, suite.settings))


def parts_of(overview: Overview, settings: Settings) -> list[Part]:
    from weft_tasks.celery_host.cli.output import Marked, Mood, Table
    from weft_tasks.celery_host.cli.rows import backlog_table, count_table, engine_table, pass_table

    parts: list[Part] = [
        engine_table(overview.engines, settings),
        pass_table(overview.passes, settings),
        count_table(overview.counts),
        backlog_table(overview),
    ]
    if overview.set_aside:
        rows = [(aside.id, aside.type, aside.since, Marked(aside.reason, Mood.BAD)) for aside in overview.set_aside]
        title = (
            f"Set aside: {overview.counts.get('set-aside', len(rows))} (`show ID` tells more, `retry ID` tries again)"
        )
        parts.append(Table(title=title, columns=("id", "type", "since", "reason"), rows=rows))
    if overview.stranded:
        lost = [(claims.node, claims.engine_id, claims.count) for claims in overview.stranded]
        title = "Claims of engines that are gone (the reclaim pass moves them)"
        parts.append(Table(title=title, columns=("node", "engine", "claims"), rows=lost))
    if overview.homeless:
        types = [(homeless.type, homeless.version, homeless.count) for homeless in overview.homeless]
        title = "Types that no live engine can run"
        parts.append(Table(title=title, columns=("type", "version", "workflows"), rows=types))
    return parts


def document_of(overview: Overview, settings: Settings) -> dict[str, Any]:
    from weft_tasks.celery_host.cli.rows import engine_json, moment, pass_json

    backlog = overview.backlog
    return {
        "engines": [engine_json(engine) for engine in overview.engines],
        "passes": [pass_json(mark, settings) for mark in overview.passes],
        "workflows": [{"status": name, "count": n} for name, n in sorted(overview.counts.items())],
        "backlog": {
            "total": backlog.total,
            "in_hand": backlog.in_hand,
            "queued": backlog.queued,
            "late": backlog.late,
            "unowned": backlog.unowned,
            "put_off": backlog.put_off,
            "overdue_debts": overview.overdue_debts,
        },
        "set_aside": [
            {"id": aside.id, "type": aside.type, "since": moment(aside.since), "reason": aside.reason}
            for aside in overview.set_aside
        ],
        "stranded_claims": [
            {"node": claims.node, "engine": claims.engine_id, "count": claims.count} for claims in overview.stranded
        ],
        "homeless": [
            {"type": homeless.type, "version": homeless.version, "count": homeless.count}
            for homeless in overview.homeless
        ],
    }
