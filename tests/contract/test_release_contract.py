"""Release deletes the holder and keeps the epoch, for the engine and epoch it names (O6): on fake and both stores."""

from __future__ import annotations

import pytest
from beds import MS, Bed, R, StoreBed

from weft_tasks.model import HeldClaim
from weft_tasks.results import Answer
from weft_tasks.store.claims import SLICE


@pytest.fixture
def held(bed: Bed) -> HeldClaim:
    bed.engine("a")
    return bed.held()


def assert_unowned(bed: Bed, workflow_id: str = "w", epoch: int = 1) -> None:
    assert bed.row(workflow_id).engine_id is None
    assert bed.row(workflow_id).epoch == epoch
    assert bed.claim(workflow_id) is None


def test_a_release_deletes_the_holder_and_keeps_the_epoch(bed: Bed, held: HeldClaim) -> None:
    assert bed.claims.release(held) is Answer.WON
    assert_unowned(bed)


def test_a_released_workflow_is_a_candidate_at_once_due_or_parked(bed: Bed, held: HeldClaim) -> None:
    bed.claims.release(held)
    bed.claims.release(bed.parked("p", "a", "paid"))
    assert bed.candidates() == {"w": "unowned", "p": "unowned"}


@pytest.mark.parametrize(
    "named",
    [
        HeldClaim(workflow_id="w", engine_id="b", epoch=1),
        HeldClaim(workflow_id="w", engine_id="a", epoch=0),
        HeldClaim(workflow_id="w", engine_id="a", epoch=2),
        HeldClaim(workflow_id="other", engine_id="a", epoch=1),
    ],
    ids=["another engine", "an older epoch", "a newer epoch", "another workflow"],
)
def test_a_release_that_names_anything_wrong_is_lost_and_changes_nothing(
    bed: Bed, held: HeldClaim, named: HeldClaim
) -> None:
    assert bed.claims.release(named) is Answer.LOST
    assert bed.row().engine_id == "a"
    assert bed.claim() is not None


def test_a_second_release_is_lost(bed: Bed, held: HeldClaim) -> None:
    bed.claims.release(held)
    assert bed.claims.release(held) is Answer.LOST


def test_a_release_by_the_deposed_engine_does_not_touch_its_successor(bed: Bed, held: HeldClaim) -> None:
    bed.engine("b")
    bed.engines.stop("a")
    bed.claims.take_over("w", bed.message().run_id, "a", 1, "b")
    assert bed.claims.release(held) is Answer.LOST
    assert bed.claim().engine_id == "b"


def test_a_claim_whose_turn_is_open_is_not_released_and_after_its_end_is(bed: Bed, held: HeldClaim) -> None:
    bed.begin()
    assert bed.claims.release(held) is Answer.LOST
    assert bed.claim() is not None
    bed.park()
    assert bed.claims.release(held) is Answer.WON


def test_the_dispatches_to_the_engine_that_let_go_are_forgotten(bed: Bed, held: HeldClaim) -> None:
    bed.leave_unanswered("w", 3, by="a")
    bed.claims.release(held)
    assert (bed.row().dispatches, bed.row().unanswered) == (0, 0)


def test_a_release_that_the_store_does_not_answer_is_unknown(bed: Bed, held: HeldClaim) -> None:
    with bed.unreachable():
        assert bed.claims.release(held) is Answer.UNKNOWN
    assert bed.claim() is not None


# -- a clean stop ------------------------------------------------------------------------------------------------------


def test_release_idle_leaves_the_turn_that_runs_and_what_others_hold(bed: Bed, held: HeldClaim) -> None:
    bed.engine("b")
    bed.held("busy", "a")
    bed.begin("busy")
    bed.parked("parked", "a")
    bed.held("others", "b")

    assert bed.claims.release_idle("a") == 2

    assert_unowned(bed, "w")
    assert_unowned(bed, "parked")
    assert {c.workflow_id for c in bed.claims.list_held()} == {"busy", "others"}
    assert bed.claims.release_idle("a") == 0


def test_a_busy_claim_of_a_draining_engine_is_released_by_its_turns_commit(bed: Bed, held: HeldClaim) -> None:
    bed.begin()
    bed.engines.drain("a")
    bed.claims.release_idle("a")
    assert bed.claim() is not None
    bed.park("w", "paid")
    assert_unowned(bed)
    assert bed.candidates() == {"w": "unowned"}


def test_a_live_engine_keeps_its_claim_over_a_commit(bed: Bed, held: HeldClaim) -> None:
    bed.begin()
    bed.park("w", "paid")
    assert bed.claim().engine_id == "a"


def test_release_all_lets_go_of_open_turns_too_which_do_not_count_as_begun(bed: Bed, held: HeldClaim) -> None:
    bed.engine("b")
    bed.held("others", "b")
    bed.begin()
    assert bed.row().begun == 1

    assert bed.claims.release_all("a") == 1

    assert_unowned(bed)
    assert (bed.row().attempt_open, bed.row().begun, bed.row().is_due) == (False, 0, True)
    assert bed.claim("others") is not None


def test_release_all_takes_nothing_off_the_count_of_a_workflow_whose_turn_is_not_open(bed: Bed) -> None:
    bed.engine("a")
    bed.engine("b")
    bed.held()
    bed.begin()
    bed.engines.stop("a")
    bed.claims.take_over("w", bed.message().run_id, "a", 1, "b")
    bed.claims.release_all("b")
    assert bed.row().begun == 1


def test_a_clean_stop_makes_everything_a_candidate_at_once(bed: Bed, held: HeldClaim) -> None:
    bed.engine("b")
    bed.parked("parked", "a")
    bed.engines.drain("a")
    bed.claims.release_all("a")
    bed.engines.stop("a")
    assert bed.candidates() == {"w": "unowned", "parked": "unowned"}


def test_a_commit_that_ends_the_workflow_deletes_its_holder_and_keeps_the_epoch(bed: Bed, held: HeldClaim) -> None:
    bed.begin()
    bed.end()
    assert_unowned(bed)
    bed.live_through(R + MS, "a")
    assert bed.candidates() == {}


def test_after_a_release_the_claim_is_acquired_under_a_higher_epoch_by_anyone(bed: Bed, held: HeldClaim) -> None:
    bed.engine("b")
    bed.claims.release(held)
    assert bed.acquired(bed.message(), "b").epoch == 2


def test_more_idle_claims_than_one_statement_takes_are_released_at_once(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.many_held("a", 2 * SLICE + 1)
    assert store_bed.claims.release_idle("a") == 2 * SLICE + 1
    assert store_bed.claims.list_held() == ()
