"""Acquire never steals (O5), and gives nothing to an engine that takes no work (O4): on the fake and on both stores."""

from __future__ import annotations

from datetime import timedelta

import pytest
from beds import BEAT, DEAF_AFTER, MS, START, Bed, G, R, StoreBed, T
from sqlalchemy import update

from weft_tasks.model import TurnMessage, WorkflowStatus
from weft_tasks.store.claims import Grant
from weft_tasks.store.tables import workflows


def acquire(bed: Bed, message: TurnMessage, by: str = "a", **changes: object) -> Grant:
    named = {"workflow_id": message.workflow_id, "run_id": message.run_id, "epoch": message.epoch, **changes}
    grant: Grant = bed.claims.acquire(engine_id=by, **named)
    return grant


def assert_untouched(bed: Bed, epoch: int = 0, workflow_id: str = "w") -> None:
    assert bed.row(workflow_id).engine_id is None
    assert bed.row(workflow_id).epoch == epoch
    assert bed.claim(workflow_id) is None


# -- what it gives -----------------------------------------------------------------------------------------------------


def test_a_started_workflow_goes_to_the_engine_that_asks_under_the_next_epoch(bed: Bed) -> None:
    bed.engine("a")
    message = bed.start()
    assert message.epoch == 0

    assert acquire(bed, message) == Grant(answer="won", epoch=1, turn=0, is_due=True)

    assert (bed.row().engine_id, bed.row().epoch, bed.row().is_due) == ("a", 1, True)
    claim = bed.claim()
    assert claim is not None
    assert (claim.engine_id, claim.epoch, claim.claimed_at) == ("a", 1, START)


def test_the_claim_ends_T_after_the_engines_last_heartbeat_and_not_after_now(bed: Bed) -> None:
    bed.engine("a")
    message = bed.start()
    bed.advance(4 * timedelta(seconds=1))

    acquire(bed, message)

    assert bed.claim().expires_at == START + T
    assert bed.claim().claimed_at == START + timedelta(seconds=4)


def test_each_acquire_raises_the_epoch_by_one(bed: Bed) -> None:
    bed.engine("a")
    bed.start()
    for epoch in range(1, 4):
        held = bed.acquired(bed.message(), "a")
        assert held.epoch == epoch
        assert bed.claims.release(held) == "won"


def test_a_released_workflow_that_is_parked_is_placed_by_the_reclaim_pass_and_stays_parked(bed: Bed) -> None:
    bed.engine("a")
    bed.claims.release(bed.parked("w", "a", "paid"))

    grant = acquire(bed, bed.message(), must_be_due=False)

    assert grant == Grant(answer="won", epoch=2, turn=1, is_due=False)
    assert not bed.row().is_due


# -- what it refuses ---------------------------------------------------------------------------------------------------


def test_a_held_workflow_is_not_acquired_even_under_its_own_epoch(bed: Bed) -> None:
    bed.engine("a")
    bed.engine("b")
    held = bed.held()

    assert acquire(bed, bed.message(), by="b").answer == "lost"

    assert (bed.row().engine_id, bed.row().epoch) == ("a", held.epoch)
    assert bed.claim().engine_id == "a"


def test_a_held_workflow_is_not_acquired_by_its_holder_again(bed: Bed) -> None:
    bed.engine("a")
    bed.held()
    assert acquire(bed, bed.message()).answer == "lost"
    assert bed.row().epoch == 1


@pytest.mark.parametrize("epoch", [0, 2], ids=["older", "newer"])
def test_the_epoch_must_be_the_one_that_the_message_names(bed: Bed, epoch: int) -> None:
    bed.engine("a")
    bed.claims.release(bed.held())
    assert acquire(bed, bed.message(), epoch=epoch).answer == "lost"
    assert_untouched(bed, epoch=1)


def test_a_message_of_another_run_acquires_nothing(bed: Bed) -> None:
    bed.engine("a")
    assert acquire(bed, bed.start(), run_id="0" * 32).answer == "lost"
    assert_untouched(bed)


def test_a_workflow_that_does_not_exist_is_lost(bed: Bed) -> None:
    bed.engine("a")
    assert acquire(bed, bed.start(), workflow_id="nobody").answer == "lost"
    assert_untouched(bed)


@pytest.mark.parametrize("status", [WorkflowStatus.COMPLETED, WorkflowStatus.FAILED])
def test_a_workflow_that_has_ended_is_not_acquired(bed: Bed, status: WorkflowStatus) -> None:
    bed.engine("a")
    bed.held()
    bed.begin()
    bed.end(status=status)

    for must_be_due in (True, False):
        assert acquire(bed, bed.message(), must_be_due=must_be_due).answer == "not-eligible"
    assert_untouched(bed, epoch=1)


def test_a_workflow_that_was_set_aside_is_not_acquired_even_if_something_calls_it_due(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    message = store_bed.start()
    store_bed.write(update(workflows).values(status=WorkflowStatus.SET_ASIDE))
    assert acquire(store_bed, message).answer == "not-eligible"
    assert_untouched(store_bed)


def test_a_workflow_that_is_not_due_is_not_acquired_by_a_message(bed: Bed) -> None:
    bed.engine("a")
    bed.claims.release(bed.parked())
    assert acquire(bed, bed.message()).answer == "not-eligible"
    assert_untouched(bed, epoch=1)


# -- the target --------------------------------------------------------------------------------------------------------


def test_an_engine_without_a_row_gets_nothing(bed: Bed) -> None:
    assert acquire(bed, bed.start()).answer == "no-target"
    assert_untouched(bed)


@pytest.mark.parametrize("verb", ["drain", "stop", "mark_deaf"])
def test_an_engine_that_drains_has_stopped_or_is_deaf_gets_nothing(bed: Bed, verb: str) -> None:
    getattr(bed.engines, verb)(bed.engine("a"))
    assert acquire(bed, bed.start()).answer == "no-target"
    assert_untouched(bed)


def test_an_engine_whose_heartbeat_is_G_old_still_gets_work_and_one_millisecond_later_none(bed: Bed) -> None:
    bed.engine("a")
    first, second = bed.start("first"), bed.start("second")
    bed.engine("b")
    bed.live_through(G, "b")
    assert acquire(bed, first).answer == "won"

    bed.advance(MS)
    assert acquire(bed, second).answer == "no-target"
    assert_untouched(bed, workflow_id="second")


def test_a_heartbeat_older_than_G_by_the_databases_clock_alone_is_too_old(bed: Bed) -> None:
    """Nobody beats, so the witnessed clock has moved by R at most; the database's clock has not stood still."""
    bed.engine("a")
    message = bed.start()
    bed.advance(G + MS)
    assert acquire(bed, message).answer == "no-target"


def test_a_heartbeat_older_than_G_by_the_witnessed_clock_alone_is_too_old(bed: Bed) -> None:
    """The database's clock was set back meanwhile: a dead engine must not look fresh."""
    bed.engine("a")
    bed.engine("b")
    message = bed.start()
    bed.live_through(G + MS, "b")
    bed.advance(-2 * G)
    assert acquire(bed, message).answer == "no-target"


def test_an_engine_that_does_not_know_the_type_gets_nothing(bed: Bed) -> None:
    bed.engine("a", "invoice", "permi", "permit2")
    assert acquire(bed, bed.start()).answer == "no-target"
    assert_untouched(bed)


def test_an_engine_that_was_found_deaf_gets_work_again_once_a_turn_begins_there(bed: Bed) -> None:
    bed.engine("a")
    bed.held("w")
    bed.engines.mark_deaf("a")
    bed.begin("w")
    assert acquire(bed, bed.start("next")).answer == "won"


def test_a_deaf_engine_stays_deaf_however_often_it_beats(bed: Bed) -> None:
    bed.engine("a")
    bed.engines.mark_deaf("a")
    bed.live_through(DEAF_AFTER * R, "a")
    assert acquire(bed, bed.start()).answer == "no-target"


def test_an_engine_late_by_less_than_G_gets_work_although_it_missed_heartbeats(bed: Bed) -> None:
    bed.engine("a")
    message = bed.start()
    bed.advance(2 * BEAT)
    assert acquire(bed, message).answer == "won"
