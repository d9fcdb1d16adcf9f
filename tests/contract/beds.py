"""One way to arrange and look at ownership, whatever keeps it: the fake, SQLite or PostgreSQL.

The verbs under test are called directly (`bed.claims.take_over(...)`); a bed only brings workflows, engines and time
into the position that a test starts from, and reads rows.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from breaking import failing_before
from sqlalchemy import delete, insert, select, text, update

from weft_tasks.model import HeldClaim, TurnMessage, WorkflowStatus
from weft_tasks.passes.targets import Targets
from weft_tasks.settings import Settings
from weft_tasks.shards import WHOLE, Shard, bucket_of
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock, moment_of
from weft_tasks.store.tables import claims, engine_types, engines, metadata, signals, workflows
from weft_tasks.store.targets import StoreReclaim, StoreRenewal, StoreSignalPoll
from weft_tasks.store.turns import BegunTurn, TurnOutcome
from weft_tasks.testing.fakes import FakeClaim, FakeClaims

START = datetime(2026, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)

DEFAULTS = Settings()
T, R, G = DEFAULTS.claim_ttl, DEFAULTS.renew_interval, DEFAULTS.grace
BEAT = DEFAULTS.heartbeat_interval
DEAF_AFTER = DEFAULTS.deaf_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a test looks at in a workflow's row."""

    status: WorkflowStatus
    engine_id: str | None
    epoch: int
    turn: int
    is_due: bool
    attempt_open: bool
    begun: int
    dispatches: int
    unanswered: int


class Bed(ABC):
    """The verbs, and the moves that tests start from."""

    claims: Any
    engines: Any
    reclaim: Any
    """Where `list_reclaim_candidates`, `list_engines_taking_work` and `note_dispatch` are."""
    sent: list[TurnMessage]
    """The messages that targets have sent."""

    @abstractmethod
    def targets(self) -> Targets:
        """The targets of one round of passes."""

    # -- time

    @abstractmethod
    def advance(self, duration: timedelta) -> None:
        """Move the store's clock, also back. No engine beats meanwhile."""

    def live_through(self, duration: timedelta, *beating: str) -> None:
        """Let time pass in which these engines beat, the last time at its end: so the witnessed clock moves as much."""
        while duration > timedelta(0):
            step = min(R, duration)
            self.advance(step)
            self.beat(*beating)
            duration -= step

    # -- engines

    def engine(self, engine_id: str, *types: str, node: str | None = None) -> str:
        """A live engine that knows these types, by default `permit`, and has two free slots."""
        self.engines.register(
            engine_id, node=node or f"{engine_id}@host", host="host", pid=1, types=types or ("permit",), slots=2
        )
        return engine_id

    def beat(self, *engine_ids: str, free_slots: int = 2, in_hand: Sequence[str] = ()) -> None:
        for engine_id in engine_ids:
            self.engines.heartbeat(engine_id, free_slots=free_slots, in_hand=in_hand)

    @abstractmethod
    def remove_engine(self, engine_id: str) -> None:
        """Delete the engine's row, whatever names it: a clean-up that was too eager."""

    @abstractmethod
    def unreachable(self) -> AbstractContextManager[None]:
        """While it lasts, the store answers nothing."""

    # -- workflows

    @abstractmethod
    def start(self, workflow_id: str = "w", type_name: str = "permit") -> TurnMessage: ...

    def held(self, workflow_id: str = "w", by: str = "a") -> HeldClaim:
        """Started, and acquired by an engine: due, and no turn has begun."""
        message = self.start(workflow_id)
        return self.acquired(message, by)

    def acquired(self, message: TurnMessage, by: str) -> HeldClaim:
        grant = self.claims.acquire(message.workflow_id, message.run_id, message.epoch, by)
        assert grant.answer == "won", grant
        return HeldClaim(workflow_id=message.workflow_id, engine_id=by, epoch=grant.epoch)

    def parked(self, workflow_id: str = "w", by: str = "a", *names: str) -> HeldClaim:
        """Held, and its first turn has committed: not due, waiting for signals of these names."""
        held = self.held(workflow_id, by)
        self.begin(workflow_id)
        self.park(workflow_id, *names)
        return held

    @abstractmethod
    def begin(self, workflow_id: str = "w", task_id: str = "task") -> None:
        """Its holder begins the turn that is due."""

    def begin_again(self, workflow_id: str = "w") -> None:
        """A parked workflow becomes due, by whatever means, and its holder begins the turn."""
        self.make_due(workflow_id)
        self.begin(workflow_id)

    @abstractmethod
    def make_due(self, workflow_id: str = "w") -> None: ...

    @abstractmethod
    def park(self, workflow_id: str = "w", *names: str, timeout: timedelta | None = None) -> None:
        """The turn that was begun commits, and waits."""

    @abstractmethod
    def end(self, workflow_id: str = "w", status: WorkflowStatus = WorkflowStatus.COMPLETED) -> None:
        """The turn that was begun commits an ending."""

    @abstractmethod
    def signal(self, workflow_id: str, name: str) -> None: ...

    # -- looking

    @abstractmethod
    def message(self, workflow_id: str = "w") -> TurnMessage:
        """The message that matches the row as it is."""

    @abstractmethod
    def row(self, workflow_id: str = "w") -> Row: ...

    @abstractmethod
    def claim(self, workflow_id: str = "w") -> FakeClaim | None: ...

    def candidates(self) -> dict[str, str]:
        """The reclaim pass's work list: why each workflow is on it."""
        return {c.workflow_id: c.kind.value for c in self.reclaim.list_reclaim_candidates()}

    # -- moves

    def dispatch(self, workflow_id: str = "w") -> None:
        """What the reclaim pass does with an overdue workflow: the message was sent again, and is counted."""
        self.reclaim.note_dispatch(self.message(workflow_id))

    def leave_unanswered(self, workflow_id: str, count: int, *, by: str) -> None:
        """Dispatch a due workflow to a holder that beats and begins nothing, `count` times, each R after the last."""
        for _ in range(count):
            self.live_through(R + MS, by)
            self.dispatch(workflow_id)


class FakeBed(Bed):
    """A bed of FakeClaims."""

    def __init__(self) -> None:
        self.fake = FakeClaims()
        self.claims = self.engines = self.reclaim = self.fake
        self.sent = self.fake.sent

    def targets(self) -> Targets:
        return self.fake.targets()

    def advance(self, duration: timedelta) -> None:
        self.fake.advance(duration)

    def remove_engine(self, engine_id: str) -> None:
        del self.fake.engines[engine_id]

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        self.fake.is_down = True
        yield
        self.fake.is_down = False

    def start(self, workflow_id: str = "w", type_name: str = "permit") -> TurnMessage:
        return self.fake.start(workflow_id, type_name)

    def begin(self, workflow_id: str = "w", task_id: str = "task") -> None:
        self.fake.open_attempt(workflow_id, task_id)

    def make_due(self, workflow_id: str = "w") -> None:
        self.fake.workflows[workflow_id].is_due = True

    def park(self, workflow_id: str = "w", *names: str, timeout: timedelta | None = None) -> None:
        self.fake.park(workflow_id, *names, timeout=timeout)

    def end(self, workflow_id: str = "w", status: WorkflowStatus = WorkflowStatus.COMPLETED) -> None:
        self.fake.end(workflow_id, status)

    def signal(self, workflow_id: str, name: str) -> None:
        row = self.fake.workflows[workflow_id]
        row.signals.append(name)
        row.is_due = row.is_due or name in row.waits

    def message(self, workflow_id: str = "w") -> TurnMessage:
        return self.fake.message_for(workflow_id)

    def row(self, workflow_id: str = "w") -> Row:
        found = self.fake.workflows[workflow_id]
        return Row(**{name: getattr(found, name) for name in Row.__slots__})

    def claim(self, workflow_id: str = "w") -> FakeClaim | None:
        return self.fake.claims.get(workflow_id)


class StoreBed(Bed):
    """A bed of the real store."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.claims, self.engines, self.reclaim = store.claims, store.engines, store.workflows
        self.begun: dict[str, BegunTurn] = {}
        self.sent = []
        self._rng = random.Random(7)

    def targets(self, shard: Shard = WHOLE) -> Targets:
        return Targets(
            renewal=StoreRenewal(self.store.claims, shard),
            reclaim=StoreReclaim(
                workflows=self.store.workflows,
                claims=self.store.claims,
                engines=self.store.engines,
                send_turn=self._send_turn,
                rng=self._rng,
                shard=shard,
            ),
            signals=StoreSignalPoll(self.store.signals, self._send_turn, shard),
        )

    def _send_turn(self, message: TurnMessage) -> bool:
        self.sent.append(message)
        return True

    def advance(self, duration: timedelta) -> None:
        self.clock.advance(duration)

    def remove_engine(self, engine_id: str) -> None:
        self.write(delete(engines).where(engines.c.id == engine_id))
        self.write(delete(engine_types).where(engine_types.c.engine_id == engine_id))

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        with failing_before(self.store, 1):
            yield

    def start(self, workflow_id: str = "w", type_name: str = "permit") -> TurnMessage:
        return self.store.workflows.start(workflow_id, type_name, "null")

    def begin(self, workflow_id: str = "w", task_id: str = "task") -> None:
        begun = self.store.turns.begin(self.message(workflow_id), task_id)
        assert isinstance(begun, BegunTurn), begun
        self.begun[workflow_id] = begun

    def make_due(self, workflow_id: str = "w") -> None:
        self.write(update(workflows).where(workflows.c.id == workflow_id).values(due=True))

    def park(self, workflow_id: str = "w", *names: str, timeout: timedelta | None = None) -> None:
        self.commit(workflow_id, parked(*names, timeout=timeout))

    def end(self, workflow_id: str = "w", status: WorkflowStatus = WorkflowStatus.COMPLETED) -> None:
        self.commit(workflow_id, TurnOutcome(status=status, state_json="{}"))

    def commit(self, workflow_id: str, outcome: TurnOutcome) -> None:
        answer = self.store.turns.commit(self.begun.pop(workflow_id), outcome)
        assert answer.status == "won", answer

    def signal(self, workflow_id: str, name: str) -> None:
        self.store.signals.send(workflow_id, name, "null", key=None)

    def message(self, workflow_id: str = "w") -> TurnMessage:
        row = self.read(workflow_id)
        return TurnMessage(
            workflow_id=row.id, run_id=row.run_id, engine_id=row.engine_id, epoch=row.epoch, turn=row.turn
        )

    def row(self, workflow_id: str = "w") -> Row:
        found = self.read(workflow_id)
        return Row(
            status=WorkflowStatus(found.status),
            engine_id=found.engine_id,
            epoch=found.epoch,
            turn=found.turn,
            is_due=found.due,
            attempt_open=found.attempt_open,
            begun=found.begun,
            dispatches=found.dispatches,
            unanswered=found.unanswered,
        )

    def claim(self, workflow_id: str = "w") -> FakeClaim | None:
        found = self.rows(select(claims).where(claims.c.workflow_id == workflow_id))
        if not found:
            return None
        return FakeClaim(
            engine_id=found[0].engine_id,
            epoch=found[0].epoch,
            claimed_at=moment_of(found[0].claimed_at),
            expires_at=moment_of(found[0].expires_at),
        )

    # -- SQL of a test's own

    def read(self, workflow_id: str = "w") -> Any:
        """The workflow's row with all its columns."""
        return self.rows(select(workflows).where(workflows.c.id == workflow_id))[0]

    def rows(self, query: Any) -> Sequence[Any]:
        with self.store.database.reading() as connection:
            return connection.execute(query).all()

    def everything(self) -> dict[str, list[str]]:
        """Every row of every table: to see that nothing has changed."""
        return {table.name: sorted(map(repr, self.rows(select(table)))) for table in metadata.sorted_tables}

    def write(self, statement: Any) -> None:
        with self.store.database.transaction() as connection:
            connection.execute(statement)

    def execute(self, sql: str, **values: Any) -> None:
        self.write(text(sql).bindparams(**values))

    def many_held(self, engine_id: str, count: int) -> None:
        """As many parked workflows of an engine, made in one go from one that is real."""
        self.parked("w00000", engine_id)
        with self.store.database.transaction() as connection:
            row = connection.execute(select(workflows)).mappings().one()
            ids = [f"w{n:05}" for n in range(1, count)]
            made = [
                {**row, "id": id, "bucket": bucket_of(id), "run_id": f"{n:032x}"} for n, id in enumerate(ids, start=1)
            ]
            connection.execute(insert(workflows), made)
            claim = connection.execute(select(claims)).mappings().one()
            connection.execute(insert(claims), [{**claim, "workflow_id": id, "bucket": bucket_of(id)} for id in ids])

    def many_signals(self, workflow_id: str, name: str, count: int) -> None:
        """As many signals as if they had been sent one after the other."""
        row = self.read(workflow_id)
        numbers = range(row.inbox + 1, row.inbox + count + 1)
        common: dict[str, Any] = {
            "run_id": row.run_id,
            "workflow_id": workflow_id,
            "name": name,
            "payload": "null",
            "sent_at": 0,
            "is_failure": False,
        }
        with self.store.database.transaction() as connection:
            connection.execute(insert(signals), [{**common, "number": number} for number in numbers])
            connection.execute(update(workflows).where(workflows.c.id == workflow_id).values(inbox=numbers[-1]))


def parked(
    *names: str, timeout: timedelta | None = None, consumed: Sequence[int] = (), state: str = "{}"
) -> TurnOutcome:
    """The outcome of a turn that goes on waiting."""
    return TurnOutcome(
        status=WorkflowStatus.RUNNING,
        state_json=state,
        consumed=tuple(consumed),
        waits=tuple((name, timeout) for name in names),
    )
