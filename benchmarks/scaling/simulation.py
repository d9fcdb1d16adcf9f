"""The simulation: beat's ticks, the passes of each shard, engines that end and come back, in virtual time.

The reclaim pass is the product's own: `reclaim_claims` with `StoreReclaim` and its plan, over a store in memory. A
renewal changes no holder and no silence (O3), so of renewals and polls only the cost is simulated.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from benchmarks.scaling.cores import Cores
from benchmarks.scaling.costs import Costs
from benchmarks.scaling.fleet import Fleet, Life, Load, Machines, StoreOfFleet, VirtualClock
from weft_tasks.passes.clock import Deadline
from weft_tasks.passes.pool import OrderedPool
from weft_tasks.passes.reclaim import reclaim_claims
from weft_tasks.passes.renewal import SLICE as RENEWED_AT_ONCE
from weft_tasks.passes.sweep import PassContext
from weft_tasks.passes.work import NOT_REACHED, TRY_ALONE, Item, PoolReport, Result, Work
from weft_tasks.results import PassKind, PassStatus, ReclaimStatus
from weft_tasks.settings import Settings
from weft_tasks.shards import Shard, shards_of
from weft_tasks.store.claims import SLICE
from weft_tasks.store.targets import StoreReclaim
from weft_tasks.store.workflows import may_be_cut

RENEWAL_STATEMENTS = 2.0
"""For each slice: the renewal, and how it is to be planned. Begin and commit come with them."""
RELEASE_STATEMENTS = 5.0
HEARTBEAT_STATEMENTS = 4.0
POLL_STATEMENTS = 16.0
"""The four passes of a shard with nothing to do: their lists, and their marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run: a fleet, what happens to it, and the machines that there are."""

    workflows: int
    lives: Sequence[Life]
    lasts: float
    settings: Settings = field(default_factory=Settings)
    store_cores: float = 8
    maintenance_cores: float = 16
    seed: int = 1

    def machines(self, costs: Costs) -> Machines:
        """Heartbeats take their part of the store all the time."""
        engines = sum(life.born_at <= 0 for life in self.lives)
        beats = engines / self.settings.heartbeat_interval.total_seconds()
        return Machines(
            store=Cores(self.store_cores, reserved=beats * costs.heartbeat.server_s),
            maintenance=Cores(self.maintenance_cores),
            width=self.settings.pool_width,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One pass of one shard."""

    kind: PassKind
    shard: int
    begun: float
    took: float
    moved: int = 0
    status: PassStatus = PassStatus.COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    fleet: Fleet
    load: Load
    store: Cores
    passes: tuple[Ran, ...]
    skipped: int


def simulate(plan: Plan, costs: Costs) -> Outcome:
    return _Run(plan, costs).run()


def renewal_seconds(plan: Plan, costs: Costs) -> float:
    """How long the slowest shard's renewal pass takes, if all begin together and nothing cuts them off."""
    machines, share = plan.machines(costs), plan.workflows / plan.settings.shards
    statements = RENEWAL_STATEMENTS * share / RENEWED_AT_ONCE
    return max(machines.spend(0.0, costs.renewal * share, statements) for _ in range(plan.settings.shards))


class _Run:
    def __init__(self, plan: Plan, costs: Costs) -> None:
        self._plan, self._costs = plan, costs
        self._rng = random.Random(plan.seed)
        self._fleet = Fleet(plan.workflows, plan.lives, plan.settings, self._rng)
        self._machines = plan.machines(costs)
        self._shards = shards_of(plan.settings.shards)
        self._interval = plan.settings.renew_interval.total_seconds()
        self._deadline = plan.settings.pass_deadline.total_seconds()
        self._passes: list[Ran] = []
        self._skipped = 0
        self._latest: dict[tuple[PassKind, Shard], Ran] = {}
        self._asked: set[Shard] = set()
        self._order = itertools.count()
        self._events: list[tuple[float, int, str, Any]] = []

    def run(self) -> Outcome:
        self._plan_events()
        while self._events:
            at, _, what, about = heapq.heappop(self._events)
            getattr(self, f"_on_{what}")(at, about)
        return Outcome(
            fleet=self._fleet,
            load=self._machines.load,
            store=self._machines.store,
            passes=tuple(self._passes),
            skipped=self._skipped,
        )

    def _plan_events(self) -> None:
        for number in range(int(self._plan.lasts / self._interval) + 1):
            self._at(number * self._interval, "tick")
        for second in range(int(self._plan.lasts) + 1):
            self._at(second, "beats")
        for life in self._plan.lives:
            self._at(life.ends_at, "end", life)

    def _at(self, at: float, what: str, about: object = None) -> None:
        if at <= self._plan.lasts:
            heapq.heappush(self._events, (at, next(self._order), what, about))

    # -- what happens

    def _on_tick(self, at: float, _about: object) -> None:
        for shard in self._shards:
            self._machines.spend(at, self._costs.idle, POLL_STATEMENTS)
            self._renew(at, shard)
        for shard in self._shards:
            self._reclaim(at, shard, even_if_recent=False)

    def _on_beats(self, at: float, _about: object) -> None:
        """Their processor time is reserved; here they are counted."""
        alive = sum(life.born_at <= at < life.ends_at for life in self._plan.lives)
        beats = alive / self._plan.settings.heartbeat_interval.total_seconds()
        self._machines.load.add(at, at, HEARTBEAT_STATEMENTS * beats, self._costs.heartbeat.log_bytes * beats)

    def _on_end(self, at: float, life: Life) -> None:
        held = len(self._fleet.held[life.engine_id])
        self._fleet.end(life, at)
        if life.is_clean:
            # On the engine's own host: only the store's part meets the passes.
            work = self._costs.release * held
            done = self._machines.store.serve(at, work.server_s, max(work.client_s, work.server_s))
            self._machines.load.add(at, done, RELEASE_STATEMENTS * held / SLICE, work.log_bytes)
            self._at(done, "released", life)

    def _on_released(self, at: float, life: Life) -> None:
        """A clean stop asks for reclaim passes; one that runs already runs again right after (O6)."""
        self._fleet.release(life, at)
        for shard in self._shards:
            self._ask(shard, at)

    def _ask(self, shard: Shard, at: float) -> None:
        if shard not in self._asked:
            self._asked.add(shard)
            self._at(max(at, self._busy_until(PassKind.RECLAIM, shard)), "asked", shard)

    def _on_asked(self, at: float, shard: Shard) -> None:
        self._asked.discard(shard)
        self._reclaim(at, shard, even_if_recent=True)

    # -- passes

    def _busy_until(self, kind: PassKind, shard: Shard) -> float:
        latest = self._latest.get((kind, shard))
        return 0.0 if latest is None else latest.begun + latest.took

    def _may_begin(self, kind: PassKind, shard: Shard, at: float, *, even_if_recent: bool) -> bool:
        """The rules of a tick: not while the same pass runs, nor if it began less than R/2 ago."""
        latest = self._latest.get((kind, shard))
        is_running = self._busy_until(kind, shard) > at
        is_recent = latest is not None and at - latest.begun < self._interval / 2 and not even_if_recent
        self._skipped += is_running or is_recent
        return not (is_running or is_recent)

    def _renew(self, at: float, shard: Shard) -> None:
        """Slice by slice until all are renewed or the deadline is reached."""
        if not self._may_begin(PassKind.RENEWAL, shard, at, even_if_recent=False):
            return
        left, now = self._plan.workflows // self._plan.settings.shards, at
        while left > 0 and now - at < self._deadline:
            some = min(left, 4 * RENEWED_AT_ONCE)
            now = self._machines.spend(now, self._costs.renewal * some, RENEWAL_STATEMENTS * some / RENEWED_AT_ONCE)
            left -= some
        status = PassStatus.DEADLINE_REACHED if left else PassStatus.COMPLETED
        self._record(shard, Ran(kind=PassKind.RENEWAL, shard=shard.index, begun=at, took=now - at, status=status))

    def _reclaim(self, at: float, shard: Shard, *, even_if_recent: bool) -> None:
        if not self._may_begin(PassKind.RECLAIM, shard, at, even_if_recent=even_if_recent):
            return
        clock = VirtualClock(at)
        fake = cast("Any", StoreOfFleet(self._fleet, shard, clock, self._costs, self._machines))
        target = StoreReclaim(
            workflows=fake, claims=fake, engines=fake, send_turn=lambda _message: True, rng=self._rng, shard=shard
        )
        context = PassContext(
            clock=clock,
            deadline=self._plan.settings.pass_deadline,
            pools={PassKind.RECLAIM: InlinePool("reclaim")},
            takeover_tries=self._plan.settings.takeover_tries,
            shard=shard,
        )
        result = reclaim_claims(target, context)
        moved = result.count(ReclaimStatus.RECLAIMED)
        ran = Ran(
            kind=PassKind.RECLAIM, shard=shard.index, begun=at, took=clock.at - at, moved=moved, status=result.status
        )
        self._record(shard, ran)
        if may_be_cut(moved):
            self._ask(shard, clock.at)

    def _record(self, shard: Shard, ran: Ran) -> None:
        self._latest[ran.kind, shard] = ran
        self._passes.append(ran)


class InlinePool(OrderedPool):
    """Slice after slice on this thread, so that virtual time has one order. What 16 threads do side by side is in the
    time that a slice takes."""

    def run(self, items: Sequence[Item], work: Work[Item, Result], deadline: Deadline) -> PoolReport[Result]:
        results: list[Any] = [NOT_REACHED] * len(items)
        assert work.attempt_slice is not None
        alone: list[int] = []
        for start in range(0, len(items), work.slice_size):
            if deadline.is_reached():
                break
            taken = work.attempt_slice(items[start : start + work.slice_size])
            alone += [start + n for n, result in enumerate(taken) if result is TRY_ALONE]
            results[start : start + len(taken)] = [NOT_REACHED if each is TRY_ALONE else each for each in taken]
        for index in alone:
            results[index] = NOT_REACHED if deadline.is_reached() else work.attempt(items[index])
        return PoolReport(results=results)
