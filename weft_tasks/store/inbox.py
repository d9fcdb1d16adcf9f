"""The inbox of a run: what is addressed to it is counted under its row's lock, and wakes it if it is parked (O9).

Signals and updates share it, so their numbers are one order. A turn is given what had arrived when it first began; its
commit sees by the count that more has come since.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, case, not_, null, update

from weft_tasks.errors import WorkflowEnded, WorkflowNotFound
from weft_tasks.model import TurnMessage, WorkflowStatus
from weft_tasks.results import Answer
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.tables import is_running, workflows
from weft_tasks.store.workflows import locked_row

IS_PARKED = (is_running, not_(workflows.c.due), not_(workflows.c.attempt_open))


class Inbox:
    """The verbs on a run's inbox, for the stores of signals and of updates."""

    def __init__(self, database: Database, liveness: Liveness) -> None:
        self._database = database
        self._liveness = liveness

    def lock(self, connection: Connection, workflow_id: str, *, run_id: str | None = None) -> AnyRow:
        """The workflow's row, locked until the transaction ends: arrivals are numbered one after the other.

        Raises WorkflowNotFound, also when its run is not the one that `run_id` names.
        """
        row = locked_row(connection, workflow_id)
        if row is None or run_id not in (None, row.run_id):
            raise WorkflowNotFound(workflow_id)
        return row

    def next_number(self, row: AnyRow) -> int:
        """The number of what arrives now. Raises WorkflowEnded if nothing more is taken."""
        if WorkflowStatus(row.status).is_ended:
            raise WorkflowEnded(row.id, row.status)
        return int(row.inbox) + 1

    def arrived(self, connection: Connection, row: AnyRow, number: int, *, is_awaited: bool) -> TurnMessage | None:
        """Count the arrival and, if it is awaited, wake the parked workflow; returns the message that tells its owner.

        An open turn is not woken: its commit sees the count.
        """
        wakes = is_awaited and not row.due and not row.attempt_open
        sends = wakes and row.engine_id is not None and row.status == WorkflowStatus.RUNNING
        connection.execute(
            update(workflows)
            .where(workflows.c.id == row.id)
            .values(
                inbox=number,
                **({"due": True} if wakes else {}),
                **({"dispatched_witnessed": self._liveness.witnessed_now()} if sends else {}),
            )
        )
        return message_of(row) if sends else None

    def wake(self, *which: ColumnElement[bool]) -> tuple[Answer, TurnMessage | None]:
        """Make the workflow due if it is still parked, without anything new. LOST: it has moved on."""
        holds = workflows.c.engine_id.is_not(None)
        with self._database.transaction() as connection:
            row: Any = connection.execute(
                update(workflows)
                .where(*which, *IS_PARKED)
                .values(
                    due=True,
                    inbox=workflows.c.inbox + 1,
                    dispatched_witnessed=case((holds, self._liveness.witnessed_now()), else_=null()),
                )
                .returning(workflows)
            ).one_or_none()
        if row is None:
            return Answer.LOST, None
        return Answer.WON, message_of(row) if row.engine_id is not None else None


def message_of(row: AnyRow) -> TurnMessage:
    """What tells the row's holder that it is due."""
    return TurnMessage(workflow_id=row.id, run_id=row.run_id, engine_id=row.engine_id, epoch=row.epoch, turn=row.turn)
