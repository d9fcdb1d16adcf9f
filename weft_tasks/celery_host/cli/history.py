"""Entries of the history as rows and as JSON: what happened, to whom, and why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from weft_tasks.celery_host.cli.output import duration_of
from weft_tasks.celery_host.cli.rows import moment
from weft_tasks.store.history import HistoryEntry


def change_row(entry: HistoryEntry, run_id: str | None = None) -> tuple[object, ...]:
    """At, event, engine, epoch and why. An entry of another run than `run_id` says so."""
    node = entry.detail.get("node")
    return entry.at, entry.event, node or entry.engine_id, entry.epoch, why(entry, run_id)


def change_json(entry: HistoryEntry, run_id: str | None = None) -> dict[str, Any]:
    return {
        "at": moment(entry.at),
        "event": entry.event,
        "run_id": entry.run_id,
        "engine": entry.engine_id,
        "epoch": entry.epoch,
        "detail": entry.detail,
        "why": why(entry, run_id),
    }


def why(entry: HistoryEntry, run_id: str | None = None) -> str:
    """The detail of an entry as a sentence would have it."""
    detail = entry.detail
    words: list[str] = []
    if run_id not in (None, entry.run_id):
        words.append(f"earlier run {entry.run_id}")
    loser = detail.get("from_node") or detail.get("from")
    match entry.event, detail.get("reason"):
        case "taken-over", "silent":
            words.append(f"{loser} was silent for {duration_of(timedelta(milliseconds=detail['silent_ms']))}")
        case "taken-over", "deaf":
            words.append(f"{loser} lives, but began none of the turns that were sent to it")
        case "taken-over", "stopped":
            words.append(f"{loser} had stopped")
        case "taken-over", _:
            words.append(f"nothing was left of {loser}")
        case "released", reason:
            words.append(f"the engine was {reason}")
        case "placed", _:
            words.append("nobody had it")
        case "commit-refused", _:
            words.append(f"turn {detail.get('turn')}: somebody else had it by then")
        case "turn-failed", _:
            again = detail.get("again_in_ms")
            then = "not again" if again is None else f"again in {duration_of(timedelta(milliseconds=again))}"
            words.append(f"turn {detail.get('turn')}: {detail.get('error')} ({then})")
        case _, reason:
            words += [str(told) for told in (reason, detail.get("message")) if told]
    return "; ".join(words)
