"""What the store says of the running deployment: engines that beat, passes that run, and what is stuck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft_tasks.celery_host.checks.broker import Workers
from weft_tasks.celery_host.checks.findings import Finding, error, ok, warning
from weft_tasks.celery_host.checks.workers import START_ENGINE, START_MAINTENANCE
from weft_tasks.celery_host.names import MAINTENANCE_QUEUE
from weft_tasks.celery_host.words import counted
from weft_tasks.model import EngineStatus
from weft_tasks.settings import Settings
from weft_tasks.store.engines import EngineInfo
from weft_tasks.store.overview import Overview
from weft_tasks.store.pass_marks import RUN_ONCE, PassMark

START_BEAT = "celery -A APP beat"
LATE_AFTER_INTERVALS = 3
"""A pass that did not begin for so many R is not merely delayed."""
NAMED = 5


def check_engines(overview: Overview, settings: Settings) -> Iterator[Finding]:
    """Whether there is an engine at all, and each that is silent or deaf."""
    running = [engine for engine in overview.engines if engine.status is not EngineStatus.STOPPED]
    alive = [engine for engine in running if engine.is_beating(settings.grace)]
    if not any(engine.status is EngineStatus.LIVE for engine in alive):
        yield error("engines", "no engine is alive: nothing runs", START_ENGINE)
    for engine in running:
        if engine not in alive:
            yield _silent(engine, settings)
        elif engine.is_deaf:
            yield error(
                "engines",
                f"{engine.node} is deaf: it lives, but began none of the turns that were sent to it",
                "if it does not hear again by itself once the broker answers, restart it",
            )
    if alive:
        names = ", ".join(f"{engine.node} ({counted(engine.claims, 'workflow')})" for engine in alive)
        yield ok("engines", f"{len(alive)} alive: {names}")


def _silent(engine: EngineInfo, settings: Settings) -> Finding:
    where = f"{engine.node} (pid {engine.pid} on {engine.host})"
    age = engine.heartbeat_age
    text = f"{where} has not beaten for {age.total_seconds():.1f} s: killed, frozen, or cut off from the store"
    if engine.claims and age > settings.silence_limit:
        return error(
            "engines", f"{text}; {counted(engine.claims, 'workflow')} to be moved", "start it again, or another"
        )
    return warning(
        "engines", text, "start it again; if it was taken away for good, nothing: it is forgotten in a while"
    )


def check_passes(overview: Overview, settings: Settings, workers: Workers | None) -> Iterator[Finding]:
    """Whether the passes run as often as they should, and end well. `workers` tells whose fault it is."""
    marks = [mark for mark in overview.passes if mark.kind != RUN_ONCE]
    limit = LATE_AFTER_INTERVALS * settings.renew_interval
    late = [mark for mark in marks if mark.began_ago is None or mark.began_ago > limit]
    if late:
        yield error("passes", f"{_how_late(late)}: {_whose_fault(workers)}", _what_to_start(workers))
    for mark in marks:
        yield from _ended_well(mark, settings)
    if not late:
        where = "" if settings.shards == 1 else f", on each of {settings.shards} shards"
        yield ok("passes", f"all four ran lately{where}")


def _ended_well(mark: PassMark, settings: Settings) -> Iterator[Finding]:
    result = mark.result or {}
    if result.get("status", "completed") != "completed":
        reason = result.get("error") or f"{result.get('unreached', 'some')} not reached in time"
        yield error(
            "passes", f"the latest {mark.kind} pass: {result['status']}: {reason}", "see the maintenance worker's log"
        )
    if mark.took is not None and mark.took > settings.renew_interval:
        yield warning(
            "passes",
            f"the latest {mark.kind} pass took {mark.took.total_seconds():.1f} s, more than R",
            "a faster database, more weft_shards, or a longer weft_renew_interval (and weft_claim_ttl with it)",
        )


def _how_late(late: Sequence[PassMark]) -> str:
    ages = [mark.began_ago for mark in late if mark.began_ago is not None]
    names = ", ".join(mark.kind for mark in late)
    if not ages:
        return f"{names} never ran"
    return f"{names} did not run for {max(ages).total_seconds():.0f} s"


def _whose_fault(workers: Workers | None) -> str:
    if workers is None:
        return "the broker is away, or no worker or no beat runs"
    if not workers.consuming(MAINTENANCE_QUEUE):
        return "there is no maintenance worker"
    if workers.maintenance_backlog:
        return f"{workers.maintenance_backlog} ticks wait, and the maintenance worker does not get to them"
    return "no tick waits, so beat sends none or each fails"


def _what_to_start(workers: Workers | None) -> str:
    if workers is None:
        return "bring the broker back first, then look again"
    if not workers.consuming(MAINTENANCE_QUEUE):
        return START_MAINTENANCE
    if workers.maintenance_backlog:
        return "look at what its processes do (`celery -A APP inspect active`), and restart it"
    return f"{START_BEAT}, with the same broker"


def check_stuck(overview: Overview) -> Iterator[Finding]:
    """Workflows that wait for a person, for an engine, or for the next pass."""
    if overview.set_aside:
        count = overview.counts.get("set-aside", len(overview.set_aside))
        names = ", ".join(aside.id for aside in overview.set_aside[:NAMED])
        yield warning(
            "set aside",
            f"{counted(count, 'workflow')} began turns again and again without a commit: "
            f"{names}{', …' if count > NAMED else ''}",
            "celery -A APP weft show ID tells why; correct it, then celery -A APP weft retry ID",
        )
    for claims in overview.stranded:
        yield warning(
            "stranded claims",
            f"{claims.node or claims.engine_id} is gone, and still holds {counted(claims.count, 'workflow')}",
            "the reclaim pass moves them; if the count stays, see `passes` and `types`",
        )
    for homeless in overview.homeless:
        yield warning(
            "types",
            f"no live engine runs type {homeless.type!r} version {homeless.version}, of which "
            f"{counted(homeless.count, 'workflow')} must move or begin",
            "deploy an engine whose application registers it",
        )
    if overview.overdue_debts:
        yield warning(
            "outbox",
            f"{counted(overview.overdue_debts, 'message')} of committed turns (tasks, replies) not sent yet",
            "the reclaim pass sends them once the broker takes messages; see `broker` and `passes`",
        )
