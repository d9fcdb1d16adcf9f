"""A renewal writes its holder's last heartbeat + T for the engine and epoch it names, however late (O3): on all."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from beds import START, Bed, G, StoreBed, T
from sqlalchemy import delete

from weft_tasks.errors import StoreUnavailable
from weft_tasks.model import HeldClaim
from weft_tasks.results import Answer
from weft_tasks.store.claims import SLICE
from weft_tasks.store.tables import claims


@pytest.fixture
def held(bed: Bed) -> HeldClaim:
    bed.engine("a")
    return bed.held()


def test_a_renewal_moves_the_expiry_to_the_holders_last_heartbeat_plus_T(bed: Bed, held: HeldClaim) -> None:
    bed.live_through(timedelta(seconds=10), "a")
    assert bed.claims.renew(held) is Answer.WON
    assert bed.claim().expires_at == START + timedelta(seconds=10) + T


def test_a_renewal_by_whomever_keeps_no_dead_engine_alive(bed: Bed, held: HeldClaim) -> None:
    bed.engine("b")
    bed.live_through(timedelta(seconds=20), "b")
    assert bed.claims.renew(held) is Answer.WON
    assert bed.claim().expires_at == START + T


def test_a_renewal_under_a_clock_that_stands_still_counts_as_renewed(bed: Bed, held: HeldClaim) -> None:
    """Field report 41: the row is written with what it already had, and that is no loss."""
    before = bed.claim()
    assert [bed.claims.renew(held) for _ in range(3)] == [Answer.WON] * 3
    assert bed.claim() == before


def test_a_renewal_keeps_when_and_under_which_epoch_the_claim_was_made(bed: Bed, held: HeldClaim) -> None:
    bed.live_through(timedelta(seconds=10), "a")
    bed.claims.renew(held)
    assert (bed.claim().claimed_at, bed.claim().epoch) == (START, 1)


def test_a_renewal_long_after_the_expiry_is_fine_while_nobody_took_over(bed: Bed, held: HeldClaim) -> None:
    bed.advance(10 * (T + G))
    bed.beat("a")
    assert bed.claims.renew(held) is Answer.WON
    assert bed.claim().expires_at == START + 10 * (T + G) + T


def test_a_renewal_of_a_claim_whose_engine_has_no_row_any_more_leaves_the_expiry(bed: Bed, held: HeldClaim) -> None:
    bed.remove_engine("a")
    bed.advance(timedelta(seconds=10))
    assert bed.claims.renew(held) is Answer.WON
    assert bed.claim().expires_at == START + T


# -- lost --------------------------------------------------------------------------------------------------------------


def test_a_renewal_after_a_takeover_is_lost_and_leaves_the_new_claim(bed: Bed, held: HeldClaim) -> None:
    bed.engine("b")
    bed.engines.stop("a")
    bed.claims.take_over("w", bed.message().run_id, "a", 1, "b")
    new = bed.claim()
    bed.live_through(timedelta(seconds=5), "b")

    assert bed.claims.renew(held) is Answer.LOST
    assert bed.claim() == new


def test_a_renewal_under_an_epoch_of_its_own_past_is_lost_although_the_engine_holds_it_again(
    bed: Bed, held: HeldClaim
) -> None:
    bed.claims.release(held)
    bed.acquired(bed.message(), "a")
    bed.live_through(timedelta(seconds=5), "a")
    again = bed.claim()
    assert bed.claims.renew(held) is Answer.LOST
    assert bed.claim() == again


@pytest.mark.parametrize(
    "named",
    [
        HeldClaim(workflow_id="w", engine_id="b", epoch=1),
        HeldClaim(workflow_id="w", engine_id="a", epoch=2),
        HeldClaim(workflow_id="w", engine_id="a", epoch=0),
        HeldClaim(workflow_id="other", engine_id="a", epoch=1),
    ],
    ids=["another engine", "a newer epoch", "an older epoch", "another workflow"],
)
def test_a_renewal_that_names_anything_wrong_is_lost(bed: Bed, held: HeldClaim, named: HeldClaim) -> None:
    before = bed.claim()
    bed.engine("b")
    bed.live_through(timedelta(seconds=5), "a", "b")
    assert bed.claims.renew(named) is Answer.LOST
    assert bed.claim() == before


def test_a_renewal_after_the_release_is_lost(bed: Bed, held: HeldClaim) -> None:
    bed.claims.release(held)
    assert bed.claims.renew(held) is Answer.LOST


# -- many at once --------------------------------------------------------------------------------------------------


def test_claims_renewed_together_keep_their_own_conditions_and_their_order(bed: Bed) -> None:
    bed.engine("a")
    claimed = [bed.held(f"w{n}") for n in range(4)]
    bed.claims.release(claimed[1])
    bed.live_through(timedelta(seconds=5), "a")
    wrong = HeldClaim(workflow_id="w3", engine_id="a", epoch=7)

    answers = bed.claims.renew_all([claimed[2], claimed[1], wrong, claimed[0]])

    assert answers == (Answer.WON, Answer.LOST, Answer.LOST, Answer.WON)
    later = START + timedelta(seconds=5) + T
    assert [bed.claim(f"w{n}").expires_at for n in (0, 2, 3)] == [later, later, START + T]


def test_two_claims_of_one_workflow_in_one_list_are_answered_one_by_one(bed: Bed, held: HeldClaim) -> None:
    stale = HeldClaim(workflow_id="w", engine_id="z", epoch=0)
    assert bed.claims.renew_all([stale, held]) == (Answer.LOST, Answer.WON)


def test_a_claim_named_twice_is_renewed_twice(bed: Bed, held: HeldClaim) -> None:
    assert bed.claims.renew_all([held, held]) == (Answer.WON, Answer.WON)


def test_nothing_to_renew_is_no_answer(bed: Bed) -> None:
    assert bed.claims.renew_all([]) == ()


def test_every_claim_is_listed_whoever_holds_it(bed: Bed) -> None:
    bed.engine("a")
    bed.engine("b")
    claimed = {bed.held("w1", "a"), bed.held("w2", "b"), bed.parked("w3", "b"), bed.held('"w\\5", [], ü', "b")}
    bed.claims.release(bed.held("w4", "a"))
    moved = bed.start("w6")
    earlier = bed.acquired(moved, "a")
    bed.claims.release(earlier)
    claimed.add(bed.acquired(replace(moved, epoch=earlier.epoch), "b"))
    bed.engines.stop("b")
    assert set(bed.claims.list_held()) == claimed


def test_a_large_slice_is_renewed_and_the_claim_that_is_gone_is_lost(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    named = [HeldClaim(workflow_id=f"w{n:04}", engine_id="a", epoch=1) for n in range(2 * SLICE + 1)]
    with store_bed.store.database.transaction() as connection:
        connection.execute(
            claims.insert(),
            [
                {"workflow_id": c.workflow_id, "engine_id": "a", "epoch": 1, "claimed_at": 0, "expires_at": 0}
                for c in named
            ],
        )
    store_bed.write(delete(claims).where(claims.c.workflow_id == "w0777"))

    answers = store_bed.claims.renew_all(named)

    assert [c.workflow_id for c, answer in zip(named, answers, strict=True) if answer is not Answer.WON] == ["w0777"]


# -- unknown (O8) ------------------------------------------------------------------------------------------------------


def test_a_renewal_that_the_store_does_not_answer_is_unknown_and_not_lost(bed: Bed, held: HeldClaim) -> None:
    with bed.unreachable():
        assert bed.claims.renew(held) is Answer.UNKNOWN
        with pytest.raises(StoreUnavailable):
            bed.claims.renew_all([held])
    assert bed.claims.renew(held) is Answer.WON
