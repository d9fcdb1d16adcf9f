"""Engines in virtual time, and a store in memory that answers the real reclaim pass about them.

Who is alive when follows from the engines' lives, which a scenario lays down beforehand. The store keeps holders and
epochs, applies the conditions of O4 and O5 to each move, and takes the processor time that the real one took.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf

from benchmarks.scaling.cores import Cores
from benchmarks.scaling.costs import Costs, Work
from weft_tasks.errors import StoreUnavailable
from weft_tasks.settings import Settings
from weft_tasks.shards import BUCKETS, Shard, bucket_of, shards_of
from weft_tasks.store.claims import SLICE, Grant, Move, TakeoverAnswer
from weft_tasks.store.workflows import MOST_CANDIDATES, CandidateKind, EngineLoad, ReclaimCandidate

TYPES = frozenset({("order", 1)})
MOVE_STATEMENTS, LIST_STATEMENTS = 5, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One incarnation of an engine, in seconds of virtual time; it beats from `born_at` on."""

    engine_id: str
    born_at: float = 0.0
    ends_at: float = inf
    is_clean: bool = True
    """SIGTERM: it drains, releases what it holds and then stops. Else kill -9: it only falls silent."""
    noticed_at: float = inf
    """When a successor under its node name marks it stopped."""

    def takes_work(self, at: float, settings: Settings) -> bool:
        """O4: live, and its heartbeat at most G old."""
        if not self.born_at <= at < self.noticed_at or (self.is_clean and at >= self.ends_at):
            return False
        return self._silence(at, settings) <= settings.grace.total_seconds()

    def is_silent(self, at: float, settings: Settings) -> bool:
        """O4: silent for more than T + G, or marked stopped by its successor."""
        if self.is_clean:
            return False  # It beats until it has released everything.
        return at >= self.noticed_at or self._silence(at, settings) > settings.silence_limit.total_seconds()

    def _silence(self, at: float, settings: Settings) -> float:
        every = settings.heartbeat_interval.total_seconds()
        return at - (self.born_at + (min(at, self.ends_at) - self.born_at) // every * every)


class VirtualClock:
    """Stands still until something takes its time."""

    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> datetime:
        return datetime.fromtimestamp(0, UTC) + timedelta(seconds=self.at)

    def monotonic(self) -> float:
        return self.at


@dataclass(slots=True, kw_only=True)
class Load:
    """What the store was asked to do, by the second."""

    statements: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    log_bytes: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, begun: float, ended: float, statements: float, log_bytes: float) -> None:
        seconds = range(int(begun), int(ended) + 1)
        for second in seconds:
            self.statements[second] += statements / len(seconds)
            self.log_bytes[second] += log_bytes / len(seconds)


@dataclass(slots=True, kw_only=True)
class Machines:
    """The store's cores, and those of the hosts that run passes; one object for both if they share a machine."""

    store: Cores
    maintenance: Cores
    width: int
    load: Load = field(default_factory=Load)

    def spend(self, begun: float, work: Work, statements: float) -> float:
        """When it is done. A pass is one process, so its Python uses one core; its 16 threads ask the store side by
        side for what that has prepared."""
        quickest = max(work.client_s, work.server_s / self.width)
        done = self.store.serve(begun, work.server_s, quickest)
        done = max(done, self.maintenance.serve(begun, work.client_s, quickest))
        self.load.add(begun, done, statements, work.log_bytes)
        return done


class Fleet:
    """Who holds what, and since when a workflow has no living holder."""

    def __init__(self, workflows: int, lives: Sequence[Life], settings: Settings, rng: random.Random) -> None:
        self.settings = settings
        self.lives = {life.engine_id: life for life in lives}
        self.ids = [f"order-{number:07}" for number in range(workflows)]
        self.number_of = {id: number for number, id in enumerate(self.ids)}
        shard_of_bucket = [k for k, shard in enumerate(shards_of(settings.shards)) for _ in shard.buckets]
        assert len(shard_of_bucket) == BUCKETS
        self.shards = [shard_of_bucket[bucket_of(id)] for id in self.ids]
        first = [life.engine_id for life in lives if life.born_at <= 0]
        self.holders: list[str | None] = [first[number % len(first)] for number in range(workflows)]
        self.epochs = [1] * workflows
        self.held: defaultdict[str, set[int]] = defaultdict(set)
        for number, holder in enumerate(self.holders):
            self.held[holder or ""].add(number)
        self.loads = Counter(zip(self.holders, self.shards, strict=True))
        self.unowned: defaultdict[int, set[int]] = defaultdict(set)
        self.orphaned_at: dict[int, float] = {}
        self.recovered_s: list[float] = []
        self.moved: Counter[int] = Counter()
        self.rng = rng

    def end(self, life: Life, at: float) -> None:
        """From now on nobody alive runs what it held."""
        for number in self.held[life.engine_id]:
            self.orphaned_at.setdefault(number, at)

    def release(self, life: Life, at: float) -> None:
        """A clean stop has let go of everything (O6)."""
        self.end(life, life.ends_at)
        for number in self.held.pop(life.engine_id, set()):
            self.holders[number] = None
            self.loads[life.engine_id, self.shards[number]] -= 1
            self.unowned[self.shards[number]].add(number)

    def candidates(self, shard: Shard, at: float) -> list[int]:
        """Those of the shard, of which the list takes some by chance if they are too many."""
        found = [
            number
            for engine_id, held in self.held.items()
            if held and self.lives[engine_id].is_silent(at, self.settings)
            for number in held
            if self.shards[number] == shard.index
        ]
        return sorted((*found, *self.unowned[shard.index]))

    def move(self, move: Move, at: float) -> TakeoverAnswer:
        """O4 and O5, for what the move names."""
        number = self.number_of[move.workflow_id]
        if (self.holders[number], self.epochs[number]) != (move.holder, move.epoch):
            return TakeoverAnswer.LOST
        if not self.lives[move.target].takes_work(at, self.settings):
            return TakeoverAnswer.NO_TARGET
        if move.holder is not None and not self.lives[move.holder].is_silent(at, self.settings):
            return TakeoverAnswer.NOT_ELIGIBLE
        self._give(number, move.target, at)
        return TakeoverAnswer.WON

    def _give(self, number: int, target: str, at: float) -> None:
        holder = self.holders[number]
        if holder is None:
            self.unowned[self.shards[number]].discard(number)
        else:
            self.held[holder].discard(number)
            self.loads[holder, self.shards[number]] -= 1
        self.holders[number] = target
        self.loads[target, self.shards[number]] += 1
        self.held[target].add(number)
        self.epochs[number] += 1
        self.moved[number] += 1
        if self.lives[target].ends_at > at and number in self.orphaned_at:
            # Given to one that is dead and not yet silent, it still waits.
            self.recovered_s.append(at - self.orphaned_at.pop(number))


class StoreOfFleet:
    """What `StoreReclaim` asks workflows, claims and engines about, in one pass over one shard."""

    def __init__(self, fleet: Fleet, shard: Shard, clock: VirtualClock, costs: Costs, machines: Machines) -> None:
        self._fleet, self._shard, self._clock = fleet, shard, clock
        self._costs, self._machines = costs, machines

    # -- workflows

    def list_reclaim_candidates(self, _shard: Shard) -> tuple[ReclaimCandidate, ...]:
        """Raises StoreUnavailable if the statement would take longer than one may."""
        begun, waiting = self._clock.at, self._fleet.candidates(self._shard, self._clock.at)
        limit = self._fleet.settings.statement_timeout.total_seconds()
        self._spend(self._costs.waiting * len(waiting), LIST_STATEMENTS)
        if self._clock.at - begun > limit:
            self._clock.at = begun + limit
            raise StoreUnavailable("canceling statement due to statement timeout")
        if len(waiting) > MOST_CANDIDATES:
            waiting = self._fleet.rng.sample(waiting, MOST_CANDIDATES)
        self._spend(self._costs.listed * len(waiting), 0)
        return tuple(map(self._candidate, waiting))

    def _candidate(self, number: int) -> ReclaimCandidate:
        holder = self._fleet.holders[number]
        return ReclaimCandidate(
            kind=CandidateKind.UNOWNED if holder is None else CandidateKind.SILENT_HOLDER,
            workflow_id=self._fleet.ids[number],
            run_id="run",
            type="order",
            engine_id=holder,
            epoch=self._fleet.epochs[number],
            turn=1,
        )

    def list_deaf_holders(self) -> frozenset[str]:
        return frozenset()

    def list_engines_taking_work(self, _shard: Shard) -> tuple[EngineLoad, ...]:
        """Loads are those of the shard, as in the store, which counts over all."""
        fleet = self._fleet
        self._spend(self._costs.counted * len(fleet.ids), 2)
        return tuple(
            EngineLoad(engine_id=id, types=TYPES, claims=fleet.loads[id, self._shard.index])
            for id, life in fleet.lives.items()
            if life.takes_work(self._clock.at, fleet.settings)
        )

    # -- claims

    def move_all(self, moves: Sequence[Move]) -> dict[str, Grant]:
        self._spend(self._costs.move * len(moves), MOVE_STATEMENTS * len(moves) / SLICE)
        answers = {move: self._fleet.move(move, self._clock.at) for move in moves}
        return {
            move.workflow_id: Grant(answer=answer, epoch=move.epoch + 1, turn=1)
            for move, answer in answers.items()
            if answer is TakeoverAnswer.WON
        }

    def acquire(self, workflow_id: str, run_id: str, epoch: int, target: str, *, must_be_due: bool) -> Grant:
        return self._alone(Move(workflow_id, run_id, None, epoch, target))

    def take_over(self, workflow_id: str, run_id: str, holder: str, epoch: int, target: str) -> Grant:
        return self._alone(Move(workflow_id, run_id, holder, epoch, target))

    def _alone(self, move: Move) -> Grant:
        self._spend(self._costs.move, MOVE_STATEMENTS)
        return Grant(answer=self._fleet.move(move, self._clock.at), epoch=move.epoch + 1, turn=1)

    def _spend(self, work: Work, statements: float) -> None:
        self._clock.at = self._machines.spend(self._clock.at, work, statements)
