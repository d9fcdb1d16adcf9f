"""The history of ownership: who got a workflow, under which epoch, and whose commit was refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, select

from weft_tasks.store.clock import StoreClock, milliseconds, moment_of
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.json_rows import NUMBER, TEXT, Columns, rows_of
from weft_tasks.store.tables import engines, history

LONGEST_REASON = 300
"""Characters of a user's reason or error that an entry keeps; the workflow's row has all of it."""


_ENTRY: Columns = {
    "workflow_id": TEXT,
    "run_id": TEXT,
    "event": TEXT,
    "engine_id": TEXT,
    "epoch": NUMBER,
    "detail": TEXT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One change of ownership, at a time of the database's clock."""

    at: datetime
    workflow_id: str
    run_id: str
    event: str
    engine_id: str | None
    epoch: int
    detail: dict[str, Any]


def record(
    connection: Connection,
    clock: StoreClock,
    workflow_id: str,
    run_id: str,
    event: str,
    engine_id: str | None,
    epoch: int,
    detail: Mapping[str, Any],
) -> None:
    """Add an entry within the caller's transaction, so that it stands if and only if the change does.

    The engine's node name goes with it, because its row will be gone one day.
    """
    node = None if engine_id is None or "node" in detail else _node_of(connection, engine_id)
    told = {**detail, **({} if node is None else {"node": node})}
    connection.execute(
        insert(history).values(
            at=clock.now(),
            workflow_id=workflow_id,
            run_id=run_id,
            event=event,
            engine_id=engine_id,
            epoch=epoch,
            detail=json.dumps(told, sort_keys=True),
        )
    )


class NewEntry(NamedTuple):
    """One change of ownership, to be recorded."""

    workflow_id: str
    run_id: str
    event: str
    engine_id: str
    epoch: int
    detail: Mapping[str, Any]


def record_all(connection: Connection, clock: StoreClock, entries: Sequence[NewEntry]) -> None:
    """Add many entries, as `record` does one, in one statement."""
    if not entries:
        return
    encoded = [(*entry[:-1], json.dumps(dict(entry.detail), sort_keys=True)) for entry in entries]
    new = rows_of(connection, encoded, _ENTRY, name="entries")
    columns = [new.c[name] for name in _ENTRY]
    connection.execute(insert(history).from_select(["at", *_ENTRY], select(clock.now(), *columns)))


def record_released(
    connection: Connection, clock: StoreClock, released: Sequence[AnyRow], engine_id: str, reason: str
) -> None:
    """Add an entry for each of these rows (id, run_id, epoch), which `engine_id` gave up in this transaction (O6)."""
    if not released:
        return
    node = _node_of(connection, engine_id)
    detail = json.dumps({"reason": reason, **({} if node is None else {"node": node})}, sort_keys=True)
    connection.execute(
        insert(history).values(at=clock.now(), event="released", engine_id=engine_id, detail=detail),
        [{"workflow_id": row.id, "run_id": row.run_id, "epoch": row.epoch} for row in released],
    )


def _node_of(connection: Connection, engine_id: str) -> str | None:
    return connection.execute(select(engines.c.node).where(engines.c.id == engine_id)).scalar_one_or_none()


class History:
    """Reading the history, and forgetting it in time."""

    def __init__(self, database: Database, clock: StoreClock) -> None:
        self._database = database
        self._clock = clock

    def forget(self, older_than: timedelta, limit: int = 1000) -> int:
        """Delete up to `limit` entries older than `older_than`; returns how many."""
        old = (
            select(history.c.id)
            .where(history.c.at < self._clock.now() - milliseconds(older_than))
            .order_by(history.c.at)
            .limit(limit)
        )
        with self._database.transaction() as connection:
            return connection.execute(delete(history).where(history.c.id.in_(old.scalar_subquery()))).rowcount

    def list(
        self, *, workflow_id: str | None = None, event: str | None = None, limit: int = 1000
    ) -> tuple[HistoryEntry, ...]:
        """The newest `limit` entries, oldest first. Raises StoreUnavailable."""
        query = select(history).order_by(history.c.id.desc()).limit(limit)
        if workflow_id is not None:
            query = query.where(history.c.workflow_id == workflow_id)
        if event is not None:
            query = query.where(history.c.event == event)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return tuple(
            HistoryEntry(
                at=moment_of(row.at),
                workflow_id=row.workflow_id,
                run_id=row.run_id,
                event=row.event,
                engine_id=row.engine_id,
                epoch=row.epoch,
                detail=json.loads(row.detail),
            )
            for row in reversed(rows)
        )
