"""Takeover repeats every condition of O4 in the statement that writes: on the fake and on both stores."""

from __future__ import annotations

from datetime import timedelta

import pytest
from beds import DEAF_AFTER, MS, Bed, G, R, StoreBed, T
from sqlalchemy import select, update

from weft_tasks.model import WorkflowStatus
from weft_tasks.store.claims import Grant
from weft_tasks.store.tables import history, workflows

SILENCE = T + G


def take_over(bed: Bed, workflow_id: str = "w", to: str = "b", **changes: object) -> Grant:
    """A try at moving the workflow, named as its row is now but for the changes."""
    message = bed.message(workflow_id)
    named = {"run_id": message.run_id, "holder": message.engine_id, "epoch": message.epoch, **changes}
    grant: Grant = bed.claims.take_over(workflow_id, target=to, **named)
    return grant


def assert_still_held(bed: Bed, by: str = "a", epoch: int = 1, workflow_id: str = "w") -> None:
    assert (bed.row(workflow_id).engine_id, bed.row(workflow_id).epoch) == (by, epoch)
    assert (bed.claim(workflow_id).engine_id, bed.claim(workflow_id).epoch) == (by, epoch)


@pytest.fixture
def two(bed: Bed) -> Bed:
    """Engines a and b; a holds w, which is due and has no turn yet."""
    bed.engine("a")
    bed.engine("b")
    bed.held()
    return bed


# -- who is silent -----------------------------------------------------------------------------------------------------


def test_a_holder_silent_for_exactly_T_plus_G_keeps_its_claim_and_one_millisecond_later_loses_it(two: Bed) -> None:
    two.live_through(SILENCE, "b")
    assert take_over(two).answer == "not-eligible"
    assert_still_held(two)

    two.advance(MS)
    assert take_over(two) == Grant(answer="won", epoch=2, turn=0, is_due=True, silent_for=SILENCE + MS)
    assert_still_held(two, by="b", epoch=2)


def test_a_holder_that_beats_keeps_its_claim_although_nobody_renews_it(two: Bed) -> None:
    two.live_through(3 * SILENCE, "a", "b")
    assert two.claim().expires_at < two.claim().claimed_at + SILENCE
    assert take_over(two).answer == "not-eligible"
    assert_still_held(two)


def test_a_holder_that_beats_again_at_the_last_moment_keeps_its_claim(two: Bed) -> None:
    two.live_through(SILENCE + timedelta(seconds=60), "b")
    two.beat("a")
    assert take_over(two).answer == "not-eligible"


def test_a_stopped_holder_is_silent_at_once(two: Bed) -> None:
    two.engines.stop("a")
    two.advance(MS)
    grant = take_over(two)
    assert (grant.answer, grant.silent_for) == ("won", MS)


def test_a_holder_whose_row_is_gone_is_silent_at_once(two: Bed) -> None:
    two.remove_engine("a")
    grant = take_over(two)
    assert (grant.answer, grant.silent_for) == ("won", None)


def test_a_draining_holder_is_not_silent_while_it_beats(two: Bed) -> None:
    two.engines.drain("a")
    two.live_through(SILENCE + MS, "a", "b")
    assert take_over(two).answer == "not-eligible"


def test_a_draining_holder_that_falls_silent_loses_its_claim_like_any_other(two: Bed) -> None:
    two.engines.drain("a")
    two.live_through(SILENCE, "b")
    assert take_over(two).answer == "not-eligible"
    two.advance(MS)
    assert take_over(two).answer == "won"


@pytest.mark.parametrize("outage", [SILENCE + MS, timedelta(hours=9)], ids=["41s", "9h"])
def test_an_outage_that_the_engines_survive_moves_no_claim_whoever_beats_first(two: Bed, outage: timedelta) -> None:
    two.advance(outage)
    assert take_over(two).answer == "no-target"  # b's heartbeat is as old as a's
    two.beat("b")
    assert take_over(two).answer == "not-eligible"
    two.advance(R)
    assert take_over(two).answer == "not-eligible"
    two.beat("a")
    two.live_through(SILENCE, "a", "b")
    assert take_over(two).answer == "not-eligible"


def test_a_step_of_the_databases_clock_moves_no_claim(two: Bed) -> None:
    for step in (timedelta(days=1), -timedelta(days=2), timedelta(days=1)):
        two.advance(step)
        two.beat("b")
        assert take_over(two).answer in ("not-eligible", "no-target")
    assert_still_held(two)


def test_a_dead_holder_is_found_although_the_databases_clock_was_set_back(two: Bed) -> None:
    two.advance(-timedelta(days=1))
    two.beat("b")
    two.live_through(SILENCE + MS, "b")
    assert take_over(two).answer == "won"


# -- what must be as the caller saw it -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"holder": "c"}, {"holder": "b"}, {"epoch": 0}, {"epoch": 2}, {"run_id": "0" * 32}],
    ids=["another holder", "the target itself", "an older epoch", "a newer epoch", "another run"],
)
def test_a_takeover_that_names_anything_wrong_is_lost(two: Bed, changes: dict[str, object]) -> None:
    two.engine("c")
    two.engines.stop("a")
    assert take_over(two, **changes).answer == "lost"
    assert_still_held(two)


def test_a_takeover_that_is_late_and_has_lost_its_target_is_late_above_all(two: Bed) -> None:
    """Another target would not help, so the pass must not try one after the other."""
    two.engines.stop("a")
    two.engines.drain("b")
    assert take_over(two, epoch=0).answer == "lost"
    assert take_over(two).answer == "no-target"


def test_a_workflow_without_a_holder_is_not_taken_over(two: Bed) -> None:
    two.claims.release_all("a")
    two.engines.stop("a")
    assert take_over(two, holder="a").answer == "lost"


def test_the_second_of_two_takeovers_of_one_list_is_lost_and_the_epoch_rises_once(two: Bed) -> None:
    two.engine("c")
    two.engines.stop("a")
    listed = {"holder": "a", "epoch": 1}
    assert take_over(two, to="b", **listed).answer == "won"
    assert take_over(two, to="c", **listed).answer == "lost"
    assert_still_held(two, by="b", epoch=2)


def test_a_workflow_that_does_not_run_is_not_taken_over_even_with_a_holder_left_in_its_row(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    store_bed.held()
    store_bed.engines.stop("a")
    store_bed.write(update(workflows).values(status=WorkflowStatus.SET_ASIDE))
    assert take_over(store_bed).answer == "not-eligible"
    assert store_bed.row().epoch == 1


# -- the target --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["drain", "stop", "mark_deaf"])
def test_a_target_that_drains_has_stopped_or_is_deaf_gets_nothing(two: Bed, verb: str) -> None:
    two.engines.stop("a")
    getattr(two.engines, verb)("b")
    assert take_over(two).answer == "no-target"
    assert_still_held(two)


def test_a_target_whose_row_is_gone_gets_nothing(two: Bed) -> None:
    two.engines.stop("a")
    two.remove_engine("b")
    assert take_over(two).answer == "no-target"
    assert_still_held(two)


def test_a_target_whose_heartbeat_is_older_than_G_gets_nothing(two: Bed) -> None:
    two.engine("c")
    two.engines.stop("a")
    two.live_through(G + MS, "c")
    assert take_over(two, to="b").answer == "no-target"
    assert take_over(two, to="c").answer == "won"


def test_a_target_that_does_not_know_the_type_gets_nothing(two: Bed) -> None:
    two.engine("c", "invoice")
    two.engines.stop("a")
    assert take_over(two, to="c").answer == "no-target"
    assert_still_held(two)


# -- what moves --------------------------------------------------------------------------------------------------------


def test_the_new_claim_ends_T_after_the_targets_last_heartbeat(two: Bed) -> None:
    two.engines.stop("a")
    two.beat("b")
    two.advance(timedelta(seconds=3))
    take_over(two)
    assert two.claim().expires_at == two.claim().claimed_at - timedelta(seconds=3) + T


def test_a_parked_workflow_that_moves_stays_parked_at_its_turn(two: Bed) -> None:
    two.begin()
    two.park("w", "paid")
    two.engines.stop("a")

    assert take_over(two) == Grant(answer="won", epoch=2, turn=1, is_due=False, silent_for=timedelta(0))

    assert not two.row().is_due
    assert two.candidates() == {}
    two.signal("w", "paid")
    assert two.row().is_due


def test_an_open_attempt_ends_with_the_takeover_and_its_turn_may_begin_at_once(two: Bed) -> None:
    two.begin()
    two.engines.stop("a")
    take_over(two)
    assert not two.row().attempt_open
    assert (two.row().is_due, two.row().turn) == (True, 0)
    two.begin()
    assert two.row().begun == 2, "the turn that the dead engine had begun counts (O11)"


def test_a_takeover_of_a_queued_workflow_does_not_count_as_a_begun_turn(two: Bed) -> None:
    two.engines.stop("a")
    take_over(two)
    assert two.row().begun == 0


def test_the_dispatches_to_the_deposed_engine_are_forgotten(two: Bed) -> None:
    two.leave_unanswered("w", 3, by="a")
    two.beat("b")
    assert (two.row().dispatches, two.row().unanswered) == (3, 3)
    two.engines.stop("a")
    assert take_over(two).answer == "won"
    assert (two.row().dispatches, two.row().unanswered) == (0, 0)


def test_the_one_who_took_over_sends_the_message_so_it_is_overdue_only_R_later(two: Bed) -> None:
    two.engines.stop("a")
    take_over(two)
    assert two.candidates() == {}
    two.live_through(R + MS, "b")
    assert two.candidates() == {"w": "overdue"}


def test_a_takeover_is_in_the_history_with_the_engine_that_lost(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    store_bed.held()
    store_bed.engines.stop("a")
    take_over(store_bed)

    (entry,) = store_bed.store.history.list(workflow_id="w")
    assert (entry.event, entry.engine_id, entry.epoch) == ("taken-over", "b", 2)
    assert entry.detail == {"node": "b@host", "from": "a", "from_node": "a@host", "reason": "stopped"}


def test_the_history_tells_why_a_holder_lost_its_workflow(store_bed: StoreBed) -> None:
    for engine_id in ("silent", "deaf", "gone", "b"):
        store_bed.engine(engine_id)
    store_bed.held("w-deaf", by="deaf")
    store_bed.held("w-silent", by="silent")
    store_bed.held("w-gone", by="gone")
    store_bed.leave_unanswered("w-deaf", DEAF_AFTER, by="deaf")
    store_bed.live_through(SILENCE, "b", "deaf")
    store_bed.remove_engine("gone")
    for workflow_id in ("w-silent", "w-deaf", "w-gone"):
        assert take_over(store_bed, workflow_id).answer == "won"

    told = {entry.workflow_id: entry.detail for entry in store_bed.store.history.list(event="taken-over")}
    assert told["w-silent"]["reason"] == "silent"
    assert told["w-silent"]["silent_ms"] > SILENCE / MS
    assert (told["w-deaf"]["reason"], told["w-deaf"]["from_node"]) == ("deaf", "deaf@host")
    assert (told["w-gone"]["reason"], told["w-gone"]["from"]) == ("gone", "gone")


def test_a_takeover_that_is_not_won_leaves_no_entry_in_the_history(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    store_bed.held()
    take_over(store_bed)
    take_over(store_bed, holder="b")
    assert store_bed.rows(select(history)) == []


# -- the cooldown of O11 -------------------------------------------------------------------------------------------


def test_the_deposed_engine_is_named_in_the_list_until_T_has_passed(two: Bed) -> None:
    two.engines.stop("a")
    take_over(two)
    two.live_through(T, "b")
    assert [c.deposed_engine_id for c in two.reclaim.list_reclaim_candidates()] == ["a"]
    two.advance(MS)
    assert [c.deposed_engine_id for c in two.reclaim.list_reclaim_candidates()] == [None]


# -- deafness (O12) ----------------------------------------------------------------------------------------------------


def test_a_holder_that_left_all_but_one_of_the_dispatches_unanswered_keeps_its_claim_and_then_loses_it(
    two: Bed,
) -> None:
    two.leave_unanswered("w", DEAF_AFTER - 1, by="a")
    two.beat("b")
    assert take_over(two).answer == "not-eligible"
    two.leave_unanswered("w", 1, by="a")
    two.beat("b")
    assert take_over(two).answer == "won"


def test_a_parked_workflow_of_a_deaf_holder_stays(two: Bed) -> None:
    two.acquired(two.start("parked"), "a")
    two.begin("parked")
    two.park("parked", "paid")
    two.leave_unanswered("w", DEAF_AFTER, by="a")
    two.engines.mark_deaf("a")
    two.beat("b")
    assert take_over(two, "parked").answer == "not-eligible"
    assert_still_held(two, workflow_id="parked")


def test_a_turn_that_begins_after_all_keeps_the_claim(two: Bed) -> None:
    two.leave_unanswered("w", DEAF_AFTER, by="a")
    two.begin()
    two.beat("b")
    assert take_over(two).answer == "not-eligible"
    assert_still_held(two)


def test_a_turn_whose_process_died_on_an_engine_that_takes_no_more_turns_is_taken_over(two: Bed) -> None:
    """The attempt is still open in the row, but over: as much as nothing must not keep the workflow there for ever."""
    two.begin()
    two.beat("a", "a")
    two.leave_unanswered("w", DEAF_AFTER, by="a")
    assert two.candidates() == {"w": "deaf-holder"}
    two.beat("b")
    assert take_over(two).answer == "won"


def test_a_turn_that_is_in_hand_is_not_taken_over_whatever_was_left_unanswered_before(two: Bed) -> None:
    two.begin("w", "first")
    two.beat("a", "a")
    two.leave_unanswered("w", DEAF_AFTER, by="a")
    two.beat("a", "b", in_hand=["first"])
    assert take_over(two).answer == "not-eligible", "it was only slow to say so"


def test_one_unanswered_dispatch_is_enough_against_an_engine_that_is_marked_as_deaf(two: Bed) -> None:
    two.engines.mark_deaf("a")
    assert take_over(two).answer == "not-eligible"
    two.leave_unanswered("w", 1, by="a")
    two.beat("b")
    assert take_over(two).answer == "won"


def test_one_unanswered_dispatch_is_not_enough_against_an_engine_that_is_not_marked(two: Bed) -> None:
    two.leave_unanswered("w", 1, by="a")
    two.beat("b")
    assert take_over(two).answer == "not-eligible"


def test_nothing_moves_if_all_engines_are_deaf(two: Bed) -> None:
    two.leave_unanswered("w", DEAF_AFTER, by="a")
    two.engines.mark_deaf("a")
    two.beat("b")
    two.engines.mark_deaf("b")
    assert take_over(two, to="b").answer == "no-target"
    assert_still_held(two)


# -- claims whose engine nobody remembers (field report 67) -----------------------------------------------------------


@pytest.mark.parametrize("engine_id", ["", "never-heard-of", "x" * 255], ids=["empty", "unknown", "255 characters"])
def test_a_claim_of_an_engine_that_nobody_remembers_is_found_and_moves(store_bed: StoreBed, engine_id: str) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    store_bed.held()
    for table in ("weft_workflows", "weft_claims"):
        store_bed.execute(f"UPDATE {table} SET engine_id = :engine", engine=engine_id)

    assert store_bed.candidates() == {"w": "silent-holder"}
    assert take_over(store_bed).answer == "won"
    assert_still_held(store_bed, by="b", epoch=2)
