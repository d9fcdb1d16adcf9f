"""A turn begins by one conditional write, which opens the next attempt (O9, O10, O11), on both stores."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from beds import DEFAULTS, MS, START, G, StoreBed, parked
from sqlalchemy import update

from weft_tasks.model import TurnMessage, WorkflowStatus
from weft_tasks.store.tables import workflows
from weft_tasks.store.turns import SIGNALS_PER_TURN, BegunTurn, Discard

LIMIT = DEFAULTS.begun_turn_limit


@pytest.fixture
def bed(store_bed: StoreBed) -> StoreBed:
    """Engine a holds w, whose first turn is due."""
    store_bed.engine("a")
    store_bed.held()
    return store_bed


def begin(bed: StoreBed, message: TurnMessage | None = None, task_id: str = "task") -> BegunTurn | Discard:
    return bed.store.turns.begin(message or bed.message(), task_id)


def begun(bed: StoreBed, task_id: str = "task") -> BegunTurn:
    answer = begin(bed, task_id=task_id)
    assert isinstance(answer, BegunTurn), answer
    return answer


def send(bed: StoreBed, name: str, payload: object = None) -> int:
    return bed.store.signals.send("w", name, json.dumps(payload), key=None).receipt.number


def begin_and_crash(bed: StoreBed, times: int) -> None:
    """Begin a turn whose process dies, so that two heartbeats do not name it: as often as this."""
    for _ in range(times):
        begun(bed)
        bed.beat("a", "a")


# -- what it opens ----------------------------------------------------------------------------------------------------


def test_a_begin_opens_an_attempt_and_gives_the_turn_what_the_row_has(bed: StoreBed) -> None:
    bed.advance(timedelta(seconds=2))
    turn = begun(bed)
    assert (turn.workflow_id, turn.type, turn.run_id) == ("w", "permit", bed.message().run_id)
    assert (turn.engine_id, turn.epoch, turn.turn, turn.attempt, turn.tries) == ("a", 1, 0, 1, 0)
    assert (turn.input, turn.state_json, turn.signals, turn.waits) == (None, "{}", (), ())
    assert turn.began_at == START + timedelta(seconds=2)
    assert turn.has_work
    row = bed.row()
    assert (row.attempt_open, row.begun, row.is_due) == (True, 1, True)


def test_a_begun_turn_stays_due_until_something_commits(bed: StoreBed) -> None:
    begun(bed)
    assert bed.row().is_due


def test_a_begin_answers_the_dispatches_and_clears_the_mark_of_a_deaf_engine_alone(bed: StoreBed) -> None:
    bed.engine("b")
    for engine_id in ("a", "b"):
        bed.engines.mark_deaf(engine_id)
    bed.leave_unanswered("w", 2, by="a")
    begun(bed)
    assert (bed.row().dispatches, bed.row().unanswered) == (0, 0)
    assert {e.id: e.is_deaf for e in bed.engines.list()} == {"a": False, "b": True}


def test_a_live_engine_begins_although_its_heartbeat_is_late(bed: StoreBed) -> None:
    bed.engine("b")
    bed.live_through(2 * G, "b")
    begun(bed)


# -- what it refuses (O10) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"workflow_id": "nobody"}, Discard.NO_WORKFLOW),
        ({"run_id": "0" * 32}, Discard.OTHER_RUN),
        ({"engine_id": "b"}, Discard.OTHER_OWNER),
        ({"engine_id": None}, Discard.OTHER_OWNER),
        ({"epoch": 0}, Discard.OTHER_OWNER),
        ({"epoch": 2}, Discard.OTHER_OWNER),
        ({"turn": 1}, Discard.OTHER_TURN),
        ({"turn": -1}, Discard.OTHER_TURN),
    ],
    ids=lambda value: str(value),
)
def test_a_message_that_does_not_match_the_row_is_discarded_and_changes_nothing(
    bed: StoreBed, changes: dict[str, object], reason: Discard
) -> None:
    bed.engine("b")
    before = bed.everything()
    assert begin(bed, replace(bed.message(), **changes)) is reason
    assert bed.everything() == before


def test_the_message_of_a_new_workflow_begins_nothing_before_somebody_has_acquired_it(store_bed: StoreBed) -> None:
    message = store_bed.start()
    assert begin(store_bed, message) is Discard.ENGINE_NOT_LIVE
    assert not store_bed.row().attempt_open


def test_a_workflow_that_has_ended_begins_nothing(bed: StoreBed) -> None:
    message = bed.message()
    bed.begin()
    bed.end()
    assert begin(bed, message) is Discard.NOT_RUNNING


def test_a_workflow_that_was_set_aside_begins_nothing_even_with_all_the_rest_in_place(bed: StoreBed) -> None:
    bed.write(update(workflows).values(status=WorkflowStatus.SET_ASIDE))
    assert begin(bed) is Discard.NOT_RUNNING


def test_a_parked_workflow_begins_nothing(bed: StoreBed) -> None:
    bed.begin()
    bed.park("w", "paid")
    assert begin(bed) is Discard.NOT_DUE


def test_a_message_of_the_turn_before_is_discarded(bed: StoreBed) -> None:
    message = bed.message()
    bed.begin()
    bed.park("w", "paid")
    bed.signal("w", "paid")
    assert begin(bed, message) is Discard.OTHER_TURN
    begun(bed)


def test_a_turn_that_is_to_be_tried_later_does_not_begin_sooner(bed: StoreBed) -> None:
    bed.store.turns.retry_later(begun(bed), '{"type": "E"}', timedelta(seconds=7))
    bed.advance(timedelta(seconds=7) - MS)
    assert begin(bed) is Discard.TOO_EARLY
    bed.advance(MS)
    begun(bed)


@pytest.mark.parametrize("verb", ["drain", "stop"])
def test_an_engine_that_drains_or_has_stopped_begins_nothing(bed: StoreBed, verb: str) -> None:
    getattr(bed.engines, verb)("a")
    assert begin(bed) is Discard.ENGINE_NOT_LIVE
    assert not bed.row().attempt_open


def test_an_engine_without_a_row_begins_nothing(bed: StoreBed) -> None:
    bed.remove_engine("a")
    assert begin(bed) is Discard.ENGINE_NOT_LIVE


# -- one open attempt ------------------------------------------------------------------------------------------------


def test_a_doubled_message_begins_once(bed: StoreBed) -> None:
    message = bed.message()
    begun(bed)
    assert begin(bed, message, "other task") is Discard.IN_HAND
    assert bed.read().attempt == 1


def test_an_attempt_is_over_after_two_heartbeats_that_did_not_name_it_and_not_after_one(bed: StoreBed) -> None:
    first = begun(bed)
    bed.beat("a")
    assert begin(bed) is Discard.IN_HAND
    bed.beat("a")
    second = begun(bed)
    assert (first.attempt, second.attempt) == (1, 2)
    assert (first.turn, first.epoch) == (second.turn, second.epoch)


@pytest.mark.parametrize(
    "beats",
    [
        [["task"], []],
        [[], ["task"]],
        [["task"], ["task"]],
        [[], [], ["task"]],
        [[], [], ["task"], []],
        [["other", "task", "third"], ["task"]],
    ],
    ids=str,
)
def test_an_attempt_that_one_of_the_latest_two_heartbeats_named_is_in_hand(
    bed: StoreBed, beats: list[list[str]]
) -> None:
    begun(bed)
    for in_hand in beats:
        bed.beat("a", in_hand=in_hand)
    assert begin(bed) is Discard.IN_HAND


def test_heartbeats_before_the_begin_do_not_count_against_it(bed: StoreBed) -> None:
    bed.beat("a", "a", "a")
    begun(bed)
    bed.beat("a")
    assert begin(bed) is Discard.IN_HAND


def test_heartbeats_of_other_engines_say_nothing_about_an_attempt(bed: StoreBed) -> None:
    bed.engine("b")
    begun(bed)
    bed.beat("b", "b", "b")
    assert begin(bed) is Discard.IN_HAND


@pytest.mark.parametrize(
    ("task_id", "others"),
    [
        ("task", ["task2", "my-task", "TASK", "tas_"]),
        ('q"uote', ["quote", 'q"', "uote"]),
        ("100%", ["100 and more", "1000"]),
        ("a_b", ["axb"]),
        ("back\\slash", ["back", "slash", "back\\\\slash"]),
        ("ünïcode", ["unicode"]),
    ],
)
def test_a_task_is_named_by_its_whole_id_and_by_nothing_that_only_looks_like_it(
    bed: StoreBed, task_id: str, others: list[str]
) -> None:
    begun(bed, task_id)
    bed.beat("a", "a", in_hand=[*others, task_id])
    assert begin(bed) is Discard.IN_HAND
    bed.beat("a", "a", in_hand=others)
    begun(bed)


def test_a_takeover_needs_no_heartbeats_to_end_the_attempt(bed: StoreBed) -> None:
    bed.engine("b")
    first = begun(bed)
    bed.engines.stop("a")
    bed.claims.take_over("w", first.run_id, "a", 1, "b")
    second = begun(bed)
    assert (second.engine_id, second.epoch, second.attempt) == ("b", 2, 2)


# -- the horizon ------------------------------------------------------------------------------------------------------


def test_a_later_attempt_is_given_what_the_first_one_saw_and_the_same_time(bed: StoreBed) -> None:
    seen = send(bed, "paid", 1)
    first = begun(bed)
    late = send(bed, "paid", 2)
    bed.advance(timedelta(seconds=3))
    bed.beat("a", "a")
    second = begun(bed)
    assert [s.number for s in first.signals] == [s.number for s in second.signals] == [seen]
    assert first.began_at == second.began_at
    assert late > second.horizon == first.horizon


def test_the_horizon_survives_a_takeover(bed: StoreBed) -> None:
    bed.engine("b")
    seen = send(bed, "paid")
    first = begun(bed)
    send(bed, "paid")
    bed.engines.stop("a")
    bed.claims.take_over("w", first.run_id, "a", 1, "b")
    second = begun(bed)
    assert [s.number for s in second.signals] == [seen]
    assert (second.horizon, second.began_at) == (first.horizon, first.began_at)


def test_the_next_turn_has_a_horizon_of_its_own(bed: StoreBed) -> None:
    first = begun(bed)
    late = send(bed, "paid")
    bed.store.turns.commit(first, parked("paid"))
    assert [s.number for s in begun(bed).signals] == [late]


def test_a_deadline_that_passes_between_two_attempts_is_not_seen_by_the_second(bed: StoreBed) -> None:
    bed.begin()
    bed.park("w", "paid", timeout=timedelta(seconds=10))
    bed.signal("w", "paid")
    first = begun(bed)
    bed.advance(timedelta(seconds=20))
    bed.beat("a", "a")
    second = begun(bed)
    assert first.expired_waits == second.expired_waits == ()


def test_signals_are_given_in_the_order_of_their_numbers_with_what_was_sent(bed: StoreBed) -> None:
    sent = [("paid", {"n": 1}), ("note", "é\u0000"), ("paid", [None, 2.5])]
    for name, payload in sent:
        send(bed, name, payload)
    turn = begun(bed)
    assert [(s.name, s.payload) for s in turn.signals] == sent
    assert [s.number for s in turn.signals] == sorted(s.number for s in turn.signals)
    assert turn.signals[0].sent_at == START


def test_a_turn_sees_a_bounded_number_of_signals_and_knows_that_there_are_more(bed: StoreBed) -> None:
    bed.many_signals("w", "paid", SIGNALS_PER_TURN + 1)
    turn = begun(bed)
    assert len(turn.signals) == SIGNALS_PER_TURN
    assert turn.signals[0].number == 1
    assert turn.has_more


def test_a_turn_that_sees_all_signals_does_not_think_that_there_are_more(bed: StoreBed) -> None:
    bed.many_signals("w", "paid", SIGNALS_PER_TURN)
    turn = begun(bed)
    assert len(turn.signals) == SIGNALS_PER_TURN
    assert not turn.has_more


def test_an_awaited_signal_is_seen_behind_any_number_of_signals_that_nobody_takes(bed: StoreBed) -> None:
    bed.begin()
    bed.park("w", "paid", "refused")
    bed.many_signals("w", "note", SIGNALS_PER_TURN + 1)
    paid = send(bed, "paid")
    turn = begun(bed)
    assert turn.has_work
    assert turn.signals[-1].number == paid
    assert [s.number for s in turn.signals[:-1]] == list(range(1, SIGNALS_PER_TURN))
    assert turn.has_more


def test_a_turn_that_has_only_signals_that_it_does_not_wait_for_settles_and_stays_settled(bed: StoreBed) -> None:
    """Or it would begin again at once, for ever."""
    bed.begin()
    bed.park("w", "paid")
    bed.many_signals("w", "note", SIGNALS_PER_TURN + 1)
    bed.write(update(workflows).values(due=True))
    turn = begun(bed)
    assert not turn.has_work
    assert bed.store.turns.settle(turn).next_message is None
    assert not bed.row().is_due


# -- poison (O11) -----------------------------------------------------------------------------------------------------


def test_a_workflow_is_set_aside_by_the_begin_after_the_last_one_allowed(bed: StoreBed) -> None:
    begin_and_crash(bed, LIMIT)
    message = bed.message()

    assert begin(bed) is Discard.SET_ASIDE

    info = bed.store.workflows.describe("w")
    assert (info.status, info.engine_id, info.epoch, info.is_due) == (WorkflowStatus.SET_ASIDE, None, 2, False)
    assert info.error == {
        "type": "SetAside",
        "message": f"{LIMIT} turns began in a row and none committed; the last on engine a",
    }
    assert bed.claim() is None
    assert not bed.row().attempt_open
    (entry,) = bed.store.history.list(event="set-aside")
    assert (entry.workflow_id, entry.engine_id, entry.epoch) == ("w", "a", 2)
    assert begin(bed, message) is Discard.NOT_RUNNING


def test_a_workflow_is_not_set_aside_while_its_last_attempt_may_still_run(bed: StoreBed) -> None:
    begin_and_crash(bed, LIMIT - 1)
    last = begun(bed)
    assert begin(bed) is Discard.IN_HAND
    assert bed.store.turns.commit(last, parked("paid")).status == "won"


def test_a_message_that_names_something_else_sets_nothing_aside(bed: StoreBed) -> None:
    begin_and_crash(bed, LIMIT)
    assert begin(bed, replace(bed.message(), epoch=0)) is Discard.OTHER_OWNER
    assert bed.row().status is WorkflowStatus.RUNNING


@pytest.mark.parametrize("ending", ["commit", "settle", "retry_later"])
def test_a_turn_that_ends_in_any_way_starts_the_count_anew(bed: StoreBed, ending: str) -> None:
    begin_and_crash(bed, LIMIT - 1)
    turn = begun(bed)
    if ending == "commit":
        bed.store.turns.commit(turn, replace(parked("paid"), wants_more=True))
    elif ending == "settle":
        bed.store.turns.settle(turn)
        bed.write(update(workflows).values(due=True))
    else:
        bed.store.turns.retry_later(turn, "{}", timedelta(0))
    assert bed.row().begun == 0
    begin_and_crash(bed, LIMIT)
    assert begin(bed) is Discard.SET_ASIDE


def test_turns_that_killed_one_engine_after_the_other_count_together(bed: StoreBed) -> None:
    for n in range(LIMIT):
        turn = begun(bed)
        bed.engine(f"b{n}")
        bed.engines.stop(turn.engine_id)
        assert bed.claims.take_over("w", turn.run_id, turn.engine_id, turn.epoch, f"b{n}").answer == "won"
    assert begin(bed) is Discard.SET_ASIDE


def test_takeovers_of_a_workflow_whose_turn_never_began_do_not_count(bed: StoreBed) -> None:
    for n in range(3 * LIMIT):
        message = bed.message()
        bed.engine(f"b{n}")
        bed.engines.stop(message.engine_id)
        bed.claims.take_over("w", message.run_id, message.engine_id, message.epoch, f"b{n}")
    begun(bed)


def test_turns_that_a_clean_stop_aborted_do_not_count(bed: StoreBed) -> None:
    for _ in range(3 * LIMIT):
        begun(bed)
        bed.claims.release_all("a")
        bed.acquired(bed.message(), "a")
    assert bed.row().begun == 0


def test_turns_that_somebody_suspended_do_not_count(bed: StoreBed) -> None:
    for _ in range(3 * LIMIT):
        begun(bed)
        bed.store.lifecycle.suspend("w")
        bed.store.lifecycle.resume("w")
        bed.acquired(bed.message(), "a")
    assert bed.row().begun == 0


def test_a_suspend_takes_nothing_off_the_count_of_a_turn_that_is_not_open(bed: StoreBed) -> None:
    begin_and_crash(bed, 2)
    bed.store.lifecycle.suspend("w")
    assert bed.row().begun == 1, "the last attempt was open, and what had become of it nobody knew"
    bed.store.lifecycle.resume("w")
    bed.store.lifecycle.suspend("w")
    assert bed.row().begun == 1


def test_a_signal_for_a_workflow_that_is_set_aside_is_kept(bed: StoreBed) -> None:
    begin_and_crash(bed, LIMIT)
    begin(bed)
    send(bed, "paid")
    assert bed.store.workflows.describe("w").pending_signals == 1
