"""The passes' targets on this store: renewal, reclaim and signal poll, with the dispatch that follows a move.

A target of a shard lists that shard and nothing else; its writes know no shards.
"""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias

from weft_tasks.events import Events
from weft_tasks.model import HeldClaim, TurnMessage
from weft_tasks.results import Answer, ReclaimStatus, TakeoverAttempt
from weft_tasks.shards import WHOLE, Shard
from weft_tasks.store.claims import Claims, Grant, Move, TakeoverAnswer, attempted_claim
from weft_tasks.store.engines import Engines
from weft_tasks.store.lifecycle import Changed, Lifecycle, OverdueEnd
from weft_tasks.store.signals import ReadyWait, Signals
from weft_tasks.store.updates import PendingUpdate, Updates
from weft_tasks.store.workflows import CandidateKind, EngineLoad, ReclaimCandidate, Workflows, may_be_cut

SendTurn = Callable[[TurnMessage], bool]


class StoreRenewal:
    """Renews every claim in the shard, whoever holds it, slice by slice (O3)."""

    def __init__(self, claims: Claims, shard: Shard = WHOLE) -> None:
        self._claims = claims
        self._shard = shard

    def list_held_workflow_ids(self) -> Sequence[HeldClaim]:
        return self._claims.list_held(self._shard)

    def renew_workflow_claim(self, claim: HeldClaim) -> Answer:
        return self._claims.renew(claim)

    def renew_workflow_claims(self, claims: Sequence[HeldClaim]) -> Sequence[Answer]:
        return self._claims.renew_all(claims)


class StoreReclaim:
    """Moves, places or dispatches again what the reclaim list nominates. Made anew for each pass: it counts loads."""

    def __init__(
        self,
        *,
        workflows: Workflows,
        claims: Claims,
        engines: Engines,
        send_turn: SendTurn,
        rng: random.Random,
        events: Events | None = None,
        shard: Shard = WHOLE,
    ) -> None:
        self._shard = shard
        self._workflows = workflows
        self._claims = claims
        self._engines = engines
        self._send_turn = send_turn
        self._rng = rng
        self._events = events or Events()
        self._placement = Placement((), ())

    def list_reclaim_candidate_workflow_ids(self) -> Sequence[ReclaimCandidate]:
        """In random order, so that candidates which always fail never keep the others waiting."""
        candidates = list(self._workflows.list_reclaim_candidates(self._shard))
        self._rng.shuffle(candidates)
        if any(candidate.kind is not CandidateKind.OVERDUE for candidate in candidates):
            self._placement = Placement(self._list_targets(candidates), candidates)
        return candidates

    def _list_targets(self, candidates: Sequence[ReclaimCandidate]) -> list[EngineLoad]:
        """Without those that this pass, a later part of it, or one of another shard, finds deaf: two of them would take
        each other's workflows (O12)."""
        found_deaf = {candidate.engine_id for candidate in candidates if candidate.kind is CandidateKind.DEAF_HOLDER}
        if may_be_cut(len(candidates)) or not self._shard.is_whole:
            found_deaf |= self._workflows.list_deaf_holders()
        loads = self._workflows.list_engines_taking_work(self._shard)
        return [load for load in loads if load.engine_id not in found_deaf]

    def attempt_workflow_claim_takeover(self, candidate: ReclaimCandidate) -> TakeoverAttempt:
        if candidate.kind is CandidateKind.OVERDUE:
            return self._dispatch_again(candidate)
        target = self._placement.choose(candidate)
        if target is None and candidate.kind is CandidateKind.DEAF_HOLDER and candidate.is_overdue:
            # It may hear again, and without a message nothing would ever show that (O9).
            return self._dispatch_again(candidate)
        if target is None:
            return TakeoverAttempt(
                status=ReclaimStatus.NOT_ELIGIBLE,
                reason=f"no engine for {candidate.type!r} version {candidate.version} now",
            )
        try:
            grant = self._grant(candidate, target)
        except BaseException:
            self._placement.give_back(target)
            raise
        self._report(candidate, target, grant)
        if grant.answer is TakeoverAnswer.WON:
            self._mark_deaf([candidate])
            self._send_first(candidate, target, grant)
        elif grant.answer is TakeoverAnswer.NO_TARGET:
            self._placement.drop(target, candidate)
        elif grant.answer is TakeoverAnswer.NOT_ELIGIBLE:
            self._placement.give_back(target)
        return _ATTEMPTS[grant.answer]

    def attempt_workflow_claim_takeovers(
        self, candidates: Sequence[ReclaimCandidate]
    ) -> Sequence[TakeoverAttempt | None]:
        """Moves what of these can be moved at once. What only needs its message again, has no target, or was not won
        is tried alone."""
        chosen = {c.workflow_id: (c, target) for c in candidates if (target := self._choose_for_move(c)) is not None}
        moves = [Move(c.workflow_id, c.run_id, c.engine_id, c.epoch, target) for c, target in chosen.values()]
        grants: Mapping[str, Grant] = {}
        try:
            if moves:
                grants = self._claims.move_all(moves)
        finally:
            for move in moves:
                if move.workflow_id not in grants:
                    self._placement.give_back(move.target)
        won = [(*chosen[workflow_id], grant) for workflow_id, grant in grants.items()]
        self._mark_deaf(candidate for candidate, _target, _grant in won)
        for candidate, target, grant in won:
            self._report(candidate, target, grant)
            self._send_first(candidate, target, grant)
        return [_ATTEMPTS[TakeoverAnswer.WON] if c.workflow_id in grants else None for c in candidates]

    def _choose_for_move(self, candidate: ReclaimCandidate) -> str | None:
        return None if candidate.kind is CandidateKind.OVERDUE else self._placement.choose(candidate)

    def _grant(self, candidate: ReclaimCandidate, target: str) -> Grant:
        if candidate.engine_id is None:
            return self._claims.acquire(
                candidate.workflow_id, candidate.run_id, candidate.epoch, target, must_be_due=False
            )
        return self._claims.take_over(
            candidate.workflow_id, candidate.run_id, candidate.engine_id, candidate.epoch, target
        )

    def _report(self, candidate: ReclaimCandidate, target: str, grant: Grant) -> None:
        attempted = attempted_claim(
            candidate.workflow_id, candidate.run_id, candidate.epoch, target, grant, holder=candidate.engine_id
        )
        if attempted is not None:
            self._events.emit(attempted)

    def _mark_deaf(self, taken: Iterable[ReclaimCandidate]) -> None:
        deaf = {c.engine_id for c in taken if c.kind is CandidateKind.DEAF_HOLDER and c.engine_id is not None}
        for engine_id in sorted(deaf):
            self._engines.mark_deaf(engine_id)

    def _send_first(self, candidate: ReclaimCandidate, target: str, grant: Grant) -> None:
        if grant.is_due:
            # A parked workflow that moves stays parked: it gets no turn (O9).
            self._send_turn(replace(candidate.message, engine_id=target, epoch=grant.epoch, turn=grant.turn))

    def _dispatch_again(self, candidate: ReclaimCandidate) -> TakeoverAttempt:
        if not self._send_turn(candidate.message):
            return TakeoverAttempt(status=ReclaimStatus.ERROR, reason="the broker did not take the message")
        self._workflows.note_dispatch(candidate.message)
        return TakeoverAttempt(status=ReclaimStatus.REDISPATCHED)


_ATTEMPTS = {
    TakeoverAnswer.WON: TakeoverAttempt(status=ReclaimStatus.RECLAIMED),
    TakeoverAnswer.LOST: TakeoverAttempt(status=ReclaimStatus.LOST_RACE),
    TakeoverAnswer.NOT_ELIGIBLE: TakeoverAttempt(status=ReclaimStatus.NOT_ELIGIBLE, reason="its holder is alive again"),
    TakeoverAnswer.NO_TARGET: TakeoverAttempt(status=ReclaimStatus.LOST_RACE, reason="its target was lost", retry=True),
}


class Placement:
    """Who gets what: the least loaded engine that knows the type, loads counted as they are given out (O4).

    Planned for the whole list beforehand, in the order of the ids and without chance: two passes that run at the same
    time read the same list and make the same plan, and whoever of them wins a workflow, it goes where both of them
    counted it. An engine that lost the workflow within the cooldown comes last (O11).

    A plan for many candidates must not look at every engine for each: the engines wait in a queue for each type, least
    loaded first. An entry that is out of date is put right when it comes up, and one that has become too high has a
    second one before it.
    """

    def __init__(self, engines: Sequence[EngineLoad], candidates: Sequence[ReclaimCandidate]) -> None:
        self._loads = {engine.engine_id: engine.claims for engine in engines}
        self._types = {engine.engine_id: set(engine.types) for engine in engines}
        self._queues: dict[tuple[str, int], list[_Entry]] = {}
        self._lock = threading.Lock()
        self._planned: dict[str, str] = {}
        in_order = sorted(candidates, key=lambda candidate: candidate.workflow_id)
        first = in_order[0] if in_order else None
        self._dice = {id: _dice(id, first) for id in self._loads} if first is not None else {}
        for candidate in in_order:
            target = None if candidate.kind is CandidateKind.OVERDUE else self._give_out(candidate)
            if target is not None:
                self._planned[candidate.workflow_id] = target

    def choose(self, candidate: ReclaimCandidate) -> str | None:
        """The engine to try, with one more claim counted on it; None if no other engine knows the type."""
        with self._lock:
            planned = self._planned.pop(candidate.workflow_id, None)
            if planned is None:
                return self._give_out(candidate)
            if self._is_able(planned, candidate):
                return planned
            self._take_off(planned)
            return self._give_out(candidate)

    def give_back(self, engine_id: str) -> None:
        """The claim did not go there after all, nor anywhere else."""
        with self._lock:
            self._take_off(engine_id)

    def drop(self, engine_id: str, candidate: ReclaimCandidate) -> None:
        """The engine turned out not to take this type now: not offered again in this pass."""
        with self._lock:
            self._types[engine_id].discard((candidate.type, candidate.version))
            self._take_off(engine_id)

    def _give_out(self, candidate: ReclaimCandidate) -> str | None:
        target = self._least_loaded(candidate)
        if target is not None:
            self._loads[target] += 1
        return target

    def _least_loaded(self, candidate: ReclaimCandidate) -> str | None:
        kind = candidate.type, candidate.version
        queue = self._queue_of(kind)
        passed_over: list[_Entry] = []
        found = None
        while queue and found is None:
            load, dice, engine_id = queue[0]
            if kind not in self._types[engine_id]:
                heappop(queue)
            elif load != self._loads[engine_id]:
                heapreplace(queue, (self._loads[engine_id], dice, engine_id))
            elif engine_id in (candidate.engine_id, candidate.deposed_engine_id):
                passed_over.append(heappop(queue))
            else:
                found = engine_id
        for entry in passed_over:
            heappush(queue, entry)
        if found is None and any(engine_id != candidate.engine_id for _, _, engine_id in passed_over):
            return candidate.deposed_engine_id
        return found

    def _queue_of(self, kind: tuple[str, int]) -> list[_Entry]:
        if kind not in self._queues:
            self._queues[kind] = [self._entry(id) for id, types in self._types.items() if kind in types]
            heapify(self._queues[kind])
        return self._queues[kind]

    def _entry(self, engine_id: str) -> _Entry:
        return self._loads[engine_id], self._dice.get(engine_id, 0), engine_id

    def _is_able(self, engine_id: str, candidate: ReclaimCandidate) -> bool:
        return (candidate.type, candidate.version) in self._types[engine_id] and engine_id != candidate.engine_id

    def _take_off(self, engine_id: str) -> None:
        self._loads[engine_id] -= 1
        for kind in self._types[engine_id]:
            heappush(self._queue_of(kind), self._entry(engine_id))


_Entry: TypeAlias = tuple[int, int, str]
"""Load, dice, engine id."""


def _dice(engine_id: str, first: ReclaimCandidate) -> int:
    """Breaks ties as chance would, for another list otherwise, but in every process alike."""
    return zlib.crc32(f"{first.workflow_id} {first.epoch} {engine_id}".encode())


class StoreSignalPoll:
    """Wakes the parked workflows that have something to run for, and tells their owners."""

    def __init__(self, signals: Signals, send_turn: SendTurn, shard: Shard = WHOLE) -> None:
        self._signals = signals
        self._send_turn = send_turn
        self._shard = shard

    def list_parked_signal_waits(self) -> Sequence[ReadyWait]:
        return self._signals.list_waiting(self._shard)

    def list_ready_signal_waits(self) -> Sequence[ReadyWait]:
        return self._signals.list_ready(self._shard)

    def has_buffered_signal(self, wait: ReadyWait) -> bool:
        return self._signals.has_buffered(wait)

    def wake_workflow(self, wait: ReadyWait) -> Answer:
        answer, message = self._signals.wake(wait)
        if message is not None:
            self._send_turn(message)
        return answer


class StoreDeadlinePoll:
    """The signal poll, which also ends the workflows whose time is up."""

    def __init__(
        self,
        wakes: StoreSignalPoll,
        lifecycle: Lifecycle,
        follow_up: Callable[[Changed], None],
        shard: Shard = WHOLE,
    ) -> None:
        self._wakes = wakes
        self._lifecycle = lifecycle
        self._follow_up = follow_up
        self._shard = shard

    def list_parked_signal_waits(self) -> Sequence[ReadyWait | OverdueEnd]:
        return (*self._lifecycle.list_overdue_ends(self._shard), *self._wakes.list_parked_signal_waits())

    def list_ready_signal_waits(self) -> Sequence[ReadyWait | OverdueEnd]:
        return (*self._lifecycle.list_overdue_ends(self._shard), *self._wakes.list_ready_signal_waits())

    def has_buffered_signal(self, wait: ReadyWait | OverdueEnd) -> bool:
        return isinstance(wait, OverdueEnd) or self._wakes.has_buffered_signal(wait)

    def wake_workflow(self, wait: ReadyWait | OverdueEnd) -> Answer:
        if not isinstance(wait, OverdueEnd):
            return self._wakes.wake_workflow(wait)
        answer, changed = self._lifecycle.end_overdue(wait)
        if changed is not None:
            self._follow_up(changed)
        return answer


class StoreUpdatePoll:
    """Wakes the parked workflows that have unanswered updates, and tells their owners."""

    def __init__(self, updates: Updates, send_turn: SendTurn, shard: Shard = WHOLE) -> None:
        self._updates = updates
        self._send_turn = send_turn
        self._shard = shard

    def list_held_workflow_ids(self) -> Sequence[PendingUpdate]:
        """Those with updates, no others: the list tells already what the question below would."""
        return self._updates.list_held_with_pending(self._shard)

    def list_workflows_with_pending_updates(self) -> Sequence[PendingUpdate]:
        return self._updates.list_held_with_pending(self._shard)

    def has_pending_updates(self, pending: PendingUpdate) -> bool:
        return True

    def drain_pending_updates(self, pending: PendingUpdate) -> Answer:
        answer, message = self._updates.wake(pending)
        if message is not None:
            self._send_turn(message)
        return answer
