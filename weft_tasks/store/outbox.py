"""What commits owe to others: tasks to send, and replies to parents. Written with the commit, paid right after it, and
paid by a pass when the process died in between. Paying twice is harmless: a reply has a key, a task a stable id.

A call whose reply is wanted stays owed until the reply has come. The broker may lose the task or its reply, so a pass
asks for the outcome, less and less often, and in the end sends the task again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, case, delete, insert, literal, select, update

from weft_tasks.errors import DamagedRow
from weft_tasks.model import WorkflowStatus
from weft_tasks.settings import NEVER, Settings
from weft_tasks.store.clock import StoreClock, milliseconds
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.tables import outbox, workflows

BATCH = 500
"""Overdue debts that one pass takes on."""
FIRST_QUESTION = 4
"""Renew intervals from sending a call to the first question for its outcome; each further pause is twice as long."""
LONGEST_PAUSE = timedelta(minutes=10)

_TAKE_REPLIES = (WorkflowStatus.RUNNING, WorkflowStatus.SUSPENDED, WorkflowStatus.SET_ASIDE, WorkflowStatus.FAILED)
"""A failed run keeps what comes in for its retry."""
_GO_ON = (WorkflowStatus.RUNNING, WorkflowStatus.SUSPENDED)


class DebtKind(StrEnum):
    CALL = "call"
    """A Celery task to send; the body is its signature."""
    REPLY = "reply"
    """A signal to a parent: how its child ended."""


class Due(StrEnum):
    """What a debt is due for."""

    SEND = "send"
    ASK = "ask"
    """It was sent; what became of it?"""
    SEND_AGAIN = "send-again"
    """It was sent so long ago that it is taken for lost, unless its outcome is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """One thing owed. The id of a call is the id its task will have; the id of a reply deduplicates its signal."""

    id: str
    kind: DebtKind
    workflow_id: str
    run_id: str
    body: Mapping[str, Any]
    due: Due = Due.SEND
    damage: DamagedRow | None = None
    """Why it cannot be paid, if its row does not say what is owed."""

    @property
    def awaits_reply(self) -> bool:
        """A call that is owed until its reply has come."""
        return self.kind is DebtKind.CALL and self.body["reply"] is not None


class Outbox:
    """The verbs on debts. StoreUnavailable means unknown; the debt stays."""

    def __init__(self, database: Database, clock: StoreClock, settings: Settings) -> None:
        self._database = database
        self._clock = clock
        self._interval = milliseconds(settings.renew_interval)
        self._resend_after = None if settings.call_resend_after == NEVER else milliseconds(settings.call_resend_after)
        self._liveness = Liveness(settings, clock)

    def owe(self, connection: Connection, debts: Sequence[Debt]) -> None:
        """Write debts within the caller's transaction."""
        if debts:
            look = {"next_look_witnessed": self._from_now(self._interval), "pause": self._interval}
            connection.execute(insert(outbox).values(created_at=self._clock.now(), **look), _rows(debts))

    def pay(self, debt: Debt) -> None:
        """What could be done is done: the debt is forgotten, or awaits its reply from now on."""
        with self._database.transaction() as connection:
            if not debt.awaits_reply:
                forget(connection, debt.id)
                return
            pause = FIRST_QUESTION * self._interval
            connection.execute(
                update(outbox)
                .where(outbox.c.id == debt.id)
                .values(
                    sent_witnessed=self._liveness.witnessed_now(),
                    next_look_witnessed=self._from_now(pause),
                    pause=_longer(literal(pause, BigInteger)),
                )
            )

    def forget(self, debt_id: str) -> None:
        """Nothing is owed any more: its reply has come, or nobody is left to take it."""
        with self._database.transaction() as connection:
            forget(connection, debt_id)

    def list_overdue(self) -> tuple[Debt, ...]:
        """Debts that nobody paid within R of witnessed time, and calls to ask about, those that waited longest first;
        each is then left alone for its pause. A call that was sent is forgotten once its run takes no more replies."""
        is_overdue = outbox.c.next_look_witnessed < self._liveness.witnessed_now()
        with self._database.transaction() as connection:
            rows = connection.execute(
                select(outbox, workflows.c.status, self._sent_ago().label("sent_ago"))
                .outerjoin_from(
                    outbox,
                    workflows,
                    and_(workflows.c.id == outbox.c.workflow_id, workflows.c.run_id == outbox.c.run_id),
                )
                .where(is_overdue)
                .order_by(outbox.c.next_look_witnessed, outbox.c.id)
                .limit(BATCH)
                # What another pass has just taken is left to it.
                .with_for_update(skip_locked=True, of=outbox)
            ).all()
            over = [row.id for row in rows if row.sent_witnessed is not None and row.status not in _TAKE_REPLIES]
            taken = [row for row in rows if row.id not in over]
            if over:
                forget(connection, *over)
            if taken:
                self._leave_alone(connection, [row.id for row in taken])
        return tuple(self._debt(row) for row in taken)

    def _leave_alone(self, connection: Connection, debt_ids: Sequence[str]) -> None:
        """Until its pause is over. That of a call which was sent grows: it may take long, and nothing is lost."""
        connection.execute(
            update(outbox)
            .where(outbox.c.id.in_(debt_ids))
            .values(
                next_look_witnessed=self._from_now(outbox.c.pause),
                pause=case((outbox.c.sent_witnessed.is_(None), outbox.c.pause), else_=_longer(outbox.c.pause)),
            )
        )

    def _debt(self, row: AnyRow) -> Debt:
        """One that cannot be read comes back with its damage: those behind it are not to wait for it."""
        debt = Debt(id=row.id, kind=DebtKind.REPLY, workflow_id=row.workflow_id, run_id=row.run_id, body={})
        try:
            body = dict(json.loads(row.body))
            return replace(debt, kind=DebtKind(row.kind), body=body, due=self._due(row, body))
        except (ValueError, TypeError) as problem:
            return replace(debt, damage=DamagedRow(row.workflow_id, "weft_outbox.body", problem))

    def _due(self, row: AnyRow, body: Mapping[str, Any]) -> Due:
        if row.sent_witnessed is None:
            return Due.SEND
        resend_after = body.get("resend_after_ms", self._resend_after)
        if resend_after is None or row.status not in _GO_ON:
            return Due.ASK
        return Due.SEND_AGAIN if row.sent_ago >= resend_after + body.get("put_off_ms", 0) else Due.ASK

    def _sent_ago(self) -> ColumnElement[int]:
        return self._liveness.witnessed_now() - outbox.c.sent_witnessed

    def _from_now(self, pause: int | ColumnElement[int]) -> ColumnElement[int]:
        return self._liveness.witnessed_now() + pause


def forget(connection: Connection, *debt_ids: str) -> None:
    """Delete debts within the caller's transaction."""
    connection.execute(delete(outbox).where(outbox.c.id.in_(debt_ids)))


def _longer(pause: ColumnElement[int]) -> ColumnElement[int]:
    longest = milliseconds(LONGEST_PAUSE)
    return case((2 * pause > longest, longest), else_=2 * pause)


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
