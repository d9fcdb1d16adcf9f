"""Small workflows that many tests use, and words for what tests look at again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import select

from weft_tasks.store.tables import metadata
from weft_tasks.testing.bed import WorkflowBed
from weft_tasks.workflows.turn import Turn, TurnEnd

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def collect(turn: Turn) -> TurnEnd | None:
    """Keeps the payloads of `event` until one is "closed"."""
    for event in turn.take("event"):
        turn.state.setdefault("events", []).append(event.payload)
        if event.payload == "closed":
            return turn.complete(turn.state["events"])
    turn.wait("event")
    return None


def wait_for_ever(turn: Turn) -> None:
    turn.wait("never")


def complete_with_input(turn: Turn) -> TurnEnd:
    return turn.complete(turn.input)


def fails(turn: Turn) -> TurnEnd:
    """Raises in every try."""
    raise RuntimeError("this handler cannot")


def calls_task(signature: Any, reply: str | None = "done") -> Callable[[Turn], TurnEnd | None]:
    """A handler that calls a task in its first turn, and completes with the reply."""

    def handler(turn: Turn) -> TurnEnd | None:
        for answer in turn.take("done"):
            return turn.complete({"payload": answer.payload, "is_failure": answer.is_failure})
        if turn.number == 0:
            turn.call(signature, reply=reply)
        turn.wait("done")
        return None

    return handler


def statuses(bed: WorkflowBed) -> list[str]:
    """What became of the turn messages."""
    return [report.status.value for report in bed.turns]


def everything(bed: WorkflowBed) -> Mapping[str, Sequence[str]]:
    """Every row of every table: to see that nothing has changed."""
    with bed.weft.store.database.reading() as connection:
        return {table.name: sorted(map(repr, connection.execute(select(table)))) for table in metadata.sorted_tables}


def rows(bed: WorkflowBed, query: Any) -> Sequence[Any]:
    with bed.weft.store.database.reading() as connection:
        return connection.execute(query).all()
