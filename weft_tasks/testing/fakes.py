"""Claims in memory, under a clock that a test moves: the rules of ownership without a database.

`FakeClaims` answers the verbs of the store's claims and engines as the store does (one contract suite runs on both),
and hands out the targets of the passes. Its rows are public: a test arranges what it needs and looks at what came.
"""

from __future__ import annotations

import functools
import random
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Concatenate, ParamSpec, TypeVar, cast

from weft_tasks.errors import DuplicateNodeError, StoreUnavailable, WorkflowAlreadyExists
from weft_tasks.model import EngineStatus, HeldClaim, TurnMessage, WorkflowStatus
from weft_tasks.passes.targets import Targets
from weft_tasks.results import Answer
from weft_tasks.settings import Settings
from weft_tasks.shards import WHOLE, Shard
from weft_tasks.store.claims import Claims, Grant, TakeoverAnswer
from weft_tasks.store.engines import Engines, HeartbeatAnswer
from weft_tasks.store.liveness import BACKOFF_AFTER_MAX
from weft_tasks.store.signals import ReadyWait, Signals
from weft_tasks.store.targets import StoreReclaim, StoreRenewal, StoreSignalPoll
from weft_tasks.store.workflows import CandidateKind, EngineLoad, ReclaimCandidate, Workflows

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class FakeEngine:
    """An engine's row. Times named `…_witnessed` are of the witnessed clock."""

    id: str
    node: str
    types: frozenset[str]
    free_slots: int
    heartbeat_at: datetime
    heartbeat_witnessed: timedelta
    status: EngineStatus = EngineStatus.LIVE
    beat: int = 0
    in_hand: frozenset[str] = frozenset()
    in_hand_before: frozenset[str] = frozenset()
    is_deaf: bool = False


@dataclass(slots=True, kw_only=True)
class FakeWorkflow:
    """A workflow's row, as far as ownership is concerned."""

    id: str
    type: str
    run_id: str
    status: WorkflowStatus = WorkflowStatus.RUNNING
    engine_id: str | None = None
    epoch: int = 0
    turn: int = 0
    attempt: int = 0
    is_due: bool = True
    dispatched_witnessed: timedelta | None = None
    dispatches: int = 0
    unanswered: int = 0
    attempt_open: bool = False
    attempt_task: str = ""
    attempt_beat: int = 0
    begun: int = 0
    waits: dict[str, datetime | None] = field(default_factory=dict)
    signals: list[str] = field(default_factory=list)
    """The names of the signals that are buffered, oldest first."""
    updates: int = 0
    deposed_engine_id: str | None = None
    deposed_witnessed: timedelta = timedelta(0)

    @property
    def is_parked(self) -> bool:
        return self.status is WorkflowStatus.RUNNING and not self.is_due and not self.attempt_open


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeClaim:
    """A claim's row."""

    engine_id: str
    epoch: int
    claimed_at: datetime
    expires_at: datetime


def _verb(
    method: Callable[Concatenate[FakeClaims, P], T],
) -> Callable[Concatenate[FakeClaims, P], T]:
    """One transaction: whole, alone, and unknown while the fake is down (O8)."""

    @functools.wraps(method)
    def run(self: FakeClaims, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            if self.is_down:
                raise StoreUnavailable("the store did not answer: the fake is down")
            return method(self, *args, **kwargs)

    return run


class FakeClaims:
    """Workflows, engines and claims in memory.

    Time stands still until `advance`. While `is_down`, every verb raises StoreUnavailable. Messages that the targets
    send are kept in `sent`. Safe for the threads of a pass.
    """

    def __init__(self, settings: Settings | None = None, *, seed: int = 0) -> None:
        self.settings = settings or Settings()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.workflows: dict[str, FakeWorkflow] = {}
        self.engines: dict[str, FakeEngine] = {}
        self.claims: dict[str, FakeClaim] = {}
        self.sent: list[TurnMessage] = []
        self.is_down = False
        self._witnessed = timedelta(0)
        self._advanced_at = datetime.min.replace(tzinfo=UTC)
        self._rng = random.Random(seed)
        self._lock = threading.RLock()

    def advance(self, duration: timedelta) -> None:
        """Move the clock by `duration`, which may be negative: a step of the database's clock."""
        self.now += duration

    def targets(self) -> Targets:
        """The targets of one round of passes: made anew for each, because the reclaim counts the loads it gives out."""
        store_claims = cast("Claims", self)
        return Targets(
            renewal=StoreRenewal(store_claims),
            reclaim=StoreReclaim(
                workflows=cast("Workflows", self),
                claims=store_claims,
                engines=cast("Engines", self),
                send_turn=self._send_turn,
                rng=self._rng,
            ),
            signals=StoreSignalPoll(cast("Signals", self), self._send_turn),
            updates=self,
        )

    # -- arranging workflows

    @_verb
    def start(self, workflow_id: str, type_name: str) -> TurnMessage:
        """A running workflow that is due and has no holder; returns the message that offers it to any engine."""
        if workflow_id in self.workflows:
            raise WorkflowAlreadyExists(workflow_id, self.workflows[workflow_id].status)
        row = FakeWorkflow(
            id=workflow_id, type=type_name, run_id=uuid.uuid4().hex, dispatched_witnessed=self.witnessed_now()
        )
        self.workflows[workflow_id] = row
        return self.message_for(workflow_id)

    def message_for(self, workflow_id: str) -> TurnMessage:
        """The message that matches the row as it is now."""
        row = self.workflows[workflow_id]
        return TurnMessage(
            workflow_id=row.id, run_id=row.run_id, engine_id=row.engine_id, epoch=row.epoch, turn=row.turn
        )

    @_verb
    def open_attempt(self, workflow_id: str, task_id: str) -> None:
        """The holder begins the workflow's turn; its heartbeats are to name `task_id` until the turn ends."""
        row = self.workflows[workflow_id]
        engine = self.engines[row.engine_id or ""]
        row.attempt, row.attempt_open = row.attempt + 1, True
        row.attempt_task, row.attempt_beat = task_id, engine.beat
        row.begun += 1
        row.dispatches = row.unanswered = 0
        engine.is_deaf = False

    @_verb
    def park(self, workflow_id: str, *names: str, timeout: timedelta | None = None) -> None:
        """The turn commits and waits for signals of these names; a draining engine lets go of the workflow (O6)."""
        row = self.workflows[workflow_id]
        row.waits = dict.fromkeys(names, None if timeout is None else self.now + timeout)
        row.turn, row.begun, row.is_due = row.turn + 1, 0, False
        self.close_attempt(row)

    @_verb
    def end(self, workflow_id: str, status: WorkflowStatus = WorkflowStatus.COMPLETED) -> None:
        """The turn commits an ending, and with it deletes the holder (O6)."""
        row = self.workflows[workflow_id]
        row.status, row.turn, row.begun, row.is_due = status, row.turn + 1, 0, False
        self.close_attempt(row)
        self._let_go(row)

    def close_attempt(self, row: FakeWorkflow) -> None:
        """What every ending of an attempt does, whatever it commits."""
        row.attempt_open = False
        row.dispatched_witnessed = self.witnessed_now() if row.is_due and self._is_live(row.engine_id) else None
        if not self._is_live(row.engine_id):
            self._let_go(row)

    # -- the witnessed clock

    def witnessed_now(self) -> timedelta:
        """Moved by the heartbeats alone: the time since the latest of any engine, from none to one renew interval."""
        since = max(self.now - self._advanced_at, timedelta(0))
        return self._witnessed + min(since, self.settings.renew_interval)

    def _advance_witnessed_clock(self) -> None:
        self._witnessed, self._advanced_at = self.witnessed_now(), self.now

    # -- engines

    @_verb
    def register(self, engine_id: str, *, node: str, host: str, pid: int, types: Iterable[str], slots: int) -> None:
        """A live engine that knows these types. Raises DuplicateNodeError while another live one has the node name."""
        taken = self.live_on(node)
        if taken is not None or engine_id in self.engines:
            raise DuplicateNodeError(node, taken or "unknown", engine_id)
        self._advance_witnessed_clock()
        self.engines[engine_id] = FakeEngine(
            id=engine_id,
            node=node,
            types=frozenset(types),
            free_slots=slots,
            heartbeat_at=self.now,
            heartbeat_witnessed=self._witnessed,
        )

    @_verb
    def heartbeat(self, engine_id: str, *, free_slots: int, in_hand: Sequence[str]) -> HeartbeatAnswer:
        """The engine's proof of life (O3)."""
        self._advance_witnessed_clock()
        engine = self.engines.get(engine_id)
        if engine is None or engine.status is EngineStatus.STOPPED:
            return HeartbeatAnswer.GONE
        engine.heartbeat_at, engine.heartbeat_witnessed = self.now, self._witnessed
        engine.beat += 1
        engine.free_slots = free_slots
        engine.in_hand_before, engine.in_hand = engine.in_hand, frozenset(in_hand)
        return HeartbeatAnswer.DRAINING if engine.status is EngineStatus.DRAINING else HeartbeatAnswer.ALIVE

    @_verb
    def drain(self, engine_id: str) -> None:
        """From now on the engine is offered nothing and begins nothing (O6)."""
        if self._is_live(engine_id):
            self.engines[engine_id].status = EngineStatus.DRAINING

    @_verb
    def stop(self, engine_id: str) -> None:
        """The engine is silent at once (O6)."""
        if engine_id in self.engines:
            self.engines[engine_id].status = EngineStatus.STOPPED
            self.engines[engine_id].in_hand = frozenset()

    @_verb
    def mark_deaf(self, engine_id: str) -> None:
        """O12: offered nothing until a turn begins there."""
        if engine_id in self.engines:
            self.engines[engine_id].is_deaf = True

    def live_on(self, node: str) -> str | None:
        live = (e.id for e in self.engines.values() if e.node == node and e.status is EngineStatus.LIVE)
        return next(live, None)

    def _is_live(self, engine_id: str | None) -> bool:
        engine = self.engines.get(engine_id or "")
        return engine is not None and engine.status is EngineStatus.LIVE

    # -- the conditions

    def is_silent(self, engine_id: str) -> bool:
        """O4: silent for more than T + G of witnessed time, stopped, or without a row."""
        engine = self.engines.get(engine_id)
        if engine is None or engine.status is EngineStatus.STOPPED:
            return True
        return engine.heartbeat_witnessed + self.settings.silence_limit < self.witnessed_now()

    def takes_work(self, engine_id: str) -> bool:
        """O4, O12: live, not deaf, and its heartbeat at most G old by either clock."""
        engine, grace = self.engines.get(engine_id), self.settings.grace
        return (
            engine is not None
            and engine.status is EngineStatus.LIVE
            and not engine.is_deaf
            and engine.heartbeat_at + grace >= self.now
            and engine.heartbeat_witnessed + grace >= self.witnessed_now()
        )

    def holder_is_deaf(self, row: FakeWorkflow) -> bool:
        """O12: its dispatches went unanswered too often, or once by an engine found deaf already."""
        holder = self.engines.get(row.engine_id or "")
        enough = 1 if holder is not None and holder.is_deaf else self.settings.deaf_after
        return row.is_due and not self.attempt_runs(row) and row.unanswered >= enough

    def attempt_runs(self, row: FakeWorkflow) -> bool:
        """O9: an attempt is open, and it is not so that two heartbeats in a row did not name it."""
        engine = self.engines.get(row.engine_id or "")
        if not row.attempt_open or engine is None:
            return row.attempt_open
        return engine.beat < row.attempt_beat + 2 or row.attempt_task in engine.in_hand | engine.in_hand_before

    def dispatch_is_overdue(self, row: FakeWorkflow) -> bool:
        """O9: never sent, or more than R ago; R doubles after each (T + G)/R dispatches."""
        if row.dispatched_witnessed is None:
            return True
        doublings = min(row.dispatches // self.settings.deaf_after - 1, BACKOFF_AFTER_MAX)
        wait = self.settings.renew_interval * (1 << max(doublings, 0))
        return row.dispatched_witnessed + wait < self.witnessed_now()

    # -- acquire and takeover

    @_verb
    def acquire(self, workflow_id: str, run_id: str, epoch: int, engine_id: str, *, must_be_due: bool = True) -> Grant:
        """Give a running workflow without a holder to `engine_id`, under the next epoch (O5)."""

        def may(row: FakeWorkflow) -> bool:
            return row.is_due or not must_be_due

        return self._grant(workflow_id, run_id, epoch, holder=None, target=engine_id, may=may)

    @_verb
    def take_over(self, workflow_id: str, run_id: str, holder: str, epoch: int, target: str) -> Grant:
        """Move a running workflow from a silent or deaf holder to `target`, under the next epoch (O4)."""

        def may(row: FakeWorkflow) -> bool:
            return self.is_silent(holder) or self.holder_is_deaf(row)

        return self._grant(workflow_id, run_id, epoch, holder=holder, target=target, may=may)

    def _grant(
        self,
        workflow_id: str,
        run_id: str,
        epoch: int,
        *,
        holder: str | None,
        target: str,
        may: Callable[[FakeWorkflow], bool],
    ) -> Grant:
        row = self.workflows.get(workflow_id)
        if row is None or (row.run_id, row.engine_id, row.epoch) != (run_id, holder, epoch):
            return Grant(answer=TakeoverAnswer.LOST)
        if not self.takes_work(target) or row.type not in self.engines[target].types:
            return Grant(answer=TakeoverAnswer.NO_TARGET)
        if row.status is not WorkflowStatus.RUNNING or not may(row):
            return Grant(answer=TakeoverAnswer.NOT_ELIGIBLE)
        row.engine_id, row.epoch = target, row.epoch + 1
        row.attempt_open = False
        row.dispatches = row.unanswered = 0
        row.dispatched_witnessed = self.witnessed_now() if row.is_due else None
        if holder is not None:
            row.deposed_engine_id, row.deposed_witnessed = holder, self.witnessed_now()
        expires_at = self.engines[target].heartbeat_at + self.settings.claim_ttl
        self.claims[row.id] = FakeClaim(engine_id=target, epoch=row.epoch, claimed_at=self.now, expires_at=expires_at)
        return Grant(
            answer=TakeoverAnswer.WON,
            epoch=row.epoch,
            turn=row.turn,
            is_due=row.is_due,
            silent_for=self._silent_for(holder),
        )

    def _silent_for(self, holder: str | None) -> timedelta | None:
        lost = None if holder is None else self.engines.get(holder)
        return self.now - lost.heartbeat_at if lost is not None and self.is_silent(lost.id) else None

    # -- renew

    @_verb
    def list_held(self, shard: Shard = WHOLE) -> tuple[HeldClaim, ...]:
        return tuple(
            HeldClaim(workflow_id=workflow_id, engine_id=claim.engine_id, epoch=claim.epoch)
            for workflow_id, claim in self.claims.items()
            if shard.has(workflow_id)
        )

    def renew(self, claim: HeldClaim) -> Answer:
        """Set the claim's expiry to its holder's last heartbeat + T; late is fine (O3)."""
        try:
            return self.renew_all((claim,))[0]
        except StoreUnavailable:
            return Answer.UNKNOWN

    @_verb
    def renew_all(self, wanted: Sequence[HeldClaim]) -> tuple[Answer, ...]:
        return tuple(self._renew(claim) for claim in wanted)

    def _renew(self, wanted: HeldClaim) -> Answer:
        claim = self.claims.get(wanted.workflow_id)
        if claim is None or (claim.engine_id, claim.epoch) != (wanted.engine_id, wanted.epoch):
            return Answer.LOST
        engine = self.engines.get(claim.engine_id)
        self.claims[wanted.workflow_id] = FakeClaim(
            engine_id=claim.engine_id,
            epoch=claim.epoch,
            claimed_at=claim.claimed_at,
            expires_at=claim.expires_at if engine is None else engine.heartbeat_at + self.settings.claim_ttl,
        )
        return Answer.WON

    # -- release

    def release(self, claim: HeldClaim) -> Answer:
        """Delete the holder, keep the epoch (O6). LOST while an attempt is open."""
        try:
            return self._release_one(claim)
        except StoreUnavailable:
            return Answer.UNKNOWN

    @_verb
    def _release_one(self, claim: HeldClaim) -> Answer:
        row = self.workflows.get(claim.workflow_id)
        if row is None or row.attempt_open or (row.engine_id, row.epoch) != (claim.engine_id, claim.epoch):
            return Answer.LOST
        self._let_go(row)
        return Answer.WON

    @_verb
    def release_idle(self, engine_id: str) -> int:
        """Release what the engine holds and does not run at this moment; returns how many."""
        return self._release_all(row for row in self._held_by(engine_id) if not row.attempt_open)

    @_verb
    def release_all(self, engine_id: str) -> int:
        """Release all that the engine holds; a turn that is open does not count as begun (O11)."""
        return self._release_all(self._held_by(engine_id))

    def _release_all(self, rows: Iterable[FakeWorkflow]) -> int:
        released = list(rows)
        for row in released:
            row.begun -= row.attempt_open
            row.attempt_open = False
            self._let_go(row)
        return len(released)

    def _held_by(self, engine_id: str) -> list[FakeWorkflow]:
        return [row for row in self.workflows.values() if row.engine_id == engine_id]

    def _let_go(self, row: FakeWorkflow) -> None:
        row.engine_id = row.dispatched_witnessed = None
        row.dispatches = row.unanswered = 0
        self.claims.pop(row.id, None)

    # -- what the reclaim pass reads

    @_verb
    def list_reclaim_candidates(self, shard: Shard = WHOLE) -> tuple[ReclaimCandidate, ...]:
        found = ((row, self._candidate_kind(row)) for row in self.workflows.values() if shard.has(row.id))
        return tuple(self._candidate(row, kind) for row, kind in found if kind is not None)

    def _candidate_kind(self, row: FakeWorkflow) -> CandidateKind | None:
        if row.status is not WorkflowStatus.RUNNING:
            return None
        if row.engine_id is None:
            is_left_to_its_message = row.is_due and not self.dispatch_is_overdue(row)
            return None if is_left_to_its_message else CandidateKind.UNOWNED
        if self.is_silent(row.engine_id):
            return CandidateKind.SILENT_HOLDER
        if self.holder_is_deaf(row):
            return CandidateKind.DEAF_HOLDER
        return CandidateKind.OVERDUE if self._is_overdue(row) else None

    def _is_overdue(self, row: FakeWorkflow) -> bool:
        is_held_and_due = row.engine_id is not None and row.is_due
        return is_held_and_due and not self.attempt_runs(row) and self.dispatch_is_overdue(row)

    def _candidate(self, row: FakeWorkflow, kind: CandidateKind) -> ReclaimCandidate:
        is_cooling = row.deposed_witnessed >= self.witnessed_now() - self.settings.claim_ttl
        return ReclaimCandidate(
            kind=kind,
            workflow_id=row.id,
            run_id=row.run_id,
            type=row.type,
            engine_id=row.engine_id,
            epoch=row.epoch,
            turn=row.turn,
            deposed_engine_id=row.deposed_engine_id if is_cooling else None,
            is_overdue=self._is_overdue(row),
        )

    @_verb
    def list_deaf_holders(self) -> frozenset[str]:
        candidates = self.list_reclaim_candidates()
        deaf = (c.engine_id for c in candidates if c.kind is CandidateKind.DEAF_HOLDER)
        return frozenset(engine_id for engine_id in deaf if engine_id is not None)

    @_verb
    def list_engines_taking_work(self, shard: Shard = WHOLE) -> tuple[EngineLoad, ...]:
        return tuple(
            EngineLoad(
                engine_id=engine.id,
                types=frozenset((name, 1) for name in engine.types),
                claims=sum(shard.has(row.id) for row in self._held_by(engine.id)),
            )
            for engine in self.engines.values()
            if self.takes_work(engine.id)
        )

    @_verb
    def note_dispatch(self, message: TurnMessage) -> None:
        """Count a message sent again; towards deafness only if the holder has beaten since, with free slots (O12)."""
        row = self.workflows.get(message.workflow_id)
        if row is None or self.message_for(row.id) != message or not row.is_due or self.attempt_runs(row):
            return
        holder, sent_before = self.engines.get(row.engine_id or ""), row.dispatched_witnessed
        row.dispatched_witnessed = self.witnessed_now()
        row.dispatches += 1
        if holder is not None and holder.free_slots > 0 and sent_before is not None:
            row.unanswered += holder.heartbeat_witnessed > sent_before

    def _send_turn(self, message: TurnMessage) -> bool:
        self.sent.append(message)
        return True

    # -- what the polls read

    @_verb
    def list_waiting(self, shard: Shard = WHOLE) -> tuple[ReadyWait, ...]:
        parked = [row for row in self.workflows.values() if row.is_parked and shard.has(row.id)]
        return tuple(self._wait(row, name) for row in parked for name in row.waits)

    @_verb
    def list_ready(self, shard: Shard = WHOLE) -> tuple[ReadyWait, ...]:
        ready: dict[str, ReadyWait] = {}
        for wait in self.list_waiting(shard):
            if wait.deadline_passed or wait.name in self.workflows[wait.workflow_id].signals:
                ready.setdefault(wait.workflow_id, wait)
        return tuple(ready.values())

    def _wait(self, row: FakeWorkflow, name: str) -> ReadyWait:
        passed = any(deadline is not None and deadline <= self.now for deadline in row.waits.values())
        return ReadyWait(workflow_id=row.id, run_id=row.run_id, turn=row.turn, name=name, deadline_passed=passed)

    @_verb
    def has_buffered(self, wait: ReadyWait) -> bool:
        row = self.workflows.get(wait.workflow_id)
        return row is not None and row.run_id == wait.run_id and wait.name in row.signals

    @_verb
    def wake(self, wait: ReadyWait) -> tuple[Answer, TurnMessage | None]:
        """Make the workflow due, if it is still parked at the same turn."""
        row = self.workflows.get(wait.workflow_id)
        if row is None or (row.run_id, row.turn) != (wait.run_id, wait.turn) or not row.is_parked:
            return Answer.LOST, None
        row.is_due = True
        if row.engine_id is None:
            return Answer.WON, None
        row.dispatched_witnessed = self.witnessed_now()
        return Answer.WON, self.message_for(row.id)

    @_verb
    def list_held_workflow_ids(self) -> tuple[HeldClaim, ...]:
        return self.list_held()

    @_verb
    def has_pending_updates(self, claim: HeldClaim) -> bool:
        return self.workflows[claim.workflow_id].updates > 0

    @_verb
    def drain_pending_updates(self, claim: HeldClaim) -> Answer:
        """Hand the pending updates to the holder by making the workflow due."""
        row = self.workflows[claim.workflow_id]
        if not row.updates or (row.engine_id, row.epoch) != (claim.engine_id, claim.epoch):
            return Answer.LOST
        row.updates, row.is_due = 0, True
        return Answer.WON
