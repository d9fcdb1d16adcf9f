"""Updates: requests that a workflow answers, in order of arrival, in the commit of the turn that handled them.

An update is applied once and answered once; under the same key it is the same update, whoever sends it how often.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection, and_, insert, select

from weft_tasks.errors import UpdateKeyConflict, WorkflowNotFound
from weft_tasks.model import Json, TurnMessage, UpdateReceipt
from weft_tasks.results import Answer
from weft_tasks.settings import Settings
from weft_tasks.shards import WHOLE, Shard
from weft_tasks.store.clock import StoreClock
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.inbox import IS_PARKED, Inbox
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.payloads import decode, say_the_same
from weft_tasks.store.tables import in_shard, is_unanswered, updates, workflows
from weft_tasks.tracing import current_trace

UPDATES_PER_TURN = 100
"""How many pending updates one turn sees; the rest makes the workflow due again."""
UPDATE_TRIES = 3
"""Turns that may begin with an update and not commit, before it is answered as failed without running again."""


class UpdateStatus(StrEnum):
    PENDING = "pending"
    ANSWERED = "answered"
    REJECTED = "rejected"
    FAILED = "failed"
    ABANDONED = "abandoned"
    """The workflow ended first; the answer is how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentUpdate:
    receipt: UpdateReceipt
    message: TurnMessage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateState:
    """What is known of an update: pending, or its one answer."""

    status: UpdateStatus
    answer: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingUpdate:
    """A workflow that has unanswered updates but is not due."""

    workflow_id: str
    run_id: str


class Updates:
    """The verbs on updates. StoreUnavailable means unknown: send again under the same key (O8)."""

    def __init__(self, database: Database, clock: StoreClock, settings: Settings) -> None:
        self._database = database
        self._clock = clock
        self._inbox = Inbox(database, Liveness(settings, clock))

    def send(
        self,
        workflow_id: str,
        name: str,
        payload: str,
        *,
        key: str | None,
        connection: Connection | None = None,
        run_id: str | None = None,
    ) -> SentUpdate:
        """Store the request in the current run and make the workflow due. One transaction, or the caller's. With a
        `run_id` it is for that run and no other.

        Raises WorkflowNotFound, WorkflowEnded, or UpdateKeyConflict when the key was used for another request.
        """
        with self._database.transaction(connection) as own:
            row = self._inbox.lock(own, workflow_id, run_id=run_id)
            earlier = self._earlier(own, row, name, payload, key)
            if earlier is not None:
                return SentUpdate(receipt=earlier, message=None)
            number = self._inbox.next_number(row)
            receipt = UpdateReceipt(
                workflow_id=workflow_id, run_id=row.run_id, number=number, key=key or uuid.uuid4().hex
            )
            self._insert(own, receipt, name, payload)
            # Every update is awaited: somebody waits for its answer.
            return SentUpdate(receipt=receipt, message=self._inbox.arrived(own, row, number, is_awaited=True))

    def _earlier(
        self, connection: Connection, row: AnyRow, name: str, payload: str, key: str | None
    ) -> UpdateReceipt | None:
        if key is None:
            return None
        found = connection.execute(
            select(updates).where(updates.c.run_id == row.run_id, updates.c.key == key)
        ).one_or_none()
        if found is None:
            return None
        if found.name != name or not say_the_same(found.payload, payload):
            raise UpdateKeyConflict(row.id, key)
        return UpdateReceipt(workflow_id=row.id, run_id=row.run_id, number=found.number, key=key)

    def _insert(self, connection: Connection, receipt: UpdateReceipt, name: str, payload: str) -> None:
        connection.execute(
            insert(updates).values(
                run_id=receipt.run_id,
                number=receipt.number,
                workflow_id=receipt.workflow_id,
                key=receipt.key,
                name=name,
                payload=payload,
                status=UpdateStatus.PENDING,
                begun=0,
                sent_at=self._clock.now(),
                trace=current_trace(),
            )
        )

    def read(self, receipt: UpdateReceipt) -> UpdateState:
        """The state of the update. Raises WorkflowNotFound when its run was purged."""
        with self._database.reading() as connection:
            row = connection.execute(
                select(updates.c.status, updates.c.answer).where(
                    updates.c.run_id == receipt.run_id, updates.c.number == receipt.number
                )
            ).one_or_none()
        if row is None:
            raise WorkflowNotFound(receipt.workflow_id)
        return UpdateState(status=UpdateStatus(row.status), answer=decode(row.answer))

    # -- the poll

    def list_held_with_pending(self, shard: Shard = WHOLE) -> Sequence[PendingUpdate]:
        """Parked workflows of the shard with unanswered updates. The cost follows the updates, not those parked."""
        query = (
            select(workflows.c.id, workflows.c.run_id)
            .join(updates, and_(updates.c.workflow_id == workflows.c.id, updates.c.run_id == workflows.c.run_id))
            .where(is_unanswered, *in_shard(updates.c.bucket, shard), *IS_PARKED)
            .distinct()
        )
        with self._database.reading() as connection:
            return tuple(PendingUpdate(workflow_id=row.id, run_id=row.run_id) for row in connection.execute(query))

    def wake(self, pending: PendingUpdate) -> tuple[Answer, TurnMessage | None]:
        """Make the workflow due for its updates, if it is still parked. LOST: it has moved on."""
        return self._inbox.wake(workflows.c.id == pending.workflow_id, workflows.c.run_id == pending.run_id)
