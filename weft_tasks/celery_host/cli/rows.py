"""Engines, passes and workflows as rows of tables and as JSON: the same for every command that shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from weft_tasks.celery_host.cli.output import Marked, Mood, Table, duration_of
from weft_tasks.model import EngineStatus, WorkflowInfo, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store.engines import EngineInfo
from weft_tasks.store.overview import Overview
from weft_tasks.store.pass_marks import PassMark

BAD_STATUSES = (WorkflowStatus.FAILED, WorkflowStatus.SET_ASIDE, WorkflowStatus.TIMED_OUT)


def seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else round(milliseconds / 1000, 3)


def moment(time: datetime | None) -> str | None:
    """For JSON: ISO 8601 with the zone."""
    return None if time is None else time.isoformat()


# -- engines


def engine_table(engines: Iterable[EngineInfo], settings: Settings) -> Table:
    return Table(
        title="Engines",
        columns=("node", "status", "heartbeat", "claims", "free slots", "types", "id"),
        rows=[
            (
                engine.node,
                _engine_status(engine),
                Marked(engine.heartbeat_age, _heartbeat_mood(engine, settings)),
                engine.claims,
                engine.free_slots,
                ", ".join(engine.types),
                engine.id,
            )
            for engine in engines
        ],
    )


def engine_json(engine: EngineInfo) -> dict[str, Any]:
    return {
        "node": engine.node,
        "id": engine.id,
        "status": engine.status.value,
        "heartbeat_age_s": seconds(engine.heartbeat_age_ms),
        "silence_s": seconds(engine.silence_ms),
        "claims": engine.claims,
        "free_slots": engine.free_slots,
        "deaf": engine.is_deaf,
        "types": list(engine.types),
        "host": engine.host,
        "pid": engine.pid,
        "started_at": moment(engine.started_at),
    }


def _engine_status(engine: EngineInfo) -> Marked:
    if engine.is_deaf:
        return Marked(f"{engine.status.value}, deaf", Mood.BAD)
    return Marked(engine.status.value, Mood.GOOD if engine.status is EngineStatus.LIVE else Mood.ODD)


def _heartbeat_mood(engine: EngineInfo, settings: Settings) -> Mood | None:
    if engine.status is EngineStatus.STOPPED:
        return None
    if engine.heartbeat_age > settings.silence_limit:
        return Mood.BAD
    return Mood.GOOD if engine.is_beating(settings.grace) else Mood.ODD


# -- passes


def pass_table(passes: Iterable[PassMark], settings: Settings) -> Table:
    return Table(
        title="Passes",
        columns=("pass", "began", "took", "late by", "skipped", "outcome"),
        rows=[
            (
                mark.kind,
                None if mark.began_ago is None else f"{duration_of(mark.began_ago)} ago",
                mark.took,
                _lag_cell(mark, settings),
                mark.skipped,
                outcome_of(mark.result),
            )
            for mark in passes
        ],
    )


def pass_json(mark: PassMark, settings: Settings) -> dict[str, Any]:
    took, lag = mark.took, mark.lag(settings.renew_interval)
    return {
        "pass": mark.kind,
        "began_ago_s": seconds(mark.began_ago_ms),
        "seconds": None if took is None else took.total_seconds(),
        "late_s": None if lag is None else lag.total_seconds(),
        "skipped": mark.skipped,
        "result": mark.result,
    }


def outcome_of(report: Mapping[str, Any] | None) -> Marked:
    """A pass's result in a few words: its counts, or what went wrong."""
    if report is None:
        return Marked(None, None)
    if "run_once" in report:
        failed = report.get("failed") or []
        return Marked(f"failed: {', '.join(failed)}", Mood.BAD) if failed else Marked("completed", None)
    counts = ", ".join(f"{n} {name}" for name, n in (report.get("counts") or {}).items() if n)
    words = [report["status"]] if report["status"] != "completed" else []
    words += [counts] if counts else []
    words += [f"{report['unreached']} unreached"] if report.get("unreached") else []
    words += [str(report["error"])] if report.get("error") else []
    words += [f"lock {report['lock']}"] if report.get("lock") else []
    is_bad = report["status"] != "completed" or bool(report.get("failed"))
    return Marked("; ".join(words) or "nothing to do", Mood.BAD if is_bad else None)


def _lag_cell(mark: PassMark, settings: Settings) -> Marked:
    lag = mark.lag(settings.renew_interval)
    if lag is None or lag < settings.renew_interval:
        return Marked(lag or None, None)
    return Marked(lag, Mood.BAD if lag >= 2 * settings.renew_interval else Mood.ODD)


# -- workflows


def count_table(counts: Mapping[str, int]) -> Table:
    return Table(
        title="Workflows",
        columns=("status", "count"),
        rows=[
            (Marked(status, Mood.BAD if status in BAD_STATUSES else None), n) for status, n in sorted(counts.items())
        ],
    )


def backlog_table(overview: Overview) -> Table:
    backlog = overview.backlog
    kinds = (
        ("a turn runs", backlog.in_hand, None),
        ("queued with their engines", backlog.queued, None),
        ("late: sent, but not begun within R", backlog.late, Mood.ODD),
        ("without an engine", backlog.unowned, Mood.ODD),
        ("put off until a time", backlog.put_off, None),
        ("tasks and replies that are not sent yet", overview.overdue_debts, Mood.BAD),
    )
    rows = [(what, Marked(count, mood)) for what, count, mood in kinds if count]
    return Table(
        title="Due" if not rows else f"Due: {backlog.total}",
        columns=("what", "count"),
        rows=rows,
        empty="nothing waits",
    )


def status_words(info: WorkflowInfo) -> Marked:
    """The status, and of a running workflow what it does."""
    if info.is_cancelling and info.status is WorkflowStatus.RUNNING:
        return Marked("cancelling", Mood.ODD)
    if info.status is WorkflowStatus.RUNNING:
        return Marked("running, due" if info.is_due else "running", Mood.GOOD)
    return Marked(info.status.value, Mood.BAD if info.status in BAD_STATUSES else None)


def waits_words(info: WorkflowInfo) -> str | None:
    """The names that a workflow waits for; `(a time)` for a mere sleep."""
    if info.status is not WorkflowStatus.RUNNING:
        return None
    return ", ".join(wait.name or "(a time)" for wait in info.waits) or None
