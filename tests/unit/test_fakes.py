"""FakeClaims as a host's tests use it: the passes run on it, without a database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from weft_tasks.errors import DuplicateNodeError, StoreUnavailable, WorkflowAlreadyExists
from weft_tasks.model import WorkflowStatus
from weft_tasks.passes.clock import SystemClock
from weft_tasks.passes.run_once import run_once
from weft_tasks.passes.sweep import PassContext
from weft_tasks.results import Answer, RunOnceResult
from weft_tasks.settings import Settings
from weft_tasks.testing.fakes import FakeClaims


@pytest.fixture
def fake() -> FakeClaims:
    """Engines a and b, which know the type permit; a holds w."""
    fake = FakeClaims()
    for engine_id in ("a", "b"):
        fake.register(engine_id, node=engine_id, host="h", pid=1, types=["permit"], slots=2)
    message = fake.start("w", "permit")
    fake.acquire("w", message.run_id, message.epoch, "a")
    return fake


def run(fake: FakeClaims) -> RunOnceResult:
    return run_once(fake.targets(), PassContext(clock=SystemClock()), on_pass_complete=lambda _report: None)


def test_all_four_passes_run_on_it(fake: FakeClaims) -> None:
    fake.open_attempt("w", "task")
    fake.park("w", "paid")
    fake.workflows["w"].signals.append("paid")
    fake.workflows["w"].updates = 2
    fake.engines["a"].status = fake.engines["a"].status.STOPPED

    result = run(fake)

    assert result.failed == ()
    assert [part.counts for part in result.parts] == [
        {"renewed": 1},
        {"reclaimed": 1},
        {"woken": 1},
        {"drained": 1},
    ]
    assert (fake.workflows["w"].engine_id, fake.workflows["w"].is_due, fake.workflows["w"].updates) == ("b", True, 0)
    assert fake.sent == [fake.message_for("w")]


def test_a_signal_that_nobody_waits_for_and_a_workflow_without_updates_are_left_alone(fake: FakeClaims) -> None:
    fake.open_attempt("w", "task")
    fake.park("w", "paid")
    fake.workflows["w"].signals.append("note")
    result = run(fake)
    assert result.signal_poll is not None
    assert result.signal_poll.outcomes == ()
    assert result.update_poll is not None
    assert result.update_poll.counts == {"no-pending-updates": 1}


def test_an_update_of_a_workflow_that_moved_meanwhile_is_not_drained_for_its_old_holder(fake: FakeClaims) -> None:
    (claim,) = fake.list_held_workflow_ids()
    fake.workflows["w"].updates = 1
    fake.stop("a")
    fake.take_over("w", fake.workflows["w"].run_id, "a", 1, "b")
    assert fake.drain_pending_updates(claim) is Answer.LOST
    assert fake.workflows["w"].updates == 1


def test_while_it_is_down_nothing_is_known_and_nothing_is_given_up(fake: FakeClaims) -> None:
    (claim,) = fake.list_held()
    fake.is_down = True
    assert fake.renew(claim) is Answer.UNKNOWN
    assert fake.release(claim) is Answer.UNKNOWN
    with pytest.raises(StoreUnavailable):
        fake.heartbeat("a", free_slots=1, in_hand=())
    assert len(run(fake).failed) == 4
    fake.is_down = False
    assert fake.list_held() == (claim,)


def test_time_stands_still_until_it_is_moved(fake: FakeClaims) -> None:
    before = fake.now
    run(fake)
    assert fake.now == before
    fake.advance(timedelta(seconds=90))
    assert fake.now - before == timedelta(seconds=90)


def test_it_takes_other_settings(fake: FakeClaims) -> None:
    quick = FakeClaims(Settings(claim_ttl=timedelta(seconds=3), renew_interval=timedelta(seconds=1)))
    for engine_id in ("a", "b"):
        quick.register(engine_id, node=engine_id, host="h", pid=1, types=["permit"], slots=1)
    message = quick.start("w", "permit")
    quick.acquire("w", message.run_id, 0, "a")
    for _ in range(5):
        quick.advance(timedelta(seconds=1))
        quick.heartbeat("b", free_slots=1, in_hand=())
    assert not quick.is_silent("a")
    quick.advance(timedelta(milliseconds=1))
    assert quick.is_silent("a")
    assert not fake.is_silent("a")


def test_an_id_and_a_node_name_are_taken_once(fake: FakeClaims) -> None:
    with pytest.raises(WorkflowAlreadyExists):
        fake.start("w", "permit")
    with pytest.raises(DuplicateNodeError):
        fake.register("c", node="a", host="h", pid=1, types=[], slots=1)


def test_a_workflow_that_has_ended_is_held_by_nobody(fake: FakeClaims) -> None:
    fake.open_attempt("w", "task")
    fake.end("w", WorkflowStatus.FAILED)
    assert fake.claims == {}
    assert fake.workflows["w"].status is WorkflowStatus.FAILED
