"""What follows from a workflow's end, whoever ended it, in the transaction that ends it (O7).

Its pending signals become undeliverable, its updates are answered, its parent is owed a reply, and its children are
cancelled if that is their close policy.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, exists, not_, select, update

from weft_tasks.model import WorkflowStatus
from weft_tasks.store.aborts import order_aborts
from weft_tasks.store.claims import drop_claims
from weft_tasks.store.clock import StoreClock
from weft_tasks.store.database import AnyRow
from weft_tasks.store.history import record
from weft_tasks.store.outbox import Debt, DebtKind, Outbox
from weft_tasks.store.tables import is_unanswered, signals, updates, workflows

UNDELIVERABLE = -1
"""`consumed_turn` of a signal whose workflow ended before any turn took it."""

CANCEL = "cancel"
"""The close policy of a child that is cancelled when its parent ends; any other leaves it alone."""

_CAN_RUN = (WorkflowStatus.RUNNING, WorkflowStatus.SUSPENDED)


class Endings:
    """Shared by the commit that ends a workflow and by the endings that come from outside."""

    def __init__(self, clock: StoreClock, outbox: Outbox, cancel_bound_ms: int) -> None:
        self._clock = clock
        self._outbox = outbox
        self._cancel_bound_ms = cancel_bound_ms

    def follow(
        self, connection: Connection, row: AnyRow, status: WorkflowStatus, *, result: str | None, error: str | None
    ) -> tuple[Debt, ...]:
        """Write what follows from the end of the run in `row`; returns the debts, to be paid after the commit."""
        self._leave_behind(connection, row.run_id, status)
        debts = _owed_to_parent(row, status, result, error)
        self._outbox.owe(connection, debts)
        return debts

    def fenced_off(self) -> dict[str, Any]:
        """O7: the values with which an ending from outside fences: a higher epoch, no holder, no open attempt. A turn
        that it aborts does not count towards the limit of begun turns (O11): that was not the turn's doing."""
        return {
            "epoch": workflows.c.epoch + 1,
            "engine_id": None,
            "attempt_open": False,
            "begun": case((workflows.c.attempt_open, workflows.c.begun - 1), else_=workflows.c.begun),
            "dispatched_witnessed": None,
            "dispatches": 0,
            "unanswered": 0,
            "updated_at": self._clock.now(),
        }

    def ended(self, status: WorkflowStatus, error: str | None) -> dict[str, Any]:
        """The values of a workflow that ends from outside, at once."""
        return {
            **self.fenced_off(),
            "status": status,
            "due": False,
            "next_deadline_at": None,
            "end_by_at": None,
            "error": error,
            "ended_at": self._clock.now(),
        }

    def cancelling(self) -> dict[str, Any]:
        """The values of a workflow that gets its last turn: due at once, and over by itself after a bound."""
        return {
            **self.fenced_off(),
            "status": WorkflowStatus.RUNNING,
            "cancelling": True,
            "due": True,
            "not_before_at": None,
            "begun": 0,
            "tries": 0,
            "end_by_at": self._clock.now() + self._cancel_bound_ms,
        }

    def _leave_behind(self, connection: Connection, run_id: str, status: WorkflowStatus) -> None:
        """Most runs leave nothing, and one look tells. Nothing can come while the row of the run is locked: what is
        sent to it is numbered under that lock, and only its own turns start children."""
        pending = and_(signals.c.run_id == run_id, signals.c.consumed_turn.is_(None))
        unanswered = and_(updates.c.run_id == run_id, is_unanswered)
        left = connection.execute(
            select(
                exists().where(pending).label("signals"),
                exists().where(unanswered).label("updates"),
                exists()
                .where(workflows.c.parent_run_id == run_id, workflows.c.close_policy == CANCEL)
                .label("children"),
            )
        ).one()
        if left.signals:
            connection.execute(update(signals).where(pending).values(consumed_turn=UNDELIVERABLE))
        if left.updates:
            abandoned = {"status": "abandoned", "answer": json.dumps(status.value), "answered_at": self._clock.now()}
            connection.execute(update(updates).where(unanswered).values(abandoned))
        if left.children:
            self._cancel_children(connection, run_id)

    def _cancel_children(self, connection: Connection, parent_run_id: str) -> None:
        """Rows are locked parent first, then children by their ids. A child that ends locks no parent: it is owed a
        reply."""
        belongs = (workflows.c.parent_run_id == parent_run_id, workflows.c.close_policy == CANCEL)
        children = connection.execute(
            select(workflows)
            .where(*belongs, workflows.c.status.in_([*_CAN_RUN, WorkflowStatus.SET_ASIDE]))
            .order_by(workflows.c.id)
            .with_for_update()
        ).all()
        for child in children:
            if child.status == WorkflowStatus.SET_ASIDE:
                self._end_set_aside(connection, child)
        if any(child.status in _CAN_RUN for child in children):
            self._cancel_running(connection, *belongs, workflows.c.status.in_(_CAN_RUN), not_(workflows.c.cancelling))

    def _end_set_aside(self, connection: Connection, row: AnyRow) -> None:
        """A workflow that was set aside gets no last turn: its turns are what it was set aside for. Its parent is over,
        and needs no reply."""
        cancelled = WorkflowStatus.CANCELLED
        connection.execute(update(workflows).where(workflows.c.id == row.id).values(self.ended(cancelled, None)))
        record(connection, self._clock, row.id, row.run_id, cancelled.value, None, row.epoch + 1, {})
        self._leave_behind(connection, row.run_id, cancelled)

    def _cancel_running(self, connection: Connection, *which: ColumnElement[bool]) -> None:
        order_aborts(connection, *which)
        cancelled = connection.execute(
            update(workflows).where(*which).values(self.cancelling()).returning(workflows.c.id)
        )
        drop_claims(connection, cancelled.scalars())


def _owed_to_parent(row: AnyRow, status: WorkflowStatus, result: str | None, error: str | None) -> tuple[Debt, ...]:
    if row.parent_run_id is None or row.parent_reply is None:
        return ()
    is_failure = status is not WorkflowStatus.COMPLETED
    failure = {
        "type": "ChildFailed",
        "child": row.id,
        "status": status.value,
        "error": None if error is None else json.loads(error),
    }
    payload = failure if is_failure else (None if result is None else json.loads(result))
    return (
        Debt(
            # A run that failed and is retried ends again, under a higher epoch, and its parent hears of that as well.
            id=f"reply:{row.run_id}:{row.epoch}",
            kind=DebtKind.REPLY,
            workflow_id=row.parent_id,
            run_id=row.parent_run_id,
            body={"name": row.parent_reply, "payload": payload, "is_failure": is_failure},
        ),
    )
