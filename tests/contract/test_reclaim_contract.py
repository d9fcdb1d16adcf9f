"""The reclaim pass: who is a candidate and when, what it does with each, and how dispatches are counted (O4, O5, O9,
O12): on the fake and on both stores."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from beds import DEAF_AFTER, MS, Bed, G, R, T

from weft_tasks.model import TurnMessage
from weft_tasks.passes.clock import SystemClock
from weft_tasks.passes.reclaim import reclaim_claims
from weft_tasks.passes.run_once import run_once
from weft_tasks.passes.sweep import PassContext
from weft_tasks.results import ReclaimStatus, RunOnceResult

SILENCE = T + G


def reclaim(bed: Bed) -> dict[str, str]:
    """One reclaim pass: what became of each candidate."""
    result = reclaim_claims(bed.targets().reclaim, context())
    return {outcome.workflow_id: outcome.status.value for outcome in result.outcomes}


def context() -> PassContext:
    return PassContext(clock=SystemClock())


@pytest.fixture
def two(bed: Bed) -> Bed:
    """Engines a and b; a holds w, which is due and has no turn yet."""
    bed.engine("a")
    bed.engine("b")
    bed.held()
    return bed


# -- who is a candidate --------------------------------------------------------------------------------------------


def test_a_started_workflow_is_left_to_its_message_for_R_of_witnessed_time(bed: Bed) -> None:
    bed.engine("a")
    bed.start()
    bed.live_through(R, "a")
    assert bed.candidates() == {}
    bed.advance(MS)
    assert bed.candidates() == {"w": "unowned"}


def test_an_outage_does_not_age_a_start(bed: Bed) -> None:
    bed.engine("a")
    bed.start()
    bed.advance(timedelta(hours=1))
    bed.beat("a")
    assert bed.candidates() == {}


def test_a_workflow_of_a_silent_holder_is_a_candidate_due_parked_or_running(bed: Bed) -> None:
    bed.engine("a")
    bed.engine("b")
    bed.held("due")
    bed.parked("parked")
    bed.held("running")
    bed.begin("running")
    bed.held("of b", "b")
    for _ in range(8):
        bed.live_through(R, "b")
        bed.dispatch("of b")
        bed.begin("of b")
        bed.park("of b", "paid")
        bed.signal("of b", "paid")
        bed.dispatch("of b")
    assert [kind for kind in bed.candidates().values() if kind == "silent-holder"] == []
    bed.advance(MS)
    silent = {workflow_id for workflow_id, kind in bed.candidates().items() if kind == "silent-holder"}
    assert silent == {"due", "parked", "running"}


@pytest.mark.parametrize("lost", ["stopped", "removed"])
def test_the_workflows_of_a_stopped_or_vanished_holder_are_candidates_at_once(two: Bed, lost: str) -> None:
    two.parked("parked")
    if lost == "stopped":
        two.engines.stop("a")
    else:
        two.remove_engine("a")
    assert two.candidates() == {"w": "silent-holder", "parked": "silent-holder"}


def test_a_due_workflow_is_overdue_when_its_message_is_more_than_R_old(two: Bed) -> None:
    two.live_through(R, "a", "b")
    assert two.candidates() == {}
    two.advance(MS)
    assert two.candidates() == {"w": "overdue"}


def test_a_turn_that_runs_is_not_overdue_however_long_it_takes(two: Bed) -> None:
    two.begin("w", "task")
    for _ in range(20):
        two.advance(R)
        two.beat("a", in_hand=["task"])
        two.beat("b")
    assert two.candidates() == {}


def test_a_turn_whose_process_died_is_dispatched_again_after_two_heartbeats(two: Bed) -> None:
    two.begin("w", "task")
    two.live_through(R + MS, "b")
    two.beat("a")
    assert two.candidates() == {}
    two.beat("a")
    assert two.candidates() == {"w": "overdue"}


def test_a_parked_workflow_is_no_candidate(two: Bed) -> None:
    two.begin()
    two.park("w", "paid")
    two.live_through(10 * R, "a", "b")
    assert two.candidates() == {}


def test_a_deaf_holders_due_workflow_is_a_candidate_and_its_parked_one_is_not(two: Bed) -> None:
    two.parked("parked", "a", "paid")
    two.leave_unanswered("w", DEAF_AFTER - 1, by="a")
    assert two.candidates() == {}
    two.leave_unanswered("w", 1, by="a")
    assert two.candidates() == {"w": "deaf-holder"}


# -- counting dispatches (O9, O12) -------------------------------------------------------------------------------------


def test_a_dispatch_makes_the_next_one_overdue_R_later(two: Bed) -> None:
    two.live_through(R + MS, "a", "b")
    two.dispatch()
    assert two.candidates() == {}
    two.live_through(R, "a", "b")
    assert two.candidates() == {}
    two.advance(MS)
    assert two.candidates() == {"w": "overdue"}


def test_only_a_dispatch_whose_forerunner_was_followed_by_a_heartbeat_with_free_slots_counts_as_unanswered(
    two: Bed,
) -> None:
    two.dispatch()
    assert (two.row().dispatches, two.row().unanswered) == (1, 0), "no heartbeat since the first message"
    two.advance(R)
    two.beat("a", free_slots=0)
    two.dispatch()
    assert (two.row().dispatches, two.row().unanswered) == (2, 0), "all its slots are busy"
    two.advance(R)
    two.beat("b")
    two.dispatch()
    assert (two.row().dispatches, two.row().unanswered) == (3, 0), "it has not beaten, so it is not known to listen"
    two.advance(R)
    two.beat("a", free_slots=1)
    two.dispatch()
    assert (two.row().dispatches, two.row().unanswered) == (4, 1)


def test_a_dispatch_of_a_message_that_no_longer_matches_counts_nothing(two: Bed) -> None:
    message = two.message()
    two.live_through(R + MS, "a", "b")
    for changes in ({"epoch": 0}, {"turn": 1}, {"engine_id": "b"}, {"run_id": "0" * 32}, {"workflow_id": "nobody"}):
        two.reclaim.note_dispatch(TurnMessage(**{**fields_of(message), **changes}))
    assert two.row().dispatches == 0
    two.begin()
    two.reclaim.note_dispatch(message)
    assert two.row().dispatches == 0, "a begin has answered it"
    two.park("w", "paid")
    two.dispatch()
    assert two.row().dispatches == 0, "it is not due"


def fields_of(message: TurnMessage) -> dict[str, object]:
    return {name: getattr(message, name) for name in TurnMessage.__slots__}


def test_dispatches_come_every_R_until_the_holder_would_be_deaf_and_then_ever_less_often(bed: Bed) -> None:
    """The holder has no free slot, so it is not deaf: it is busy."""
    bed.engine("a")
    bed.held()
    waits = {}
    for dispatches in (
        0,
        DEAF_AFTER,
        2 * DEAF_AFTER - 1,
        2 * DEAF_AFTER,
        3 * DEAF_AFTER,
        4 * DEAF_AFTER,
        9 * DEAF_AFTER,
    ):
        while bed.row().dispatches < dispatches:
            bed.dispatch()
        waited = timedelta(0)
        while not bed.candidates():
            bed.advance(R)
            bed.beat("a", free_slots=0)
            waited += R
        waits[dispatches] = waited - R  # "more than": at steps of R it is overdue one step later
        bed.dispatch()
    assert waits == {0: R, 8: R, 15: R, 16: 2 * R, 24: 4 * R, 32: 8 * R, 72: 8 * R}
    assert bed.row().unanswered == 0


# -- what the pass does ------------------------------------------------------------------------------------------------


def test_a_silent_holders_workflow_moves_and_the_new_holder_is_told(two: Bed) -> None:
    two.engines.stop("a")
    assert reclaim(two) == {"w": "reclaimed"}
    assert two.row().engine_id == "b"
    assert two.sent == [two.message()]


def test_a_parked_workflow_moves_and_nobody_is_told(two: Bed) -> None:
    two.begin()
    two.park("w", "paid")
    two.engines.stop("a")
    assert reclaim(two) == {"w": "reclaimed"}
    assert two.sent == []
    assert not two.row().is_due


def test_an_overdue_dispatch_is_sent_again_to_the_same_holder_and_counted(two: Bed) -> None:
    two.live_through(R + MS, "a", "b")
    assert reclaim(two) == {"w": "redispatched"}
    assert two.sent == [two.message()]
    assert (two.row().engine_id, two.row().epoch, two.row().dispatches) == ("a", 1, 1)
    assert reclaim(two) == {}


def test_a_started_workflow_whose_message_was_lost_is_placed(bed: Bed) -> None:
    bed.engine("a")
    bed.start()
    bed.live_through(R + MS, "a")
    assert reclaim(bed) == {"w": "reclaimed"}
    assert bed.sent == [bed.message()]


def test_a_released_parked_workflow_is_placed_and_stays_parked(bed: Bed) -> None:
    bed.engine("a")
    bed.claims.release(bed.parked())
    assert reclaim(bed) == {"w": "reclaimed"}
    assert bed.row().engine_id == "a"
    assert bed.sent == []


def test_a_dead_engines_workflows_spread_evenly_over_the_live_ones(bed: Bed) -> None:
    for engine_id in ("a", "b", "c", "d"):
        bed.engine(engine_id)
    for n in range(12):
        bed.parked(f"w{n}", "a")
    for n in range(3):
        bed.parked(f"b{n}", "b")
    bed.engines.stop("a")
    assert set(reclaim(bed).values()) == {"reclaimed"}
    assert Counter(bed.row(f"w{n}").engine_id for n in range(12)) == {"b": 2, "c": 5, "d": 5}


def test_a_workflow_goes_only_to_an_engine_that_knows_its_type(two: Bed) -> None:
    for n in range(3):
        two.engine(f"c{n}", "invoice")
    two.parked("busy", "b")
    two.engines.stop("a")
    assert reclaim(two) == {"w": "reclaimed"}
    assert two.row().engine_id == "b"


def test_without_an_engine_that_takes_it_a_workflow_stays_where_it_is(two: Bed) -> None:
    two.engines.stop("a")
    two.engines.drain("b")
    assert reclaim(two) == {"w": "not-eligible"}
    assert (two.row().engine_id, two.row().epoch) == ("a", 1)


def test_a_holder_that_came_back_between_the_list_and_the_try_keeps_its_claim(two: Bed) -> None:
    two.live_through(SILENCE + MS, "b")
    target = two.targets().reclaim
    (candidate,) = target.list_reclaim_candidate_workflow_ids()
    two.beat("a")
    assert target.attempt_workflow_claim_takeover(candidate).status is ReclaimStatus.NOT_ELIGIBLE
    assert two.row().epoch == 1


def test_a_target_that_was_lost_between_the_list_and_the_try_is_replaced_by_another(two: Bed) -> None:
    two.engine("c")
    two.parked("more", "c")
    two.engines.stop("a")
    target = two.targets().reclaim
    (candidate,) = target.list_reclaim_candidate_workflow_ids()
    two.engines.drain("b")
    first = target.attempt_workflow_claim_takeover(candidate)
    assert (first.status, first.retry) == (ReclaimStatus.LOST_RACE, True)
    assert target.attempt_workflow_claim_takeover(candidate).status is ReclaimStatus.RECLAIMED
    assert two.row().engine_id == "c"


def test_a_workflow_that_somebody_else_moved_is_a_lost_race(two: Bed) -> None:
    two.engine("c")
    two.engines.stop("a")
    first, second = two.targets().reclaim, two.targets().reclaim
    (candidate,) = first.list_reclaim_candidate_workflow_ids()
    second.list_reclaim_candidate_workflow_ids()
    assert first.attempt_workflow_claim_takeover(candidate).status is ReclaimStatus.RECLAIMED
    lost = second.attempt_workflow_claim_takeover(candidate)
    assert (lost.status, lost.retry) == (ReclaimStatus.LOST_RACE, False)
    assert two.row().epoch == 2


def test_the_deposed_engine_is_not_offered_the_workflow_again_until_the_cooldown_has_passed(bed: Bed) -> None:
    for engine_id in ("a", "b", "c"):
        bed.engine(engine_id)
    for n in range(5):
        bed.parked(f"c{n}", "c")
    bed.held("w", "a")
    bed.live_through(SILENCE + MS, "b", "c")
    reclaim(bed)
    bed.beat("a")
    assert bed.row().engine_id == "b"
    bed.claims.release_all("b")
    assert reclaim(bed)["w"] == "reclaimed"
    assert bed.row().engine_id == "b", "a has no claims at all, but it lost this one just now"
    bed.claims.release_all("b")
    bed.parked("more", "b")
    bed.live_through(T + MS, "a", "b", "c")
    reclaim(bed)
    assert bed.row().engine_id == "a"


def test_the_deposed_engine_gets_it_if_no_other_can_take_it(two: Bed) -> None:
    two.live_through(SILENCE + MS, "b")
    reclaim(two)
    two.engines.stop("b")
    two.beat("a")
    assert reclaim(two) == {"w": "reclaimed"}
    assert two.row().engine_id == "a"


def test_a_deaf_engine_is_marked_loses_its_due_workflows_and_keeps_the_parked_ones(two: Bed) -> None:
    two.parked("parked", "a", "paid")
    two.leave_unanswered("w", DEAF_AFTER, by="a")
    two.beat("b")
    assert reclaim(two) == {"w": "reclaimed"}
    assert (two.row("w").engine_id, two.row("parked").engine_id) == ("b", "a")
    assert [load.engine_id for load in two.reclaim.list_engines_taking_work()] == ["b"]


def test_an_engine_is_not_marked_as_deaf_while_no_other_can_take_over(two: Bed) -> None:
    two.leave_unanswered("w", DEAF_AFTER, by="a")
    two.engines.drain("b")
    assert reclaim(two) == {"w": "not-eligible"}
    assert [load.engine_id for load in two.reclaim.list_engines_taking_work()] == ["a"]


def test_a_due_workflow_of_a_deaf_engine_that_no_other_can_take_is_dispatched_again(two: Bed) -> None:
    two.engines.drain("b")
    two.leave_unanswered("w", DEAF_AFTER, by="a")
    assert reclaim(two) == {"w": "not-eligible"}
    two.live_through(2 * R + MS, "a")
    assert reclaim(two) == {"w": "redispatched"}
    assert two.sent == [two.message()]


def test_engines_that_are_found_deaf_in_the_same_pass_get_nothing_from_each_other(two: Bed) -> None:
    two.held("of b", "b")
    for _ in range(DEAF_AFTER):
        two.live_through(R + MS, "a", "b")
        two.dispatch("w")
        two.dispatch("of b")
    assert two.candidates() == {"w": "deaf-holder", "of b": "deaf-holder"}
    assert set(reclaim(two).values()) == {"not-eligible"}
    assert (two.row("w").engine_id, two.row("of b").engine_id) == ("a", "b")


def test_ten_candidates_that_always_fail_keep_fifty_good_ones_waiting_for_no_tick(bed: Bed) -> None:
    """Field report 75: no order and no page size makes the bad ones come first for ever."""
    bed.engine("a")
    bed.engine("b")
    bed.engine("odd", "exotic")
    for n in range(10):
        bed.acquired(bed.start(f"bad{n}", "exotic"), "odd")
    for n in range(50):
        bed.held(f"good{n}", "a")
    bed.engines.stop("odd")
    bed.engines.stop("a")
    assert Counter(reclaim(bed).values()) == {"reclaimed": 50, "not-eligible": 10}


# -- all four passes ---------------------------------------------------------------------------------------------------


def run_all(bed: Bed) -> RunOnceResult:
    return run_once(bed.targets(), context(), on_pass_complete=lambda _report: None)


def test_one_run_of_all_passes_renews_moves_and_wakes(two: Bed) -> None:
    two.parked("kept", "b", "paid")
    two.parked("timed", "b")
    two.begin_again("timed")
    two.park("timed", "never", timeout=timedelta(seconds=1))
    two.engines.stop("a")
    two.advance(timedelta(seconds=2))
    two.beat("b")

    result = run_all(two)

    assert result.failed == ()
    assert result.renewal.counts == {"renewed": 3}
    assert result.reclaim.counts == {"reclaimed": 1}
    assert result.signal_poll.counts == {"woken": 1}
    assert two.row("timed").is_due
    assert not two.row("kept").is_due


def test_a_second_run_finds_nothing_to_do_but_to_renew(two: Bed) -> None:
    two.engines.stop("a")
    run_all(two)
    again = run_all(two)
    assert again.renewal.counts == {"renewed": 1}
    assert again.reclaim.outcomes == again.signal_poll.outcomes == ()


def test_with_the_store_away_every_pass_says_so_and_nothing_is_given_up(two: Bed) -> None:
    with two.unreachable():
        result = run_all(two)
    assert set(result.failed) >= {"renewal", "reclaim", "signal-poll"}
    assert two.row().engine_id == "a"
    assert run_all(two).renewal.counts == {"renewed": 1}
