"""The world before a race: engines, workflows and time, brought into position by the store's own verbs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from weft_tasks.model import HeldClaim, TurnMessage, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.claims import TakeoverAnswer
from weft_tasks.store.clock import ManualClock
from weft_tasks.store.turns import BegunTurn, CommitStatus, TurnOutcome

TYPE = "permit"


class World:
    """Arranges. Time stands still unless a test moves it."""

    def __init__(self, store: Store, clock: ManualClock, settings: Settings) -> None:
        self.store = store
        self.clock = clock
        self.settings = settings

    # -- engines and time

    def engines(self, *engine_ids: str, types: Sequence[str] = (TYPE,)) -> None:
        """Live engines that have just beaten, each on a node of its own."""
        for engine_id in engine_ids:
            self.store.engines.register(engine_id, node=f"{engine_id}@h", host="h", pid=1, types=types, slots=4)

    def beat(self, *engine_ids: str, in_hand: Sequence[str] = (), free_slots: int = 4) -> None:
        for engine_id in engine_ids:
            self.store.engines.heartbeat(engine_id, free_slots=free_slots, in_hand=in_hand)

    def live_through(self, duration: timedelta, *beating: str) -> None:
        """Let time pass in which only these engines beat."""
        interval = self.settings.renew_interval
        for _ in range(-(-duration // interval)):
            self.clock.advance(interval)
            self.beat(*beating)

    def outlive(self, *beating: str) -> None:
        """Let so much time pass that every engine but these is silent for more than T + G."""
        self.live_through(self.settings.silence_limit + self.settings.renew_interval, *beating)

    # -- workflows

    def started(self, workflow_id: str = "w") -> TurnMessage:
        """Due, and nobody's."""
        return self.store.workflows.start(workflow_id, TYPE, "{}")

    def held(self, by: str, workflow_id: str = "w") -> TurnMessage:
        """Due, and acquired; the message for its first turn."""
        start = self.started(workflow_id)
        grant = self.store.claims.acquire(workflow_id, start.run_id, start.epoch, by)
        assert grant.answer is TakeoverAnswer.WON, grant
        return self.message(workflow_id)

    def begun(self, by: str, workflow_id: str = "w", task: str = "task-1") -> BegunTurn:
        """Its first turn has begun."""
        return self.begin(self.held(by, workflow_id), task)

    def parked(self, by: str, workflow_id: str = "w", *, on: Sequence[str] = ("go",)) -> HeldClaim:
        """Its first turn has committed, and it waits for these signals."""
        committed = self.store.turns.commit(self.begun(by, workflow_id), parks(*on))
        assert committed.status is CommitStatus.WON
        return self.claim(workflow_id)

    def begin(self, message: TurnMessage, task: str = "task-1") -> BegunTurn:
        begun = self.store.turns.begin(message, task)
        assert isinstance(begun, BegunTurn), begun
        return begun

    # -- what the rows say now

    def message(self, workflow_id: str = "w") -> TurnMessage:
        """The turn message that fits the row."""
        row = self.store.workflows.describe(workflow_id)
        return TurnMessage(
            workflow_id=row.id, run_id=row.run_id, engine_id=row.engine_id, epoch=row.epoch, turn=row.turn
        )

    def claim(self, workflow_id: str = "w") -> HeldClaim:
        row = self.store.workflows.describe(workflow_id)
        assert row.engine_id is not None
        return HeldClaim(workflow_id=row.id, engine_id=row.engine_id, epoch=row.epoch)

    def run_id(self, workflow_id: str = "w") -> str:
        return self.store.workflows.describe(workflow_id).run_id


def parks(*names: str, consumed: Sequence[int] = (), wants_more: bool = False) -> TurnOutcome:
    """The outcome of a turn that goes on and waits for these names."""
    return TurnOutcome(
        status=WorkflowStatus.RUNNING,
        state_json='{"did":"something"}',
        consumed=tuple(consumed),
        waits=tuple((name, None) for name in names),
        wants_more=wants_more,
    )


def completes(consumed: Sequence[int] = ()) -> TurnOutcome:
    """The outcome of a turn that ends its workflow."""
    return TurnOutcome(status=WorkflowStatus.COMPLETED, state_json="{}", consumed=tuple(consumed), result='"well"')
