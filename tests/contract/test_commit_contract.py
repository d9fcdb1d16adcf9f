"""A turn's whole outcome commits under the fence, or nothing does (O1, O6, O8, O9), on both stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from beds import MS, START, R, StoreBed, parked
from breaking import failing_before
from sqlalchemy import select, update

from weft_tasks.errors import StoreUnavailable
from weft_tasks.model import TurnMessage, WorkflowStatus
from weft_tasks.store.endings import UNDELIVERABLE
from weft_tasks.store.tables import signals, turns, workflows
from weft_tasks.store.turns import BegunTurn, CommitAnswer, TurnOutcome


@pytest.fixture
def bed(store_bed: StoreBed) -> StoreBed:
    """Engine a holds w, whose first turn is due."""
    store_bed.engine("a")
    store_bed.held()
    return store_bed


def begun(bed: StoreBed) -> BegunTurn:
    answer = bed.store.turns.begin(bed.message(), "task")
    assert isinstance(answer, BegunTurn), answer
    return answer


def commit(bed: StoreBed, turn: BegunTurn, outcome: TurnOutcome | None = None) -> CommitAnswer:
    return bed.store.turns.commit(turn, outcome or parked("paid"))


def completed(**changes: object) -> TurnOutcome:
    return replace(TurnOutcome(status=WorkflowStatus.COMPLETED, state_json="{}"), **changes)


def send(bed: StoreBed, name: str = "paid") -> int:
    return bed.store.signals.send("w", name, "null", key=None).receipt.number


def fates(bed: StoreBed) -> dict[int, int | None]:
    """By the number of each signal, the turn that consumed it."""
    return dict(bed.rows(select(signals.c.number, signals.c.consumed_turn)))


# -- everything together ----------------------------------------------------------------------------------------------


def test_a_commit_writes_state_waits_and_consumed_signals_and_parks_the_workflow(bed: StoreBed) -> None:
    first, second = send(bed), send(bed)
    turn = begun(bed)
    bed.advance(timedelta(seconds=1))

    answer = commit(bed, turn, parked("paid", "note", consumed=[first], state='{"n":1}'))

    assert answer == CommitAnswer(status="won")
    info = bed.store.workflows.describe("w")
    assert (info.status, info.turn, info.state, info.is_due) == (WorkflowStatus.RUNNING, 1, {"n": 1}, False)
    assert [(w.name, w.deadline) for w in info.waits] == [("paid", None), ("note", None)]
    assert info.updated_at == START + timedelta(seconds=1)
    assert (info.engine_id, info.epoch) == ("a", 1)
    assert fates(bed) == {first: 0, second: None}
    assert (bed.row().attempt_open, bed.row().begun) == (False, 0)


def test_each_turn_that_committed_is_recorded_once_with_its_attempt_and_owner(bed: StoreBed) -> None:
    begun(bed)
    bed.beat("a", "a")
    commit(bed, begun(bed))
    bed.signal("w", "paid")
    commit(bed, begun(bed), completed())
    columns = (turns.c.turn, turns.c.attempt, turns.c.engine_id, turns.c.epoch, turns.c.outcome)
    assert bed.rows(select(*columns).order_by(turns.c.turn)) == [
        (0, 2, "a", 1, "parked"),
        (1, 3, "a", 1, "completed"),
    ]


def test_deadlines_count_from_the_commit_by_the_stores_clock(bed: StoreBed) -> None:
    turn = begun(bed)
    bed.advance(timedelta(seconds=100))
    outcome = replace(
        parked(), waits=(("paid", timedelta(seconds=60)), ("never", None), ("note", timedelta(seconds=30)))
    )
    commit(bed, turn, outcome)
    committed = START + timedelta(seconds=100)
    assert {w.name: w.deadline for w in bed.store.workflows.describe("w").waits} == {
        "paid": committed + timedelta(seconds=60),
        "never": None,
        "note": committed + timedelta(seconds=30),
    }
    assert bed.read().next_deadline_at - bed.read().waiting_since_at == 30_000


def test_an_ending_deletes_the_holder_and_says_when_and_with_what(bed: StoreBed) -> None:
    turn = begun(bed)
    bed.advance(timedelta(seconds=1))
    assert commit(bed, turn, completed(result='["done"]')) == CommitAnswer(status="won")
    info = bed.store.workflows.describe("w")
    assert (info.status, info.result, info.error) == (WorkflowStatus.COMPLETED, ["done"], None)
    assert (info.engine_id, info.epoch, info.is_due, info.waits) == (None, 1, False, ())
    assert info.ended_at == START + timedelta(seconds=1)
    assert bed.claim() is None


def test_a_failure_keeps_its_error(bed: StoreBed) -> None:
    outcome = TurnOutcome(status=WorkflowStatus.FAILED, state_json="{}", error='{"type": "Refused"}')
    commit(bed, begun(bed), outcome)
    info = bed.store.workflows.describe("w")
    assert (info.status, info.error, info.result) == (WorkflowStatus.FAILED, {"type": "Refused"}, None)


def test_the_error_of_an_earlier_try_is_gone_after_a_commit(bed: StoreBed) -> None:
    bed.store.turns.retry_later(begun(bed), '{"type": "E"}', timedelta(0))
    assert bed.store.workflows.describe("w").error == {"type": "E"}
    commit(bed, begun(bed))
    assert bed.store.workflows.describe("w").error is None
    bed.signal("w", "paid")
    assert begun(bed).tries == 0


# -- the fence (O1) ----------------------------------------------------------------------------------------------------


WRONG = [
    {"workflow_id": "other"},
    {"run_id": "0" * 32},
    {"engine_id": "b"},
    {"epoch": 0},
    {"epoch": 2},
    {"turn": -1},
    {"turn": 1},
    {"attempt": 0},
    {"attempt": 2},
]
ENDINGS = {
    "commit": lambda bed, turn: bed.store.turns.commit(turn, parked("paid", state='{"by":"nobody"}')),
    "end": lambda bed, turn: bed.store.turns.commit(turn, completed()),
    "settle": lambda bed, turn: bed.store.turns.settle(turn),
    "retry_later": lambda bed, turn: bed.store.turns.retry_later(turn, "{}", timedelta(seconds=1)),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_an_ending_that_names_anything_wrong_is_refused_and_changes_nothing(
    bed: StoreBed, wrong: dict[str, object], ending: str
) -> None:
    bed.engine("b")
    bed.held("other", "a")
    turn = begun(bed)
    send(bed)
    before = bed.everything()
    assert ENDINGS[ending](bed, replace(turn, **wrong)) == CommitAnswer(status="lost")
    assert bed.everything() == before


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_attempt_ends_once(bed: StoreBed, ending: str) -> None:
    turn = begun(bed)
    bed.store.turns.settle(turn)
    before = bed.everything()
    assert ENDINGS[ending](bed, turn).status == "lost"
    assert bed.everything() == before


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_attempt_whose_turn_began_again_is_refused(bed: StoreBed, ending: str) -> None:
    """Its engine stopped naming it for two heartbeats: slow, not dead. The same engine, the same epoch."""
    slow = begun(bed)
    bed.beat("a", "a")
    current = begun(bed)
    before = bed.everything()
    assert ENDINGS[ending](bed, slow).status == "lost"
    assert bed.everything() == before
    assert commit(bed, current).status == "won"


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_deposed_owner_is_refused_before_and_after_its_successor_begins(bed: StoreBed, ending: str) -> None:
    bed.engine("b")
    old = begun(bed)
    bed.engines.stop("a")
    bed.claims.take_over("w", old.run_id, "a", 1, "b")
    assert ENDINGS[ending](bed, old).status == "lost"
    new = begun(bed)
    before = bed.everything()
    assert ENDINGS[ending](bed, old).status == "lost"
    assert bed.everything() == before
    assert commit(bed, new).status == "won"


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_owner_that_lost_the_workflow_and_got_it_back_cannot_end_its_old_attempt(bed: StoreBed, ending: str) -> None:
    old = begun(bed)
    bed.claims.release_all("a")
    bed.acquired(bed.message(), "a")
    begun(bed)
    before = bed.everything()
    assert ENDINGS[ending](bed, old).status == "lost"
    assert bed.everything() == before


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_ends_a_turn_of_a_workflow_that_does_not_run(bed: StoreBed, ending: str) -> None:
    turn = begun(bed)
    bed.write(update(workflows).values(status=WorkflowStatus.SET_ASIDE))
    before = bed.everything()
    assert ENDINGS[ending](bed, turn).status == "lost"
    assert bed.everything() == before


def test_a_turn_commits_once(bed: StoreBed) -> None:
    turn = begun(bed)
    assert commit(bed, turn).status == "won"
    before = bed.everything()
    assert commit(bed, turn).status == "lost"
    assert commit(bed, turn, completed()).status == "lost"
    assert bed.everything() == before


@pytest.mark.parametrize("statement", range(1, 6))
def test_a_commit_that_breaks_off_before_any_of_its_statements_leaves_nothing(bed: StoreBed, statement: int) -> None:
    send(bed)
    send(bed)
    turn = begun(bed)
    outcome = completed(consumed=(1,), result="1")
    before = bed.everything()
    with failing_before(bed.store, statement), pytest.raises(StoreUnavailable):
        commit(bed, turn, outcome)
    assert bed.everything() == before
    assert commit(bed, turn, outcome).status == "won"


def test_a_commit_that_would_consume_a_signal_again_commits_nothing_at_all(bed: StoreBed) -> None:
    number = send(bed)
    turn = begun(bed)
    bed.write(update(signals).values(consumed_turn=7))
    before = bed.everything()
    with pytest.raises(StoreUnavailable):
        commit(bed, turn, parked("paid", consumed=[number], state='{"n":1}'))
    assert bed.everything() == before


# -- due again (O9) ----------------------------------------------------------------------------------------------------


def test_what_arrives_while_the_turn_runs_makes_the_next_one_due_at_once(bed: StoreBed) -> None:
    turn = begun(bed)
    number = send(bed, "anything")
    answer = commit(bed, turn)
    assert answer.next_message == TurnMessage(workflow_id="w", run_id=turn.run_id, engine_id="a", epoch=1, turn=1)
    assert bed.row().is_due
    assert [s.number for s in begun(bed).signals] == [number]


def test_a_turn_that_wants_more_is_followed_by_another(bed: StoreBed) -> None:
    answer = commit(bed, begun(bed), replace(parked("paid"), wants_more=True))
    assert answer.next_message is not None
    assert bed.row().is_due


def test_what_the_turn_had_seen_and_left_makes_nothing_due(bed: StoreBed) -> None:
    send(bed)
    assert commit(bed, begun(bed)).next_message is None
    assert not bed.row().is_due


def test_the_one_who_commits_sends_the_next_message_so_it_is_overdue_only_R_later(bed: StoreBed) -> None:
    commit(bed, begun(bed), replace(parked("paid"), wants_more=True))
    assert bed.candidates() == {}
    bed.live_through(R, "a")
    assert bed.candidates() == {}
    bed.live_through(MS, "a")
    assert bed.candidates() == {"w": "overdue"}


# -- a draining engine (O6) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["drain", "stop"])
def test_a_commit_on_an_engine_on_its_way_out_releases_the_claim(bed: StoreBed, verb: str) -> None:
    turn = begun(bed)
    getattr(bed.engines, verb)("a")
    assert commit(bed, turn) == CommitAnswer(status="won", is_released=True)
    assert (bed.row().engine_id, bed.row().epoch, bed.row().turn) == (None, 1, 1)
    assert bed.claim() is None


def test_a_due_workflow_released_by_its_commit_is_a_candidate_at_once_and_gets_no_message_to_the_old_engine(
    bed: StoreBed,
) -> None:
    turn = begun(bed)
    bed.engines.drain("a")
    answer = commit(bed, turn, replace(parked("paid"), wants_more=True))
    assert (answer.next_message, answer.is_released) == (None, True)
    assert bed.row().is_due
    assert bed.candidates() == {"w": "unowned"}


@pytest.mark.parametrize("ending", ["settle", "retry_later"])
def test_every_ending_on_a_draining_engine_releases_the_claim(bed: StoreBed, ending: str) -> None:
    turn = begun(bed)
    bed.engines.drain("a")
    assert ENDINGS[ending](bed, turn).is_released
    assert bed.claim() is None
    assert bed.candidates() == {"w": "unowned"}


def test_a_workflow_that_ends_on_a_draining_engine_wants_no_new_owner(bed: StoreBed) -> None:
    turn = begun(bed)
    bed.engines.drain("a")
    assert commit(bed, turn, completed()) == CommitAnswer(status="won")
    assert bed.candidates() == {}


# -- settle ------------------------------------------------------------------------------------------------------------


def test_a_turn_without_work_closes_with_its_number_its_waits_and_their_deadlines(bed: StoreBed) -> None:
    commit(bed, begun(bed), parked("paid", timeout=timedelta(hours=1)))
    before = bed.store.workflows.describe("w")
    bed.write(update(workflows).values(due=True))
    bed.advance(timedelta(seconds=1))

    turn = begun(bed)
    assert not turn.has_work
    assert bed.store.turns.settle(turn) == CommitAnswer(status="won")

    after = bed.store.workflows.describe("w")
    assert (after.turn, after.waits, after.is_due) == (1, before.waits, False)
    assert bed.rows(select(turns.c.turn)) == [(0,)]
    assert not bed.row().attempt_open


def test_what_arrives_while_a_turn_without_work_is_open_makes_it_due_again(bed: StoreBed) -> None:
    commit(bed, begun(bed))
    bed.write(update(workflows).values(due=True))
    turn = begun(bed)
    number = send(bed)
    answer = bed.store.turns.settle(turn)
    assert answer.next_message is not None
    assert answer.next_message.turn == 1
    again = begun(bed)
    assert [s.number for s in again.signals] == [number]
    assert again.has_work


# -- retry_later -----------------------------------------------------------------------------------------------------


def test_a_turn_that_is_tried_again_is_the_same_turn_with_the_same_signals_and_time(bed: StoreBed) -> None:
    seen = send(bed)
    first = begun(bed)
    answer = bed.store.turns.retry_later(first, '{"type": "E"}', timedelta(seconds=2))
    assert answer == CommitAnswer(status="won"), "nobody is to be told: it is not time yet"
    send(bed)
    bed.advance(timedelta(seconds=2))
    second = begun(bed)
    assert (second.turn, second.attempt, second.tries) == (0, 2, 1)
    assert [s.number for s in second.signals] == [seen]
    assert second.began_at == first.began_at
    assert second.has_work


def test_a_turn_that_waits_for_its_next_try_stays_due_and_is_dispatched_when_its_time_has_come(bed: StoreBed) -> None:
    bed.store.turns.retry_later(begun(bed), "{}", 3 * R)
    assert bed.row().is_due
    bed.live_through(3 * R - MS, "a")
    assert bed.candidates() == {}
    bed.live_through(MS, "a")
    assert bed.candidates() == {"w": "overdue"}


def test_a_try_that_consumed_signals_has_consumed_none_when_it_is_tried_again(bed: StoreBed) -> None:
    number = send(bed)
    bed.store.turns.retry_later(begun(bed), "{}", timedelta(0))
    assert fates(bed) == {number: None}


def test_a_successor_waits_for_the_time_of_the_next_try_as_well(bed: StoreBed) -> None:
    bed.engine("b")
    turn = begun(bed)
    bed.store.turns.retry_later(turn, "{}", timedelta(seconds=9))
    bed.engines.stop("a")
    grant = bed.claims.take_over("w", turn.run_id, "a", 1, "b")
    assert (grant.answer, grant.is_due) == ("won", False), "there is nothing to be sent yet"
    assert bed.store.turns.begin(bed.message(), "task") == "too-early"
    bed.live_through(timedelta(seconds=9) - MS, "b")
    assert bed.candidates() == {}
    bed.live_through(MS, "b")
    assert bed.candidates() == {"w": "overdue"}
    assert begun(bed).tries == 1


# -- signals at the end (field report 82) ------------------------------------------------------------------------------


def test_signals_that_no_turn_took_before_the_end_are_undeliverable_and_none_stays_pending(bed: StoreBed) -> None:
    consumed, left = send(bed), send(bed)
    turn = begun(bed)
    late = send(bed)
    assert commit(bed, turn, completed(consumed=(consumed,))).next_message is None
    assert fates(bed) == {consumed: 0, left: UNDELIVERABLE, late: UNDELIVERABLE}
    assert bed.store.workflows.describe("w").pending_signals == 0
    assert not bed.row().is_due


def test_an_ending_leaves_the_signals_of_other_workflows_alone(bed: StoreBed) -> None:
    bed.held("other")
    bed.store.signals.send("other", "paid", "null", key=None)
    commit(bed, begun(bed), completed())
    assert bed.store.workflows.describe("other").pending_signals == 1


# -- an ending that the store did not answer (O8) ------------------------------------------------------------------


def was_closed(bed: StoreBed, turn: BegunTurn) -> bool:
    return bed.store.turns.was_closed_by(turn)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_ending_that_was_written_is_found_and_one_that_was_not_is_not(bed: StoreBed, ending: str) -> None:
    turn = begun(bed)
    assert not was_closed(bed, turn)
    assert ENDINGS[ending](bed, turn).status == "won"
    assert was_closed(bed, turn)


def test_a_commit_is_found_also_when_later_turns_and_owners_followed(bed: StoreBed) -> None:
    bed.engine("b")
    turn = begun(bed)
    commit(bed, turn, replace(parked("paid"), wants_more=True))
    bed.engines.stop("a")
    bed.claims.take_over("w", turn.run_id, "a", 1, "b")
    commit(bed, begun(bed), completed())
    assert was_closed(bed, turn)


def test_a_commit_of_another_attempt_is_not_ones_own(bed: StoreBed) -> None:
    slow = begun(bed)
    bed.beat("a", "a")
    commit(bed, begun(bed))
    assert not was_closed(bed, slow)


@pytest.mark.parametrize("ending", ["settle", "retry_later"])
def test_an_ending_without_a_commit_of_another_attempt_is_not_ones_own(bed: StoreBed, ending: str) -> None:
    slow = begun(bed)
    bed.beat("a", "a")
    ENDINGS[ending](bed, begun(bed))
    assert not was_closed(bed, slow)


@pytest.mark.parametrize(
    "changes", [{"workflow_id": "other"}, {"run_id": "0" * 32}, {"turn": -1}, {"attempt": 0}, {"attempt": 2}], ids=str
)
def test_no_other_turn_is_taken_for_ones_own(bed: StoreBed, changes: dict[str, object]) -> None:
    bed.held("other", "a")
    turn = begun(bed)
    commit(bed, turn)
    assert not was_closed(bed, replace(turn, **changes))


def test_an_attempt_that_a_takeover_ended_was_not_closed_by_its_own_hand(bed: StoreBed) -> None:
    bed.engine("b")
    turn = begun(bed)
    bed.engines.stop("a")
    bed.claims.take_over("w", turn.run_id, "a", 1, "b")
    assert not was_closed(bed, turn)


def test_an_attempt_that_a_clean_stop_aborted_was_not_closed_by_its_own_hand(bed: StoreBed) -> None:
    """Else a commit that never arrived is reported as committed: the turn will run again."""
    turn = begun(bed)
    bed.claims.release_all("a")
    assert commit(bed, turn).status == "lost"
    assert not was_closed(bed, turn)


# -- current and refused -----------------------------------------------------------------------------------------------


def test_an_attempt_is_current_until_it_ends_or_somebody_else_has_the_workflow(bed: StoreBed) -> None:
    turn = begun(bed)
    assert bed.store.turns.is_current(turn)
    for wrong in WRONG:
        assert not bed.store.turns.is_current(replace(turn, **wrong))
    commit(bed, turn)
    assert not bed.store.turns.is_current(turn)


def test_a_refused_commit_leaves_a_trace(bed: StoreBed) -> None:
    turn = begun(bed)
    bed.store.turns.record_refusal(turn)
    (entry,) = bed.store.history.list(workflow_id="w")
    assert (entry.event, entry.engine_id, entry.epoch) == ("commit-refused", "a", 1)
    assert entry.detail == {"turn": 0, "attempt": 1, "node": "a@host"}
