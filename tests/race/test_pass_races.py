"""Whole passes at the same time, on real threads: with the lock in Redis, and with one that always says yes (O1).

The lock saves the second pass its work. Without it both do everything, and what is in the store is the same.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from weft_tasks.locks import (
    AlwaysYes,
    FlightOutcome,
    FlightTimes,
    LockServer,
    RedisSingleFlight,
    SingleFlight,
    mint_token,
)
from weft_tasks.model import TurnMessage
from weft_tasks.passes import PassContext, SystemClock, poll_signals, reclaim_claims, renew_claims
from weft_tasks.results import PassKind, PassResult, ReclaimStatus, RenewalStatus, SignalPollStatus
from weft_tasks.store import Store
from weft_tasks.store.targets import StoreReclaim, StoreRenewal, StoreSignalPoll
from weft_tasks.store.workflows import ReclaimCandidate
from weft_tasks.testing.servers import Redis

from .arena import Arena
from .invariants import broken

ORPHANS = 50
LIVE = ("e1", "e2", "e3")


@pytest.fixture(params=["redis", "always-yes"])
def lock(request: pytest.FixtureRequest) -> SingleFlight:
    if request.param == "always-yes":
        return AlwaysYes()
    server: Redis = request.getfixturevalue("race_redis")
    return RedisSingleFlight(
        server=LockServer.of_broker(server.url()),
        store_id=uuid.uuid4().hex,
        times=FlightTimes(lock_ttl=timedelta(seconds=10), pass_deadline=timedelta(seconds=15)),
        clock=SystemClock(),
    )


class Process:
    """A worker process that runs passes: its own connections, and what it published."""

    def __init__(self, arena: Arena, lock: SingleFlight, seed: int) -> None:
        self.store = Store.open(arena.settings, clock=arena.clock)
        self.sent: list[TurnMessage] = []
        self.context = PassContext(clock=SystemClock(), deadline=timedelta(seconds=60))
        self.work_list: WorkList | None = None
        self._lock = lock
        self._rng = random.Random(seed)

    def tick(self, kind: PassKind) -> PassResult[Any] | None:
        """One tick: the pass, or None if it runs elsewhere at this moment."""
        with self._lock.acquire(kind, mint_token("here", datetime.now(UTC))) as acquisition:
            if acquisition.outcome is not FlightOutcome.ACQUIRED:
                return None
            return self._run(kind)

    def read_work_list(self) -> None:
        """As if the pass that follows was interrupted between its list and its first try."""
        self.work_list = WorkList(self._reclaim())

    def _run(self, kind: PassKind) -> PassResult[Any]:
        match kind:
            case PassKind.RENEWAL:
                return renew_claims(StoreRenewal(self.store.claims), self.context)
            case PassKind.RECLAIM:
                return reclaim_claims(self.work_list or self._reclaim(), self.context)
            case PassKind.SIGNAL_POLL:
                return poll_signals(StoreSignalPoll(self.store.signals, self._send), self.context)
            case _:
                raise ValueError(kind)

    def _reclaim(self) -> StoreReclaim:
        return StoreReclaim(
            workflows=self.store.workflows,
            claims=self.store.claims,
            engines=self.store.engines,
            send_turn=self._send,
            rng=self._rng,
        )

    def _send(self, message: TurnMessage) -> bool:
        self.sent.append(message)
        return True


class WorkList:
    """A reclaim target whose list was read before."""

    def __init__(self, target: StoreReclaim) -> None:
        self._candidates = target.list_reclaim_candidate_workflow_ids()
        self.attempt_workflow_claim_takeover = target.attempt_workflow_claim_takeover

    def list_reclaim_candidate_workflow_ids(self) -> Sequence[ReclaimCandidate]:
        return self._candidates


@pytest.fixture
def processes(arena: Arena, lock: SingleFlight) -> Iterator[Sequence[Process]]:
    arena.world.engines("dead", *LIVE)
    both = [Process(arena, lock, seed) for seed in (1, 2)]
    yield both
    for process in both:
        process.store.database.dispose()


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Call each on a thread of its own, all from the same moment on."""
    start = threading.Barrier(len(calls))
    answers: list[Any] = [None] * len(calls)

    def run(position: int) -> None:
        start.wait()
        answers[position] = calls[position]()

    threads = [threading.Thread(target=run, args=(position,), daemon=True) for position in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a pass hangs"
    return answers


def ran(reports: Sequence[PassResult[Any] | None]) -> list[PassResult[Any]]:
    return [report for report in reports if report is not None]


def many(arena: Arena, arrange: Callable[..., object], by: str, prefix: str, count: int) -> list[str]:
    """So many workflows that `arrange` brings into position: the first by verbs, the others as its copies."""
    ids = [f"{prefix}-{by}-{number:02}" for number in range(count)]
    arrange(by, ids[0])
    arena.copy(*ids)
    return ids


def spread_over_live(arena: Arena, arrange: Callable[..., object], prefix: str) -> list[str]:
    return [
        workflow_id
        for number, engine_id in enumerate(LIVE)
        for workflow_id in many(arena, arrange, engine_id, prefix, (ORPHANS + number) // len(LIVE))
    ]


def orphans(arena: Arena) -> list[str]:
    """Workflows of an engine that is silent by now: half of them parked, half of them due."""
    world = arena.world
    ids = many(arena, world.parked, "dead", "parked", ORPHANS // 2) + many(
        arena, world.held, "dead", "due", ORPHANS // 2
    )
    world.outlive(*LIVE)
    return ids


def messages_fit(arena: Arena, processes: Sequence[Process]) -> None:
    """Each due workflow was announced once, to its owner and under its epoch, and nothing else was said."""
    rows = arena.rows()
    due = {(row.id, row.engine_id, row.epoch, row.turn) for row in rows.all("workflows") if row.due}
    sent = [
        (message.workflow_id, message.engine_id, message.epoch, message.turn)
        for process in processes
        for message in process.sent
    ]
    assert Counter(sent) == Counter(due)


def test_two_reclaim_passes_move_every_orphan_once_and_evenly(arena: Arena, processes: Sequence[Process]) -> None:
    ids = orphans(arena)
    before = {row.id: row.epoch for row in arena.rows().all("workflows")}
    for process in processes:
        process.read_work_list()

    reports = ran(at_once(*(lambda process=process: process.tick(PassKind.RECLAIM) for process in processes)))

    rows = arena.rows()
    assert broken(rows) == []
    assert {row.id: row.epoch for row in rows.all("workflows")} == {id: before[id] + 1 for id in ids}
    assert sum(report.count(ReclaimStatus.RECLAIMED) for report in reports) == ORPHANS
    assert not any(report.count(ReclaimStatus.ERROR) for report in reports)
    spread = Counter(row.engine_id for row in rows.all("workflows"))
    assert set(spread) == set(LIVE)
    assert max(spread.values()) - min(spread.values()) <= 1, f"{spread}: both passes made the same plan (O4)"
    messages_fit(arena, processes)


def test_two_renewal_passes_renew_every_claim(arena: Arena, processes: Sequence[Process]) -> None:
    spread_over_live(arena, arena.world.parked, "live")
    arena.world.live_through(timedelta(seconds=5), *LIVE)

    reports = ran(at_once(*(lambda process=process: process.tick(PassKind.RENEWAL) for process in processes)))

    assert reports
    assert all(report.count(RenewalStatus.RENEWED) == ORPHANS for report in reports)
    rows = arena.rows()
    expected = {engine.id: engine.heartbeat_at + 30_000 for engine in rows.all("engines")}
    assert {claim.expires_at for claim in rows.all("claims")} == {expected["e1"]}


def test_a_renewal_against_a_reclaim_pass(arena: Arena, processes: Sequence[Process]) -> None:
    """Two passes of two kinds meet in any case, whatever the lock says."""
    ids = orphans(arena)
    spread_over_live(arena, arena.world.parked, "live")
    before = {row.id: row.epoch for row in arena.rows().all("workflows")}

    renewal, reclaim = at_once(lambda: processes[0].tick(PassKind.RENEWAL), lambda: processes[1].tick(PassKind.RECLAIM))

    rows = arena.rows()
    assert broken(rows) == []
    assert {row.id: row.epoch - before[row.id] for row in rows.all("workflows")} == {
        id: (1 if id in ids else 0) for id in before
    }
    assert reclaim.count(ReclaimStatus.RECLAIMED) == ORPHANS
    lost = {outcome.workflow_id for outcome in renewal.outcomes if outcome.status is RenewalStatus.FAILED}
    assert lost <= set(ids)
    assert {outcome.reason for outcome in renewal.outcomes} <= {None, "lost"}
    messages_fit(arena, processes)


def test_two_signal_polls_wake_every_workflow_once(arena: Arena, processes: Sequence[Process]) -> None:
    def signalled(by: str, workflow_id: str) -> None:
        arena.world.parked(by, workflow_id)
        arena.world.store.signals.send(workflow_id, "go", '"now"', key=None)

    spread_over_live(arena, signalled, "live")
    arena.execute("UPDATE weft_workflows SET due = false")  # As if every message and every mark had been lost.

    reports = ran(at_once(*(lambda process=process: process.tick(PassKind.SIGNAL_POLL) for process in processes)))

    assert sum(report.count(SignalPollStatus.WOKEN) for report in reports) == ORPHANS
    assert broken(arena.rows()) == []
    messages_fit(arena, processes)


def test_two_reclaim_passes_repeat_an_overdue_message_to_its_owner_and_count_it_once(
    arena: Arena, processes: Sequence[Process], lock: SingleFlight
) -> None:
    """O9, O12. That a message is repeated once per R is what the lock is for; without it each pass may repeat it. It is
    the right message all the same, and an engine that does not answer has not answered once."""
    spread_over_live(arena, arena.world.held, "live")
    arena.world.live_through(timedelta(seconds=10), *LIVE)

    ran(at_once(*(lambda process=process: process.tick(PassKind.RECLAIM) for process in processes)))

    rows = arena.rows().all("workflows")
    assert {row.unanswered for row in rows} == {1}
    sent = Counter(message for process in processes for message in process.sent)
    assert set(sent) == {arena.world.message(row.id) for row in rows}
    assert set(sent.values()) <= ({1, 2} if isinstance(lock, AlwaysYes) else {1})
