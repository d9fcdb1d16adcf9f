"""Signals: durable, ordered per workflow and name, consumed once, deduplicated by an optional key.

A signal belongs to a run. Its number is drawn from the run's inbox under the workflow row's lock, so no order can be
seen that a later commit changes; consumption marks rows (see turns), it is no cursor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, insert, select

from weft_tasks.errors import SignalKeyConflict
from weft_tasks.model import SignalReceipt, TurnMessage, WorkflowStatus
from weft_tasks.results import Answer
from weft_tasks.settings import Settings
from weft_tasks.shards import WHOLE, Shard
from weft_tasks.store.at_once import AtOnce
from weft_tasks.store.clock import StoreClock
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.endings import UNDELIVERABLE
from weft_tasks.store.inbox import IS_PARKED, Inbox, message_of
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.outbox import forget
from weft_tasks.store.payloads import say_the_same
from weft_tasks.store.tables import in_shard, signals, workflows
from weft_tasks.store.waits import readable_waits
from weft_tasks.tracing import current_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSignal:
    """The receipt, and the message that wakes the owner if the signal made the workflow due."""

    receipt: SignalReceipt
    message: TurnMessage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyWait:
    """A wait of a parked workflow, as a poll's list found it."""

    workflow_id: str
    run_id: str
    turn: int
    name: str
    deadline_passed: bool = False


class Signals:
    """The verbs on signals. StoreUnavailable means unknown: send again under the same key (O8)."""

    def __init__(self, database: Database, clock: StoreClock, settings: Settings, *, at_once: AtOnce) -> None:
        self._database = database
        self._clock = clock
        self._at_once = at_once
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
        is_failure: bool = False,
        is_reply: bool = False,
    ) -> SentSignal:
        """Store the signal in the workflow's current run, and make the workflow due if it waits for the name.

        One transaction, or the caller's. Raises WorkflowNotFound, WorkflowEnded, or SignalKeyConflict when the key was
        used for another name or payload; the same signal sent again gets the first receipt. With a `run_id` it is for
        that run and no other. A reply, whose key is the id of the debt that it pays, pays it in the same transaction;
        and a run that has failed takes it too: for its retry.
        """
        if connection is None and not is_reply:
            stored = self._at_once.send(workflow_id, name, payload, key=key, run_id=run_id, is_failure=is_failure)
            if stored is not None:
                return _sent(stored)
        with self._database.transaction(connection) as own:
            row = self._inbox.lock(own, workflow_id, run_id=run_id)
            if is_reply and key is not None:
                forget(own, key)
            earlier = self._earlier(own, row, name, payload, key)
            if earlier is not None:
                return SentSignal(receipt=earlier, message=None)
            waits_for_retry = is_reply and row.status == WorkflowStatus.FAILED
            number = row.inbox + 1 if waits_for_retry else self._inbox.next_number(row)
            own.execute(
                insert(signals).values(
                    run_id=row.run_id,
                    number=number,
                    workflow_id=workflow_id,
                    name=name,
                    payload=payload,
                    is_failure=is_failure,
                    key=key,
                    sent_at=self._clock.now(),
                    trace=current_trace(),
                    consumed_turn=UNDELIVERABLE if waits_for_retry else None,
                )
            )
            is_awaited = not waits_for_retry and _awaits(row, name)
            message = self._inbox.arrived(own, row, number, is_awaited=is_awaited)
        return SentSignal(
            receipt=SignalReceipt(workflow_id=workflow_id, run_id=row.run_id, number=number), message=message
        )

    def _earlier(
        self, connection: Connection, row: AnyRow, name: str, payload: str, key: str | None
    ) -> SignalReceipt | None:
        if key is None:
            return None
        found = connection.execute(
            select(signals.c.number, signals.c.name, signals.c.payload).where(
                signals.c.run_id == row.run_id, signals.c.key == key
            )
        ).one_or_none()
        if found is None:
            return None
        if found.name != name or not say_the_same(found.payload, payload):
            raise SignalKeyConflict(row.id, key)
        return SignalReceipt(workflow_id=row.id, run_id=row.run_id, number=found.number, is_duplicate=True)

    # -- the poll

    def list_waiting(self, shard: Shard = WHOLE) -> tuple[ReadyWait, ...]:
        """Every wait of every parked workflow of the shard, and one for a row whose waits are damaged. The cost
        follows their number; the poll uses `list_ready`."""
        passed = (workflows.c.next_deadline_at <= self._clock.now()).label("deadline_passed")
        with self._database.reading() as connection:
            rows = connection.execute(_parked_workflows(shard).add_columns(passed)).all()
        return tuple(
            _ready(row, name, deadline_passed=passed) for row in rows for name, passed in _waits_to_look_at(row)
        )

    def list_ready(self, shard: Shard = WHOLE) -> tuple[ReadyWait, ...]:
        """The parked workflows of the shard whose awaited signal is buffered or whose deadline has passed, each named
        once.

        The cost follows the signals that are pending and the deadlines that have passed, not the number parked.
        """
        # From the pending signals to their workflows, never the other way round: those are few, these are many.
        pending = (
            select(signals.c.workflow_id, signals.c.run_id, signals.c.name)
            .where(signals.c.consumed_turn.is_(None), *in_shard(signals.c.bucket, shard))
            .distinct()
            .subquery()
        )
        arrived = (
            _parked_workflows()
            .add_columns(pending.c.name.label("signal_name"))
            .join(pending, and_(pending.c.workflow_id == workflows.c.id, pending.c.run_id == workflows.c.run_id))
        )
        expired = _parked_workflows(shard).where(workflows.c.next_deadline_at <= self._clock.now())
        ready: dict[str, ReadyWait] = {}
        with self._database.reading() as connection:
            for row in connection.execute(arrived):
                if _awaits(row, row.signal_name):
                    ready.setdefault(row.id, _ready(row, row.signal_name))
            for row in connection.execute(expired):
                ready.setdefault(row.id, _ready(row, _first_expired(row), deadline_passed=True))
        return tuple(ready.values())

    def has_buffered(self, wait: ReadyWait) -> bool:
        """Whether a signal of the wait's name is there to be consumed."""
        buffered = select(signals.c.number).where(
            signals.c.run_id == wait.run_id, signals.c.consumed_turn.is_(None), signals.c.name == wait.name
        )
        with self._database.reading() as connection:
            return connection.execute(buffered.limit(1)).one_or_none() is not None

    def wake(self, wait: ReadyWait) -> tuple[Answer, TurnMessage | None]:
        """Make the workflow due, if it is still parked at the same turn; consumes nothing. LOST: it has moved on."""
        return self._inbox.wake(
            workflows.c.id == wait.workflow_id, workflows.c.run_id == wait.run_id, workflows.c.turn == wait.turn
        )


def _sent(stored: AnyRow) -> SentSignal:
    receipt = SignalReceipt(workflow_id=stored.id, run_id=stored.run_id, number=stored.number)
    return SentSignal(receipt=receipt, message=message_of(stored) if stored.is_sent else None)


def _parked_workflows(shard: Shard = WHOLE) -> Any:
    return select(
        workflows.c.id,
        workflows.c.run_id,
        workflows.c.turn,
        workflows.c.waits,
        workflows.c.waiting_since_at,
        workflows.c.next_deadline_at,
    ).where(*IS_PARKED, *in_shard(workflows.c.bucket, shard))


def _waits_to_look_at(row: AnyRow) -> list[tuple[str, bool]]:
    waits = readable_waits(row.waits, row.waiting_since_at)
    return [("", True)] if waits is None else [(wait.name, bool(row.deadline_passed)) for wait in waits]


def _awaits(row: AnyRow, name: str) -> bool:
    """A row whose waits are damaged is woken: its turn then fails, and says why."""
    waits = readable_waits(row.waits, row.waiting_since_at)
    return waits is None or any(wait.name == name for wait in waits)


def _first_expired(row: AnyRow) -> str:
    waits = readable_waits(row.waits, row.waiting_since_at) or ()
    deadlines = [(wait.deadline, wait.name) for wait in waits if wait.deadline]
    return min(deadlines)[1] if deadlines else ""


def _ready(row: AnyRow, name: str, *, deadline_passed: bool = False) -> ReadyWait:
    return ReadyWait(workflow_id=row.id, run_id=row.run_id, turn=row.turn, name=name, deadline_passed=deadline_passed)
