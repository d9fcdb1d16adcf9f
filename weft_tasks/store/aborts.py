"""Turns to abort: fenced off while they ran, and still on their engine until it has ended them (O7).

The engine's heart reads them with each beat, so an abort reaches an engine that no remote control command reaches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from weft_tasks.store.database import Database
from weft_tasks.store.tables import aborts, workflows


def order_aborts(connection: Connection, *which: ColumnElement[bool]) -> None:
    """Order the abort of the open attempts of these workflows, in the transaction that is about to fence them off."""
    in_flight = select(workflows.c.engine_id, workflows.c.attempt_task).where(
        *which, workflows.c.attempt_open, workflows.c.engine_id.is_not(None), workflows.c.attempt_task.is_not(None)
    )
    rows: list[dict[str, Any]] = [
        {"engine_id": row[0], "task_id": json.loads(row[1])} for row in connection.execute(in_flight)
    ]
    known = {
        (row.engine_id, row.task_id)
        for row in connection.execute(select(aborts).where(aborts.c.task_id.in_([row["task_id"] for row in rows])))
    }
    fresh = [row for row in rows if (row["engine_id"], row["task_id"]) not in known]
    if fresh:
        connection.execute(insert(aborts), fresh)


class Aborts:
    """Reading and closing the orders of one engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(self, engine_id: str) -> frozenset[str]:
        """The Celery task ids to end."""
        with self._database.reading() as connection:
            return frozenset(
                connection.execute(select(aborts.c.task_id).where(aborts.c.engine_id == engine_id)).scalars()
            )

    def close(self, engine_id: str, task_ids: Sequence[str]) -> None:
        """These tasks are over."""
        with self._database.transaction() as connection:
            connection.execute(
                delete(aborts).where(aborts.c.engine_id == engine_id, aborts.c.task_id.in_(list(task_ids)))
            )
