"""Signals: durable, numbered under the row's lock, once per key, and waking only what waits (O9), on both stores."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from beds import MS, R, StoreBed, parked
from sqlalchemy import select, update

from weft_tasks.errors import SignalKeyConflict, WorkflowEnded, WorkflowNotFound
from weft_tasks.model import TurnMessage, WorkflowStatus
from weft_tasks.results import Answer
from weft_tasks.store.signals import ReadyWait, SentSignal
from weft_tasks.store.tables import signals, workflows
from weft_tasks.store.turns import BegunTurn, TurnOutcome


@pytest.fixture
def bed(store_bed: StoreBed) -> StoreBed:
    """Engine a holds w, which is parked and waits for `paid`."""
    store_bed.engine("a")
    store_bed.parked("w", "a", "paid")
    return store_bed


def send(
    bed: StoreBed, name: str = "paid", payload: object = None, *, to: str = "w", key: str | None = None
) -> SentSignal:
    return bed.store.signals.send(to, name, json.dumps(payload), key=key)


def begun(bed: StoreBed, workflow_id: str = "w") -> BegunTurn:
    answer = bed.store.turns.begin(bed.message(workflow_id), "task")
    assert isinstance(answer, BegunTurn), answer
    return answer


def complete(bed: StoreBed, turn: BegunTurn) -> None:
    outcome = TurnOutcome(status=WorkflowStatus.COMPLETED, state_json="{}")
    assert bed.store.turns.commit(turn, outcome).status == "won"


def buffered(bed: StoreBed, workflow_id: str = "w") -> int:
    return bed.store.workflows.describe(workflow_id).pending_signals


# -- send --------------------------------------------------------------------------------------------------------------


def test_signals_are_numbered_in_the_order_in_which_they_were_sent(bed: StoreBed) -> None:
    bed.parked("other", "a", "paid")
    receipts = [send(bed, name).receipt for name in ("paid", "note", "paid")]
    send(bed, to="other")
    receipts.append(send(bed).receipt)
    assert [r.number for r in receipts] == [1, 2, 3, 4]
    assert {(r.workflow_id, r.run_id, r.is_duplicate) for r in receipts} == {("w", bed.message().run_id, False)}


def test_a_signal_to_nobody_is_refused(bed: StoreBed) -> None:
    with pytest.raises(WorkflowNotFound):
        send(bed, to="nobody")


def test_a_signal_to_a_workflow_that_has_ended_is_refused_with_its_status_and_leaves_nothing(bed: StoreBed) -> None:
    send(bed)
    complete(bed, begun(bed))
    before = bed.everything()
    with pytest.raises(WorkflowEnded, match="completed"):
        send(bed)
    assert bed.everything() == before


def test_a_reply_reaches_the_run_that_it_belongs_to_and_no_other(bed: StoreBed) -> None:
    with pytest.raises(WorkflowNotFound):
        bed.store.signals.send("w", "paid", "null", key=None, run_id="0" * 32)
    assert buffered(bed) == 0
    bed.store.signals.send("w", "paid", "null", key=None, run_id=bed.message().run_id, is_failure=True)
    assert [s.is_failure for s in begun(bed).signals] == [True]


# -- waking ------------------------------------------------------------------------------------------------------------


def test_a_signal_that_is_waited_for_makes_the_workflow_due_and_its_owner_is_to_be_told(bed: StoreBed) -> None:
    sent = send(bed)
    assert sent.message == TurnMessage(workflow_id="w", run_id=sent.receipt.run_id, engine_id="a", epoch=1, turn=1)
    assert bed.row().is_due
    begun(bed)


def test_the_sender_tells_the_owner_so_the_dispatch_is_overdue_only_R_later(bed: StoreBed) -> None:
    send(bed)
    bed.live_through(R, "a")
    assert bed.candidates() == {}
    bed.live_through(MS, "a")
    assert bed.candidates() == {"w": "overdue"}


def test_a_signal_that_is_not_waited_for_is_buffered_and_wakes_nobody(bed: StoreBed) -> None:
    assert send(bed, "note").message is None
    assert not bed.row().is_due
    assert buffered(bed) == 1


def test_a_second_signal_to_a_workflow_that_is_due_sends_no_second_message(bed: StoreBed) -> None:
    send(bed)
    assert send(bed).message is None
    assert len(begun(bed).signals) == 2


def test_a_signal_while_a_turn_is_open_wakes_nobody_and_its_commit_finds_it(bed: StoreBed) -> None:
    send(bed)
    turn = begun(bed)
    assert send(bed).message is None
    assert bed.store.turns.commit(turn, parked("paid", consumed=[1])).next_message is not None
    assert [s.number for s in begun(bed).signals] == [2]


def test_a_parked_workflow_without_an_owner_becomes_due_and_there_is_nobody_to_tell(bed: StoreBed) -> None:
    bed.claims.release_all("a")
    assert send(bed).message is None
    assert bed.row().is_due


@pytest.mark.parametrize("status", [WorkflowStatus.SUSPENDED, WorkflowStatus.SET_ASIDE])
def test_a_workflow_that_does_not_run_for_now_keeps_the_signal_and_nobody_is_told(
    bed: StoreBed, status: WorkflowStatus
) -> None:
    bed.write(update(workflows).values(status=status))
    assert send(bed).message is None
    assert buffered(bed) == 1
    assert bed.candidates() == {}


def test_a_signal_sent_within_a_callers_transaction_is_there_if_that_commits(bed: StoreBed) -> None:
    with bed.store.database.engine.connect() as connection:
        with connection.begin() as transaction:
            bed.store.signals.send("w", "paid", "null", key=None, connection=connection)
            transaction.rollback()
        assert (buffered(bed), bed.row().is_due) == (0, False)
        with connection.begin():
            bed.store.signals.send("w", "paid", "null", key=None, connection=connection)
    assert (buffered(bed), bed.row().is_due) == (1, True)


# -- sending again (field report 84) --------------------------------------------------------------------------------


def test_the_same_signal_under_the_same_key_is_one_signal_before_while_and_after_it_is_consumed(bed: StoreBed) -> None:
    bed.engine("b")
    first = send(bed, payload={"n": 1}, key="k1").receipt

    def again() -> None:
        sent = send(bed, payload={"n": 1}, key="k1")
        assert sent == SentSignal(receipt=replace(first, is_duplicate=True), message=None)

    again()
    turn = begun(bed)
    again()
    bed.store.turns.commit(turn, parked("paid", consumed=[first.number]))
    again()
    bed.engines.stop("a")
    bed.claims.take_over("w", turn.run_id, "a", 1, "b")
    again()
    send(bed)
    complete(bed, begun(bed))
    again()
    assert len(bed.rows(select(signals))) == 2


@pytest.mark.parametrize(("name", "payload"), [("note", 1), ("paid", 2), ("paid", "1"), ("paid", True), ("paid", None)])
def test_a_key_used_again_for_another_signal_is_a_conflict(bed: StoreBed, name: str, payload: object) -> None:
    send(bed, payload=1, key="k")
    before = bed.everything()
    with pytest.raises(SignalKeyConflict):
        send(bed, name, payload, key="k")
    assert bed.everything() == before


def test_a_payload_says_the_same_in_whatever_order_its_keys_come(bed: StoreBed) -> None:
    first = send(bed, payload={"a": 1, "b": [{"c": 2, "d": 3}]}, key="k").receipt
    assert send(bed, payload={"b": [{"d": 3, "c": 2}], "a": 1}, key="k").receipt.number == first.number


def test_signals_without_a_key_are_all_different(bed: StoreBed) -> None:
    assert send(bed).receipt.number != send(bed).receipt.number


def test_the_same_key_serves_each_workflow_and_each_run_for_itself(bed: StoreBed) -> None:
    bed.parked("other", "a", "paid")
    assert send(bed, payload=1, key="k").receipt.number == send(bed, payload=2, key="k", to="other").receipt.number == 1
    complete(bed, begun(bed))
    bed.advance(MS)
    bed.store.lifecycle.purge(older_than=timedelta(0))
    bed.parked("w", "a", "paid")
    assert not send(bed, payload=3, key="k").receipt.is_duplicate


# -- the poll ----------------------------------------------------------------------------------------------------------


def wait_of(bed: StoreBed, name: str = "paid", workflow_id: str = "w", *, passed: bool = False) -> ReadyWait:
    row = bed.message(workflow_id)
    return ReadyWait(workflow_id=workflow_id, run_id=row.run_id, turn=row.turn, name=name, deadline_passed=passed)


def buffer_unseen(bed: StoreBed, name: str = "paid", workflow_id: str = "w") -> None:
    """A signal that is there although nobody was woken for it: a bug, a crash or a hand in the database."""
    send(bed, name, to=workflow_id)
    bed.write(update(workflows).where(workflows.c.id == workflow_id).values(due=False))


def test_every_wait_of_every_parked_workflow_is_listed_and_of_no_other(bed: StoreBed) -> None:
    bed.parked("two", "a", "paid", "refused")
    bed.held("due", "a")
    bed.held("running", "a")
    bed.begin("running")
    bed.held("ended", "a")
    bed.begin("ended")
    bed.end("ended")
    assert set(bed.store.signals.list_waiting()) == {
        wait_of(bed),
        wait_of(bed, "paid", "two"),
        wait_of(bed, "refused", "two"),
    }


def test_only_the_waits_whose_signal_is_buffered_are_ready_and_each_workflow_once(bed: StoreBed) -> None:
    bed.parked("two", "a", "paid", "refused")
    bed.parked("none", "a", "paid")
    for _ in range(2):
        buffer_unseen(bed, "paid", "two")
        buffer_unseen(bed, "refused", "two")
        send(bed, "note", to="none")
    (ready,) = bed.store.signals.list_ready()
    assert (ready.workflow_id, ready.deadline_passed) == ("two", False)
    assert ready.name in ("paid", "refused")
    assert bed.store.signals.has_buffered(ready)
    assert not bed.store.signals.has_buffered(wait_of(bed, "paid", "none"))


def test_a_signal_that_was_consumed_makes_nothing_ready(bed: StoreBed) -> None:
    send(bed)
    bed.store.turns.commit(begun(bed), parked("paid", consumed=[1]))
    assert bed.store.signals.list_ready() == ()
    assert not bed.store.signals.has_buffered(wait_of(bed))


def test_a_wait_whose_deadline_has_passed_is_ready_and_not_a_millisecond_sooner(bed: StoreBed) -> None:
    bed.held("t", "a")
    bed.begin("t")
    bed.park("t", "paid", timeout=timedelta(seconds=60))
    bed.live_through(timedelta(seconds=60) - MS, "a")
    assert bed.store.signals.list_ready() == ()
    bed.advance(MS)
    assert bed.store.signals.list_ready() == (wait_of(bed, "paid", "t", passed=True),)
    assert wait_of(bed, "paid", "t", passed=True) in bed.store.signals.list_waiting()


def test_the_first_deadline_of_several_waits_is_the_one_that_is_named(bed: StoreBed) -> None:
    bed.held("t", "a")
    outcome = replace(
        parked(),
        waits=(("late", timedelta(seconds=90)), ("never", None), ("soon", timedelta(seconds=60))),
    )
    bed.store.turns.commit(begun(bed, "t"), outcome)
    bed.live_through(timedelta(seconds=60), "a")
    (ready,) = bed.store.signals.list_ready()
    assert ready.name == "soon"
    assert bed.store.signals.wake(ready)[0] is Answer.WON
    turn = begun(bed, "t")
    assert turn.expired_waits == ("soon",)
    assert turn.has_work


def test_a_workflow_that_is_ready_by_signal_and_by_deadline_is_listed_once(bed: StoreBed) -> None:
    bed.held("t", "a")
    bed.begin("t")
    bed.park("t", "paid", timeout=timedelta(seconds=1))
    buffer_unseen(bed, "paid", "t")
    bed.advance(timedelta(seconds=2))
    assert [(r.workflow_id, r.deadline_passed) for r in bed.store.signals.list_ready()] == [("t", False)]


def test_a_wake_makes_the_workflow_due_consumes_nothing_and_tells_the_owner(bed: StoreBed) -> None:
    buffer_unseen(bed)
    answer, message = bed.store.signals.wake(wait_of(bed))
    assert (answer, message) == (Answer.WON, bed.message())
    assert (bed.row().is_due, buffered(bed)) == (True, 1)
    assert bed.candidates() == {}
    assert [s.name for s in begun(bed).signals] == ["paid"]


def test_a_wake_of_a_workflow_without_an_owner_makes_it_due_for_the_reclaim_pass(bed: StoreBed) -> None:
    bed.claims.release_all("a")
    assert bed.store.signals.wake(wait_of(bed)) == (Answer.WON, None)
    assert bed.row().is_due
    assert bed.candidates() == {"w": "unowned"}


@pytest.mark.parametrize(
    "changes", [{"workflow_id": "nobody"}, {"run_id": "0" * 32}, {"turn": 0}, {"turn": 2}], ids=str
)
def test_a_wake_that_names_another_workflow_run_or_turn_is_lost(bed: StoreBed, changes: dict[str, object]) -> None:
    before = bed.everything()
    assert bed.store.signals.wake(replace(wait_of(bed), **changes)) == (Answer.LOST, None)
    assert bed.everything() == before


@pytest.mark.parametrize("state", ["due", "running", "ended", "suspended"])
def test_a_wake_of_a_workflow_that_is_not_parked_any_more_is_lost_and_changes_nothing(
    bed: StoreBed, state: str
) -> None:
    wait = wait_of(bed)
    if state == "suspended":
        bed.store.lifecycle.suspend("w")
    else:
        send(bed)
        if state == "running":
            begun(bed)
        if state == "ended":
            bed.write(update(workflows).values(due=False, status=WorkflowStatus.COMPLETED))
    before = bed.everything()
    assert bed.store.signals.wake(wait) == (Answer.LOST, None)
    assert bed.everything() == before


def test_what_a_stale_list_nominated_is_not_woken_twice(bed: StoreBed) -> None:
    buffer_unseen(bed)
    (ready,) = bed.store.signals.list_ready()
    assert bed.store.signals.wake(ready)[0] is Answer.WON
    bed.store.turns.commit(begun(bed), parked("paid", consumed=[1]))
    assert bed.store.signals.wake(ready)[0] is Answer.LOST


def test_an_early_wake_by_a_clock_that_was_set_back_settles_and_the_deadline_still_comes(bed: StoreBed) -> None:
    bed.held("t", "a")
    bed.begin("t")
    bed.park("t", "paid", timeout=timedelta(seconds=60))
    bed.advance(timedelta(seconds=60))
    (ready,) = bed.store.signals.list_ready()
    bed.store.signals.wake(ready)
    bed.advance(-timedelta(seconds=30))
    turn = begun(bed, "t")
    assert not turn.has_work
    bed.store.turns.settle(turn)
    assert bed.store.signals.list_ready() == ()
    bed.advance(timedelta(seconds=30))
    assert len(bed.store.signals.list_ready()) == 1


# -- bounded reads lose nothing (field report 83) -------------------------------------------------------------------


def test_a_thousand_signals_taken_a_hundred_at_a_time_all_arrive_in_order_and_starve_nobody(bed: StoreBed) -> None:
    bed.many_signals("w", "paid", 1000)
    others = [f"other{n}" for n in range(3)]
    for other in others:
        bed.parked(other, "a", "paid")
        bed.many_signals(other, "paid", 100)
    taken: dict[str, list[int]] = {workflow_id: [] for workflow_id in ("w", *others)}
    ticks = 0
    while ready := bed.store.signals.list_ready():
        ticks += 1
        for wait in ready:
            assert bed.store.signals.wake(wait)[0] is Answer.WON
            turn = begun(bed, wait.workflow_id)
            numbers = [s.number for s in turn.signals][:100]
            bed.store.turns.commit(turn, parked("paid", consumed=numbers))
            bed.write(update(workflows).values(due=False))
            taken[wait.workflow_id] += numbers
        assert {wait.workflow_id for wait in bed.store.signals.list_ready()} <= {"w"}, "the small ones are done"
    assert ticks == 10
    assert taken == {"w": list(range(1, 1001)), **{other: list(range(1, 101)) for other in others}}


# -- names that look alike (field report 112) -----------------------------------------------------------------------


def test_each_signal_reaches_its_own_workflow_and_name_however_alike_they_are(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    names = ("x", "x:y", "y", "X", "x%", "x_", "x ", "\u00e9", "e\u0301")
    ids = ("a", "a:b", "a/b", "a%", "a_", "A", "a ", "\u00e4", "a\u0308")
    for workflow_id in ids:
        store_bed.parked(workflow_id, "a", "x")
    for workflow_id in ids:
        for name in names:
            send(store_bed, name, [workflow_id, name], to=workflow_id)
    for workflow_id in ids:
        turn = begun(store_bed, workflow_id)
        assert [(s.name, s.payload) for s in turn.signals] == [(name, [workflow_id, name]) for name in names]
    assert {w.id for w in store_bed.store.workflows.list()} == set(ids)


def test_only_the_exact_name_makes_a_wait_ready(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.parked("w", "a", "x_")
    for name in ("x", "x__", "xy", "X_", "x%", "_", "%"):
        assert send(store_bed, name).message is None
    assert store_bed.store.signals.list_ready() == ()
    assert not store_bed.store.signals.has_buffered(wait_of(store_bed, "x_"))
    assert send(store_bed, "x_").message is not None
