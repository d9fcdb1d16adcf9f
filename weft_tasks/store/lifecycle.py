"""Endings and changes of status from outside: cancel, terminate, suspend, resume, retry, timeout and purge (O7).

Each may come from any process. Each raises the epoch and deletes the holder in the transaction that changes the status,
so whatever turn is in flight cannot commit; the caller then has it aborted as far as its pool allows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, select, update

from weft_tasks.errors import WorkflowEnded, WorkflowNotFound, WrongStatus
from weft_tasks.model import WorkflowStatus
from weft_tasks.results import Answer
from weft_tasks.settings import Settings
from weft_tasks.shards import WHOLE, Shard
from weft_tasks.store.aborts import order_aborts
from weft_tasks.store.claims import Claims
from weft_tasks.store.clock import StoreClock, milliseconds
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.endings import UNDELIVERABLE, Endings
from weft_tasks.store.history import LONGEST_REASON, record
from weft_tasks.store.outbox import Debt
from weft_tasks.store.tables import engines, in_shard, is_not_running, signals, store, workflows
from weft_tasks.store.workflows import delete_runs, locked_row

PURGEABLE = tuple(status for status in WorkflowStatus if status.is_ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInFlight:
    """A turn that was fenced off while it ran: which Celery task it is, on which node."""

    task_id: str
    node: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What a change of status leaves to do: a turn to abort, debts to pay."""

    status: WorkflowStatus
    in_flight: TurnInFlight | None = None
    debts: tuple[Debt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueEnd:
    """A workflow whose time is up: its own timeout, or the bound of its cancel's last turn."""

    workflow_id: str
    run_id: str
    name: str = ""
    deadline_passed: bool = True


class Lifecycle:
    """The verbs that change a status from outside. StoreUnavailable means unknown: all of them may be repeated."""

    def __init__(
        self, database: Database, clock: StoreClock, settings: Settings, *, claims: Claims, endings: Endings
    ) -> None:
        self._database = database
        self._clock = clock
        self._claims = claims
        self._endings = endings

    def cancel(self, workflow_id: str) -> Changed:
        """Give the workflow one last turn to clean up, bounded in time; then it is cancelled, whatever that turn did.

        A second cancel changes nothing. Raises WorkflowNotFound or WorkflowEnded.
        """
        with self._database.transaction() as connection:
            row = self._locked(connection, workflow_id)
            if row.cancelling:
                return Changed(status=WorkflowStatus(row.status))
            if row.status == WorkflowStatus.SET_ASIDE:
                return self._end(connection, row, WorkflowStatus.CANCELLED, None)
            return self._change(connection, row, "cancel", self._endings.cancelling())

    def terminate(self, workflow_id: str, reason: str) -> Changed:
        """End the workflow at once, without another turn. Raises WorkflowNotFound or WorkflowEnded."""
        error = json.dumps({"type": "Terminated", "message": reason})
        with self._database.transaction() as connection:
            row = self._locked(connection, workflow_id)
            return self._end(connection, row, WorkflowStatus.TERMINATED, error)

    def suspend(self, workflow_id: str) -> Changed:
        """No turn runs until it is resumed; signals and updates are kept. Raises WrongStatus unless it is running."""
        with self._database.transaction() as connection:
            row = self._locked(connection, workflow_id)
            if row.status == WorkflowStatus.SUSPENDED:
                return Changed(status=WorkflowStatus.SUSPENDED)
            if row.status != WorkflowStatus.RUNNING or row.cancelling:
                raise WrongStatus(workflow_id, "suspended", "cancelling" if row.cancelling else row.status)
            values = {**self._endings.fenced_off(), "status": WorkflowStatus.SUSPENDED}
            return self._change(connection, row, "suspend", values)

    def resume(self, workflow_id: str) -> Changed:
        """Let a suspended workflow run on; it is due and a candidate at once. Raises WrongStatus for any other."""
        with self._database.transaction() as connection:
            row = self._locked(connection, workflow_id)
            if row.status != WorkflowStatus.SUSPENDED:
                raise WrongStatus(workflow_id, "resumed", row.status)
            return self._change(connection, row, "resume", self._runs_again())

    def retry(self, workflow_id: str) -> Changed:
        """Let a failed or set-aside workflow try its turn again, with the signals it had. Raises WrongStatus."""
        with self._database.transaction() as connection:
            row = self._locked(connection, workflow_id, may_be_ended=True)
            if row.status not in (WorkflowStatus.FAILED, WorkflowStatus.SET_ASIDE):
                raise WrongStatus(workflow_id, "retried", row.status)
            connection.execute(
                update(signals)
                .where(signals.c.run_id == row.run_id, signals.c.consumed_turn == UNDELIVERABLE)
                .values(consumed_turn=None)
            )
            values = {**self._runs_again(), "begun": 0, "tries": 1, "not_before_at": None, "ended_at": None}
            return self._change(connection, row, "retry", values)

    def _runs_again(self) -> dict[str, Any]:
        return {**self._endings.fenced_off(), "status": WorkflowStatus.RUNNING, "due": True}

    # -- what ends by itself

    def list_overdue_ends(self, shard: Shard = WHOLE) -> Sequence[OverdueEnd]:
        """Workflows of the shard that have not ended and whose time is up, set aside or suspended as they may be."""
        with self._database.reading() as connection:
            rows = connection.execute(
                select(workflows.c.id, workflows.c.run_id).where(
                    workflows.c.end_by_at <= self._clock.now(), *in_shard(workflows.c.bucket, shard)
                )
            ).all()
        return tuple(OverdueEnd(workflow_id=row.id, run_id=row.run_id) for row in rows)

    def end_overdue(self, overdue: OverdueEnd) -> tuple[Answer, Changed | None]:
        """End it as timed out, or as cancelled if it was being cancelled. LOST: it has ended meanwhile."""
        with self._database.transaction() as connection:
            row = connection.execute(
                select(workflows)
                .where(
                    workflows.c.id == overdue.workflow_id,
                    workflows.c.run_id == overdue.run_id,
                    workflows.c.end_by_at <= self._clock.now(),
                )
                .with_for_update()
            ).one_or_none()
            if row is None:
                return Answer.LOST, None
            if row.cancelling:
                error = json.dumps({"type": "CancelTimedOut", "message": "its last turn did not commit in time"})
                return Answer.WON, self._end(connection, row, WorkflowStatus.CANCELLED, error)
            error = json.dumps({"type": "TimedOut", "message": "the workflow's timeout has passed"})
            return Answer.WON, self._end(connection, row, WorkflowStatus.TIMED_OUT, error)

    # -- purge

    def purge(self, *, older_than: timedelta, statuses: Sequence[WorkflowStatus] = PURGEABLE, limit: int = 1000) -> int:
        """Delete up to `limit` ended workflows that ended longer ago than `older_than`; returns how many.

        The store's epoch floor is lifted to theirs in the same transaction, so an id used again never meets an old
        epoch. Call it again while it returns `limit`.
        """
        with self._database.transaction() as connection:
            # The floor first, as `start` does: then no new row can begin below what this deletes.
            floor = connection.execute(
                select(store.c.epoch_floor).where(store.c.id == 1).with_for_update()
            ).scalar_one()
            rows = connection.execute(
                select(workflows.c.run_id, workflows.c.epoch)
                .where(
                    is_not_running,
                    workflows.c.status.in_(list(statuses)),
                    workflows.c.ended_at < self._clock.now() - milliseconds(older_than),
                )
                .order_by(workflows.c.id)
                .limit(limit)
                # Who restarts a workflow may hold it and wait for the floor: what is locked is left to the next purge.
                .with_for_update(skip_locked=True)
            ).all()
            if rows:
                lifted = max(floor, *(row.epoch for row in rows))
                connection.execute(update(store).where(store.c.id == 1).values(epoch_floor=lifted))
                delete_runs(connection, [row.run_id for row in rows])
            return len(rows)

    # -- common to all

    def _locked(self, connection: Connection, workflow_id: str, *, may_be_ended: bool = False) -> AnyRow:
        row = locked_row(connection, workflow_id)
        if row is None:
            raise WorkflowNotFound(workflow_id)
        if WorkflowStatus(row.status).is_ended and not may_be_ended:
            raise WorkflowEnded(workflow_id, row.status)
        return row

    def _end(self, connection: Connection, row: AnyRow, status: WorkflowStatus, error: str | None) -> Changed:
        reason = {} if error is None else {"reason": json.loads(error)["message"][:LONGEST_REASON]}
        changed = self._change(connection, row, status.value, self._endings.ended(status, error), reason)
        debts = self._endings.follow(connection, row, status, result=None, error=error)
        return Changed(status=status, in_flight=changed.in_flight, debts=debts)

    def _change(
        self,
        connection: Connection,
        row: AnyRow,
        event: str,
        values: dict[str, Any],
        reason: Mapping[str, str] = MappingProxyType({}),
    ) -> Changed:
        order_aborts(connection, workflows.c.id == row.id)
        connection.execute(update(workflows).where(workflows.c.id == row.id).values(values))
        self._claims.drop(connection, [row.id])
        record(connection, self._clock, row.id, row.run_id, event, row.engine_id, row.epoch + 1, reason)
        return Changed(status=WorkflowStatus(values["status"]), in_flight=self._in_flight(connection, row))

    def _in_flight(self, connection: Connection, row: AnyRow) -> TurnInFlight | None:
        if not row.attempt_open or row.attempt_task is None:
            return None
        node = connection.execute(select(engines.c.node).where(engines.c.id == row.engine_id)).scalar_one_or_none()
        return TurnInFlight(task_id=json.loads(row.attempt_task), node=node)
