"""Endings and changes of status from outside fence, in the transaction that changes the status (O7), on both stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from beds import BEAT, DEFAULTS, MS, R, StoreBed, parked
from breaking import AT_COMMIT, failing_before
from sqlalchemy import select, update

from weft_tasks.errors import StoreUnavailable, WorkflowEnded, WorkflowNotFound, WrongStatus
from weft_tasks.model import TurnMessage, WorkflowStatus
from weft_tasks.results import Answer
from weft_tasks.store.lifecycle import OverdueEnd
from weft_tasks.store.tables import workflows
from weft_tasks.store.turns import BegunTurn, Discard


def _end_overdue(bed: StoreBed) -> None:
    bed.write(update(workflows).values(end_by_at=0))
    assert bed.store.lifecycle.end_overdue(OverdueEnd(workflow_id="w", run_id=bed.message().run_id))[0] is Answer.WON


VERBS: dict[str, tuple[Callable[[StoreBed], object], WorkflowStatus]] = {
    "cancel": (lambda bed: bed.store.lifecycle.cancel("w"), WorkflowStatus.RUNNING),
    "terminate": (lambda bed: bed.store.lifecycle.terminate("w", "enough"), WorkflowStatus.TERMINATED),
    "suspend": (lambda bed: bed.store.lifecycle.suspend("w"), WorkflowStatus.SUSPENDED),
    "timeout": (_end_overdue, WorkflowStatus.TIMED_OUT),
}


@pytest.fixture
def bed(store_bed: StoreBed) -> StoreBed:
    """Engine a holds w."""
    store_bed.engine("a")
    store_bed.held()
    return store_bed


def begun(bed: StoreBed) -> BegunTurn:
    answer = bed.store.turns.begin(bed.message(), "task")
    assert isinstance(answer, BegunTurn), answer
    return answer


@pytest.mark.parametrize("verb", VERBS)
def test_it_raises_the_epoch_and_deletes_the_holder_with_the_status(bed: StoreBed, verb: str) -> None:
    change, status = VERBS[verb]
    change(bed)
    assert (bed.row().status, bed.row().engine_id, bed.row().epoch) == (status, None, 2)
    assert bed.claim() is None
    assert bed.claims.list_held() == ()


@pytest.mark.parametrize("verb", VERBS)
def test_the_turn_in_flight_cannot_end_in_any_way_nor_any_message_of_before_begin_one(bed: StoreBed, verb: str) -> None:
    message = bed.message()
    turn = begun(bed)
    VERBS[verb][0](bed)
    before = bed.everything()
    assert bed.store.turns.commit(turn, parked("paid")).status == "lost"
    assert bed.store.turns.settle(turn).status == "lost"
    assert bed.store.turns.retry_later(turn, "{}", R).status == "lost"
    assert isinstance(bed.store.turns.begin(message, "again"), Discard)
    assert not bed.store.turns.is_current(turn)
    assert not bed.store.turns.was_closed_by(turn)
    assert bed.claims.acquire("w", message.run_id, message.epoch, "a").answer == "lost"
    assert bed.everything() == before


@pytest.mark.parametrize("verb", VERBS)
def test_the_turn_in_flight_stays_fenced_off_when_the_same_engine_gets_the_workflow_again(
    bed: StoreBed, verb: str
) -> None:
    turn = begun(bed)
    VERBS[verb][0](bed)
    bed.write(update(workflows).values(status=WorkflowStatus.RUNNING, due=True))
    bed.acquired(bed.message(), "a")
    assert bed.store.turns.commit(turn, parked("paid")).status == "lost"
    again = begun(bed)
    assert bed.store.turns.commit(turn, parked("paid")).status == "lost"
    assert bed.store.turns.commit(again, parked("paid")).status == "won"


@pytest.mark.parametrize("statement", [AT_COMMIT, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("verb", VERBS)
def test_it_is_done_as_a_whole_or_not_at_all(bed: StoreBed, verb: str, statement: int) -> None:
    begun(bed)
    bed.store.signals.send("w", "paid", "null", key=None)
    if verb == "timeout":
        bed.write(update(workflows).values(end_by_at=0))
    before = bed.everything()
    lifecycle, overdue = bed.store.lifecycle, OverdueEnd(workflow_id="w", run_id=bed.message().run_id)
    with failing_before(bed.store, statement), pytest.raises(StoreUnavailable):
        lifecycle.end_overdue(overdue) if verb == "timeout" else VERBS[verb][0](bed)
    assert bed.everything() == before


@pytest.mark.parametrize("verb", ["terminate", "timeout"])
def test_what_has_ended_is_no_candidate_and_takes_nothing_more(bed: StoreBed, verb: str) -> None:
    number = bed.store.signals.send("w", "paid", "null", key="k").receipt.number
    VERBS[verb][0](bed)
    bed.live_through(2 * R, "a")
    assert bed.candidates() == {}
    assert not bed.row().is_due
    assert bed.store.workflows.describe("w").pending_signals == 0
    with pytest.raises(WorkflowEnded):
        bed.store.signals.send("w", "paid", "null", key=None)
    assert bed.store.signals.send("w", "paid", "null", key="k").receipt.number == number, "the first receipt stands"
    for again in ("cancel", "terminate", "suspend"):
        with pytest.raises(WorkflowEnded):
            VERBS[again][0](bed)


def test_a_suspended_workflow_is_no_candidate_and_a_resumed_one_is_at_once(bed: StoreBed) -> None:
    bed.store.lifecycle.suspend("w")
    bed.live_through(2 * R, "a")
    assert bed.candidates() == {}
    assert bed.claims.acquire("w", bed.message().run_id, 2, "a").answer == "not-eligible"
    bed.store.lifecycle.resume("w")
    assert (bed.row().status, bed.row().epoch, bed.row().is_due) == (WorkflowStatus.RUNNING, 3, True)
    assert bed.candidates() == {"w": "unowned"}


def test_a_cancelled_workflow_is_due_for_its_last_turn_at_once(bed: StoreBed) -> None:
    bed.begin()
    bed.park("w", "paid")
    bed.store.lifecycle.cancel("w")
    assert bed.candidates() == {"w": "unowned"}
    bed.acquired(bed.message(), "a")
    turn = begun(bed)
    assert turn.is_cancelling
    assert turn.has_work


def test_a_workflow_whose_time_is_not_up_does_not_end(bed: StoreBed) -> None:
    overdue = OverdueEnd(workflow_id="w", run_id=bed.message().run_id)
    assert bed.store.lifecycle.end_overdue(overdue) == (Answer.LOST, None)
    bed.store.lifecycle.cancel("w")
    bed.advance(DEFAULTS.cancel_bound - MS)
    assert bed.store.lifecycle.list_overdue_ends() == ()
    assert bed.store.lifecycle.end_overdue(overdue) == (Answer.LOST, None)
    bed.advance(MS)
    assert [end.workflow_id for end in bed.store.lifecycle.list_overdue_ends()] == ["w"]
    assert bed.store.lifecycle.end_overdue(replace(overdue, run_id="0" * 32)) == (Answer.LOST, None)
    assert bed.store.lifecycle.end_overdue(overdue)[0] is Answer.WON
    assert bed.row().status is WorkflowStatus.CANCELLED
    assert bed.store.lifecycle.end_overdue(overdue) == (Answer.LOST, None)


def test_the_task_of_the_turn_that_was_fenced_off_is_named_for_its_abort(bed: StoreBed) -> None:
    begun(bed)
    changed = bed.store.lifecycle.terminate("w", "enough")
    assert changed.in_flight is not None
    assert (changed.in_flight.task_id, changed.in_flight.node) == ("task", "a@host")


def test_each_change_is_in_the_history_under_the_epoch_that_it_made(bed: StoreBed) -> None:
    bed.store.lifecycle.suspend("w")
    bed.store.lifecycle.resume("w")
    bed.store.lifecycle.terminate("w", "enough")
    assert [(entry.event, entry.epoch) for entry in bed.store.history.list(workflow_id="w")] == [
        ("suspend", 2),
        ("resume", 3),
        ("terminated", 4),
    ]


@pytest.mark.parametrize("verb", ["cancel", "terminate", "suspend", "resume", "retry"])
def test_a_workflow_that_nobody_started_is_not_found(bed: StoreBed, verb: str) -> None:
    reason = ("enough",) if verb == "terminate" else ()
    with pytest.raises(WorkflowNotFound):
        getattr(bed.store.lifecycle, verb)("nobody", *reason)


@pytest.mark.parametrize("verb", ["resume", "retry"])
def test_a_running_workflow_is_neither_resumed_nor_retried(bed: StoreBed, verb: str) -> None:
    before = bed.everything()
    with pytest.raises(WrongStatus, match="running"):
        getattr(bed.store.lifecycle, verb)("w")
    assert bed.everything() == before


# -- a late sweep of updates (field report 42) ----------------------------------------------------------------------


def _with_unseen_update(bed: StoreBed) -> None:
    """An update that nobody was woken for: its sender's message and wake were lost."""
    bed.begin()
    bed.park("w", "paid")
    bed.store.updates.send("w", "set", "1", key="u")
    bed.write(update(workflows).values(due=False))


@pytest.mark.parametrize("meanwhile", ["answered", "purged", "used again", "taken over", "suspended"])
def test_an_update_poll_that_was_paused_between_its_list_and_its_wake_changes_nothing_and_is_no_error(
    bed: StoreBed, meanwhile: str
) -> None:
    _with_unseen_update(bed)
    (pending,) = bed.store.updates.list_held_with_pending()
    if meanwhile == "suspended":
        bed.store.lifecycle.suspend("w")
    elif meanwhile == "taken over":
        bed.engine("b")
        bed.write(update(workflows).values(due=True))
        bed.engines.stop("a")
        bed.claims.take_over("w", bed.message().run_id, "a", 1, "b")
    elif meanwhile == "answered":
        bed.write(update(workflows).values(due=True))
        turn = begun(bed)
        assert [asked.name for asked in turn.updates] == ["set"]
    else:
        bed.store.lifecycle.terminate("w", "enough")
        bed.advance(BEAT)
        bed.store.lifecycle.purge(older_than=timedelta(0))
        if meanwhile == "used again":
            bed.beat("a")
            bed.parked("w", "a", "paid")
    before = bed.everything()
    assert bed.store.updates.wake(pending) == (Answer.LOST, None)
    assert bed.everything() == before


def test_an_update_poll_wakes_what_is_parked_and_tells_its_owner(bed: StoreBed) -> None:
    _with_unseen_update(bed)
    (pending,) = bed.store.updates.list_held_with_pending()
    answer, message = bed.store.updates.wake(pending)
    assert (answer, message) == (Answer.WON, bed.message())
    assert isinstance(message, TurnMessage)
    assert [asked.name for asked in begun(bed).updates] == ["set"]
    assert bed.rows(select(workflows.c.due)) == [(True,)]
