"""A clean stop moves idle claims at once while a long turn drains; a hurried one loses nothing either (O6)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from deployment import BEATS_PER_TTL, GRACE, INTERVAL, SLACK, TTL, Deployment, NewLines

from weft_tasks.model import EngineStatus
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.waiting import wait_until

Start = Callable[..., None]


class Leaving:
    """Two workers; the one that will leave has one slot with a long turn in it, and holds parked workflows."""

    def __init__(self, deployment: Deployment, start: Start, **options: Any) -> None:
        self.deployment = deployment
        self.worker, self.other = deployment.worker("e1", concurrency=1, **options), deployment.worker("e2")
        self.gate = deployment.gate("long")
        self.beat = deployment.beat()
        start(self.worker, self.beat)
        self.parked = [f"parked-{n}" for n in range(10)]
        deployment.park(*self.parked)
        deployment.weft.start("stay", "long", str(self.gate.path))
        self.gate.wait_for()
        start(self.other)
        self.engine_id = deployment.engine("e1").id

    def status(self) -> EngineStatus:
        return self.deployment.engine("e1").status

    def holders(self, ids: Sequence[str]) -> set[str | None]:
        return {self.deployment.weft.describe(id).engine_id for id in ids}


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_idle_claims_move_at_once_while_the_long_turn_goes_on_and_is_handed_over_at_its_end(
    deployment: Deployment, start: Start, pool: str
) -> None:
    leaving = Leaving(deployment, start, pool=pool)
    # Messages for a busy engine: one may be in its memory, the others lie in its queue.
    due, idle = leaving.parked[:4], leaving.parked[4:]
    for id in due:
        deployment.weft.signal(id, "event", "closed")
    # No tick helps: every pass from here on is one that the leaving engine asks for.
    leaving.beat.kill()
    leaving.worker.terminate()
    successor = deployment.engine("e2").id
    wait_until(lambda: leaving.holders(idle) == {successor}, what="the idle claims to move", timeout=SLACK)
    deployment.wait_for_all(due, timeout=SLACK)
    assert leaving.status() is EngineStatus.DRAINING
    long = deployment.weft.describe("long")
    assert (long.engine_id, long.turn) == (leaving.engine_id, 0)

    leaving.gate.open()
    wait_until(lambda: leaving.holders(["long"]) == {successor}, what="the long turn's workflow to move", timeout=SLACK)
    moved = deployment.weft.describe("long")
    assert (moved.turn, moved.epoch, moved.is_due) == (1, long.epoch + 1, False)
    assert deployment.committed_turns("long") == [(0, long.epoch)]
    assert leaving.worker.wait() == 0
    assert leaving.status() is EngineStatus.STOPPED
    assert deployment.held_by(leaving.engine_id) == set()
    deployment.weft.signal("long", "event")
    deployment.wait_for("long", timeout=SLACK)
    assert len(leaving.gate.comings) == 1


def test_a_cold_stop_aborts_the_turn_and_the_successor_begins_it_again(deployment: Deployment, start: Start) -> None:
    deployment = Deployment(env=deployment.env, folder=deployment.folder, celery={"worker_soft_shutdown_timeout": 1.0})
    leaving = Leaving(deployment, start)
    before = deployment.weft.describe("long")
    leaving.worker.send_signal(signal.SIGQUIT)
    leaving.gate.wait_for(2, timeout=timedelta(seconds=1) + 2 * INTERVAL + SLACK)
    assert leaving.worker.wait() == 0
    assert leaving.status() is EngineStatus.STOPPED
    leaving.gate.open()
    deployment.wait_until_parked("long", *leaving.parked)
    assert deployment.committed_turns("long") == [(0, before.epoch + 1)]
    assert leaving.holders(["long", *leaving.parked]) == {deployment.engine("e2").id}


def test_a_drain_longer_than_silence_keeps_its_claim_until_the_engine_is_killed(
    deployment: Deployment, start: Start
) -> None:
    leaving = Leaving(deployment, start)
    before = deployment.weft.describe("long")
    leaving.worker.terminate()
    wait_until(lambda: deployment.held_by(leaving.engine_id) == {"long"}, what="the idle claims to move")
    deployment.wait_for_beats("e1", beats=2 * BEATS_PER_TTL)
    assert deployment.claims("long") == {"long": (leaving.engine_id, before.epoch)}
    assert len(leaving.gate.comings) == 1
    leaving.worker.kill()
    leaving.gate.wait_for(2, timeout=TTL + GRACE + INTERVAL + SLACK)
    leaving.gate.open()
    deployment.wait_until_parked("long", *leaving.parked)
    assert leaving.holders(["long", *leaving.parked]) == {deployment.engine("e2").id}
    assert deployment.committed_turns("long") == [(0, before.epoch + 1)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_beat_stops_when_it_is_told_to_while_it_waits_for_a_silent_redis(
    deployment: Deployment, start: Start, local_redis: LocalRedis, number: signal.Signals
) -> None:
    """The signal finds it in the middle of a read from the broker."""
    beat = deployment.beat()
    start(beat)
    beat.wait_for_log("Sending due task")
    local_redis.pause()
    try:
        NewLines(beat).wait_for("Sending due task")
        beat.send_signal(number)
        assert beat.wait(SLACK) == 0
    finally:
        local_redis.resume()


def test_an_engine_that_is_told_to_stop_while_redis_is_silent_releases_its_workflows_at_once(
    deployment: Deployment, start: Start, local_redis: LocalRedis
) -> None:
    """Its process ends when Redis answers: until then Celery's main loop waits."""
    worker = deployment.worker("e1")
    start(worker)
    deployment.park("of-silent-1", "of-silent-2")
    engine_id = deployment.engine("e1").id
    local_redis.pause()
    try:
        deployment.wait_for_beats("e1", beats=BEATS_PER_TTL)
        worker.terminate()
        wait_until(lambda: not deployment.held_by(engine_id), what="the claims to be released", timeout=SLACK)
        assert deployment.engine("e1").status is EngineStatus.DRAINING
    finally:
        local_redis.resume()
    assert worker.wait() == 0
    assert deployment.engine("e1").status is EngineStatus.STOPPED
