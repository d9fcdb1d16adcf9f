"""What commits owe to others: tasks to send, and replies to parents. Written with the commit, paid right after it, and
paid by a pass when the process died in between. Paying twice is harmless: a reply has a key, a task a stable id."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from weft_tasks.settings import Settings
from weft_tasks.store.clock import StoreClock, milliseconds
from weft_tasks.store.database import Database
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.tables import outbox

BATCH = 500
"""Overdue debts that one pass takes on."""


class DebtKind(StrEnum):
    CALL = "call"
    """A Celery task to send; the body is its signature."""
    REPLY = "reply"
    """A signal to a parent: how its child ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """One thing owed. The id of a call is the id its task will have; the id of a reply deduplicates its signal."""

    id: str
    kind: DebtKind
    workflow_id: str
    run_id: str
    body: Mapping[str, Any]


class Outbox:
    """The verbs on debts. StoreUnavailable means unknown; the debt stays."""

    def __init__(self, database: Database, clock: StoreClock, settings: Settings) -> None:
        self._database = database
        self._clock = clock
        self._interval = milliseconds(settings.renew_interval)
        self._liveness = Liveness(settings, clock)

    def owe(self, connection: Connection, debts: Sequence[Debt]) -> None:
        """Write debts within the caller's transaction."""
        if debts:
            connection.execute(insert(outbox).values(created_at=self._clock.now(), **self._sent_now()), _rows(debts))

    def pay(self, debt_id: str) -> None:
        """The debt is paid and forgotten."""
        with self._database.transaction() as connection:
            connection.execute(delete(outbox).where(outbox.c.id == debt_id))

    def list_overdue(self) -> tuple[Debt, ...]:
        """Debts that nobody paid within R of witnessed time, oldest first; each is then left alone for another R."""
        is_overdue = outbox.c.dispatched_witnessed + self._interval < self._liveness.witnessed_now()
        with self._database.transaction() as connection:
            rows = connection.execute(
                select(outbox)
                .where(is_overdue)
                .order_by(outbox.c.dispatched_witnessed, outbox.c.id)
                .limit(BATCH)
                # What another pass has just taken is left to it.
                .with_for_update(skip_locked=True)
            ).all()
            if rows:
                taken = outbox.c.id.in_([row.id for row in rows])
                connection.execute(update(outbox).where(taken).values(self._sent_now()))
        return tuple(
            Debt(
                id=row.id,
                kind=DebtKind(row.kind),
                workflow_id=row.workflow_id,
                run_id=row.run_id,
                body=json.loads(row.body),
            )
            for row in rows
        )

    def _sent_now(self) -> dict[str, Any]:
        return {"dispatched_witnessed": self._liveness.witnessed_now()}


def _rows(debts: Sequence[Debt]) -> list[dict[str, Any]]:
    return [
        {
            "id": debt.id,
            "kind": debt.kind,
            "workflow_id": debt.workflow_id,
            "run_id": debt.run_id,
            "body": json.dumps(dict(debt.body)),
        }
        for debt in debts
    ]
