"""The course of a workflow, changed from outside: cancel, terminate, suspend, resume, retry and purge (O7)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flows import DAY, HOUR, MINUTE, collect, complete_with_input, everything, fails, rows, statuses, wait_for_ever
from sqlalchemy import func, select

from weft_tasks.errors import (
    InvalidInput,
    StoreUnavailable,
    WorkflowAlreadyExists,
    WorkflowEnded,
    WorkflowNotFound,
    WrongStatus,
)
from weft_tasks.model import WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store.tables import metadata, signals, store, workflows
from weft_tasks.store.turns import BegunTurn, CommitAnswer, CommitStatus, Turns
from weft_tasks.testing import SimulatedCrash, WorkflowBed
from weft_tasks.weft import OnConflict
from weft_tasks.workflows.registry import Retry, WorkflowType
from weft_tasks.workflows.turn import Turn, TurnEnd

BOUND = Settings().cancel_bound
RUNNING, SUSPENDED, SET_ASIDE = WorkflowStatus.RUNNING, WorkflowStatus.SUSPENDED, WorkflowStatus.SET_ASIDE
CANCELLED, TERMINATED, FAILED = WorkflowStatus.CANCELLED, WorkflowStatus.TERMINATED, WorkflowStatus.FAILED
SECOND = timedelta(seconds=1)


@pytest.fixture
def collector(bed: WorkflowBed) -> WorkflowType:
    """A workflow `c` that collects events and is parked."""
    made = bed.workflow("collect")(collect)
    bed.start("collect", "c")
    bed.run_due()
    return made


def set_aside(bed: WorkflowBed, workflow_id: str = "c") -> None:
    """Let it crash until it is set aside."""
    for _ in range(Settings().begun_turn_limit):
        bed.crash_next_turn(workflow_id, before="handler")
    bed.signal(workflow_id, "event", "deadly")
    bed.advance(10 * MINUTE)
    assert bed.status(workflow_id) is SET_ASIDE


# -- cancel


def test_a_cancelled_workflow_ends_as_cancelled_within_milliseconds(bed: WorkflowBed, collector: WorkflowType) -> None:
    bed.weft.cancel("c")
    assert (bed.status("c"), bed.describe("c").is_cancelling) == (RUNNING, True)
    bed.run_due()
    info = bed.describe("c")
    assert (info.status, info.engine_id, info.ended_at, info.error) == (CANCELLED, None, bed.now, None)


def test_a_cancelled_workflow_has_one_last_turn_to_clean_up(bed: WorkflowBed, collector: WorkflowType) -> None:
    seen = []

    @collector.on_cancel
    def clean_up(turn: Turn) -> None:
        seen.append((turn.is_cancelling, [event.payload for event in turn.take("event")], dict(turn.state)))
        turn.state["cleaned"] = True
        turn.call({"task": "shop.refund"})
        turn.wait("ignored")

    bed.signal("c", "event", 1)
    bed.run_due()
    bed.weft.suspend("c")
    bed.signal("c", "event", 2)
    bed.weft.cancel("c")
    bed.run_due()
    assert seen == [(True, [2], {"events": [1]})]
    assert (bed.status("c"), bed.state("c")) == (CANCELLED, {"events": [1], "cleaned": True})
    assert [call.task for call in bed.calls] == ["shop.refund"]


@pytest.mark.parametrize("returned", ["complete", "fail", "junk"])
def test_whatever_the_last_turn_returns_the_workflow_is_cancelled(
    bed: WorkflowBed, collector: WorkflowType, returned: str
) -> None:
    @collector.on_cancel
    def clean_up(turn: Turn) -> Any:
        return {"complete": turn.complete, "fail": turn.fail, "junk": str}[returned]("well")

    bed.weft.cancel("c")
    bed.run_due()
    info = bed.describe("c")
    assert (info.status, info.result) == (CANCELLED, None)


def test_a_last_turn_that_raises_is_undone_and_the_workflow_cancelled_with_the_error(
    bed: WorkflowBed, collector: WorkflowType
) -> None:
    @collector.on_cancel
    def clean_up(turn: Turn) -> None:
        turn.state["half"] = True
        turn.call({"task": "shop.refund"})
        raise RuntimeError("cannot clean up")

    bed.weft.cancel("c")
    bed.run_due()
    info = bed.describe("c")
    assert (info.status, info.state, bed.calls) == (CANCELLED, {}, ())
    assert info.error is not None
    assert (info.error["type"], info.error["message"]) == ("RuntimeError", "cannot clean up")
    assert "in clean_up" in info.error["traceback"]


def test_a_last_turn_that_leaves_junk_in_the_state_is_cancelled_with_the_error(
    bed: WorkflowBed, collector: WorkflowType
) -> None:
    @collector.on_cancel
    def clean_up(turn: Turn) -> None:
        turn.state["junk"] = object()

    bed.weft.cancel("c")
    bed.run_due()
    info = bed.describe("c")
    assert (info.status, info.state) == (CANCELLED, {})
    assert info.error is not None
    assert "state is not JSON" in info.error["message"]


def test_a_last_turn_that_takes_too_long_is_cut_off_and_its_commit_refused(
    bed: WorkflowBed, collector: WorkflowType
) -> None:
    @collector.on_cancel
    def clean_up(turn: Turn) -> None:
        bed.advance(BOUND)
        assert turn.cancelled
        turn.state["too"] = "late"

    bed.weft.cancel("c")
    bed.run_due()
    info = bed.describe("c")
    assert (info.status, info.state) == (CANCELLED, {})
    assert info.error is not None
    assert info.error["type"] == "CancelTimedOut"
    assert statuses(bed)[-1] == "refused"
    assert len(bed.aborted) == 1


def test_a_last_turn_that_kills_its_process_every_time_ends_at_the_bound(
    bed: WorkflowBed, collector: WorkflowType
) -> None:
    @collector.on_cancel
    def clean_up(turn: Turn) -> None:
        raise SimulatedCrash

    bed.weft.cancel("c")
    bed.advance(BOUND - SECOND)
    assert not bed.status("c").is_ended
    bed.advance(SECOND)
    assert bed.status("c") is CANCELLED


def test_a_cancel_without_any_engine_ends_at_the_bound(bed: WorkflowBed, collector: WorkflowType) -> None:
    for engine in bed.engines:
        bed.kill_engine(engine)
    bed.weft.cancel("c")
    bed.advance(BOUND)
    assert bed.status("c") is CANCELLED


def test_a_second_cancel_changes_nothing_and_gives_no_more_time(bed: WorkflowBed, collector: WorkflowType) -> None:
    ran = []

    @collector.on_cancel
    def clean_up(turn: Turn) -> None:
        ran.append(turn.number)
        raise SimulatedCrash

    bed.weft.cancel("c")
    bed.run_due()
    bed.advance(BOUND / 2)
    before = everything(bed)
    bed.weft.cancel("c")
    assert everything(bed) == before
    bed.advance(BOUND / 2)
    assert bed.status("c") is CANCELLED


def test_a_suspended_workflow_is_cancelled_with_its_last_turn(bed: WorkflowBed, collector: WorkflowType) -> None:
    collector.on_cancel(lambda turn: turn.state.update(cleaned=True))
    bed.weft.suspend("c")
    bed.weft.cancel("c")
    bed.run_due()
    assert (bed.status("c"), bed.state("c")) == (CANCELLED, {"cleaned": True})


def test_a_set_aside_workflow_is_cancelled_at_once_without_another_turn(
    bed: WorkflowBed, collector: WorkflowType
) -> None:
    collector.on_cancel(lambda turn: turn.state.update(cleaned=True))
    set_aside(bed)
    bed.weft.cancel("c")
    assert (bed.status("c"), bed.state("c")) == (CANCELLED, {})


def test_a_workflow_whose_first_turn_is_yet_to_come_is_cancelled_without_it(bed: WorkflowBed) -> None:
    waits = bed.workflow("waits")(wait_for_ever)
    waits.on_cancel(lambda turn: turn.state.update(number=turn.number))
    bed.start("waits", "w", delay=HOUR)
    bed.weft.cancel("w")
    bed.run_due()
    assert (bed.status("w"), bed.state("w")) == (CANCELLED, {"number": 0})


def test_a_workflow_that_waits_for_its_next_try_is_cancelled_now(bed: WorkflowBed) -> None:
    bed.workflow("fails", retry=Retry(delay=HOUR, max_delay=HOUR))(fails)
    bed.start("fails", "f")
    bed.run_due()
    bed.weft.cancel("f")
    bed.run_due()
    assert bed.status("f") is CANCELLED


@pytest.mark.parametrize("verb", ["cancel", "terminate", "suspend"])
def test_the_turn_in_flight_is_fenced_off_aborted_and_cannot_commit(bed: WorkflowBed, verb: str) -> None:
    seen = []

    @bed.workflow("endless")
    def endless(turn: Turn) -> TurnEnd | None:
        if seen:
            turn.wait("never")
            return None
        assert not turn.cancelled
        getattr(bed.weft, verb)("e")
        seen.append(turn.cancelled)
        return turn.complete("too late")

    bed.start("endless", "e")
    bed.run_due()
    assert seen == [True]
    assert statuses(bed)[0] == "refused"
    assert bed.status("e") is {"cancel": CANCELLED, "terminate": TERMINATED, "suspend": SUSPENDED}[verb]
    assert len(bed.aborted) == 1


@pytest.mark.parametrize("change", ["cancel", "terminate", "suspend", "resume", "retry", "time out"])
def test_every_change_from_outside_raises_the_epoch_and_leaves_no_holder(bed: WorkflowBed, change: str) -> None:
    before = {"resume": "suspended", "retry": "set-aside"}.get(change, "running")
    bring_to(bed, before)
    if change == "time out":
        bed.start("collect", "t", timeout=HOUR)
        bed.run_due()
    id = "t" if change == "time out" else "w"
    epoch = bed.describe(id).epoch
    if change == "time out":
        bed.advance(HOUR)
    else:
        getattr(bed.weft, change)(id)
    info = bed.describe(id)
    assert (info.epoch, info.engine_id) == (epoch + 1, None)


# -- terminate


def test_a_terminated_workflow_ends_at_once_with_its_reason(bed: WorkflowBed, collector: WorkflowType) -> None:
    bed.weft.terminate("c", "nobody needs it")
    info = bed.describe("c")
    assert (info.status, info.engine_id, info.ended_at) == (TERMINATED, None, bed.now)
    assert info.error == {"type": "Terminated", "message": "nobody needs it"}
    bed.advance(HOUR)
    assert len(bed.turns) == 1


def test_signals_that_no_turn_took_are_gone_with_the_workflow(bed: WorkflowBed, collector: WorkflowType) -> None:
    bed.weft.suspend("c")
    bed.signal("c", "event", 1)
    bed.weft.terminate("c")
    assert bed.describe("c").pending_signals == 0


@pytest.mark.parametrize("reason", [object(), "x" * 300_000])
def test_a_reason_that_cannot_be_kept_is_refused_and_nothing_ends(
    bed: WorkflowBed, collector: WorkflowType, reason: Any
) -> None:
    with pytest.raises(InvalidInput, match="reason"):
        bed.weft.terminate("c", reason)
    assert bed.status("c") is RUNNING


# -- suspend and resume


def test_a_suspended_workflow_runs_nothing_and_loses_nothing(bed: WorkflowBed, collector: WorkflowType) -> None:
    bed.weft.suspend("c")
    assert (bed.status("c"), bed.owner("c")) == (SUSPENDED, None)
    bed.signal("c", "event", 1)
    bed.signal("c", "event", "closed")
    bed.advance(DAY)
    assert len(bed.turns) == 1
    bed.weft.resume("c")
    bed.run_due()
    assert bed.result("c") == [1, "closed"]


def test_a_resumed_workflow_with_nothing_to_do_waits_on_as_before(bed: WorkflowBed) -> None:
    @bed.workflow("patient")
    def patient(turn: Turn) -> TurnEnd | None:
        if turn.timed_out:
            return turn.complete(turn.began_at.isoformat())
        turn.wait("event", timeout=HOUR)
        return None

    bed.start("patient", "p")
    bed.run_due()
    deadline = (bed.now + HOUR).isoformat()
    bed.weft.suspend("p")
    bed.advance(MINUTE)
    bed.weft.resume("p")
    bed.run_due()
    assert statuses(bed) == ["committed", "nothing-to-do"]
    bed.advance(DAY)
    assert bed.result("p") == deadline


def test_suspending_twice_is_suspending_once_and_resuming_twice_is_an_error(
    bed: WorkflowBed, collector: WorkflowType
) -> None:
    bed.weft.suspend("c")
    before = everything(bed)
    bed.weft.suspend("c")
    assert everything(bed) == before
    bed.weft.resume("c")
    with pytest.raises(WrongStatus, match="cannot be resumed: its status is running"):
        bed.weft.resume("c")


def test_a_workflow_that_is_being_cancelled_is_not_suspended(bed: WorkflowBed, collector: WorkflowType) -> None:
    bed.weft.cancel("c")
    with pytest.raises(WrongStatus, match="cancelling"):
        bed.weft.suspend("c")


def test_a_suspended_child_of_the_night_keeps_its_retry_and_its_count(bed: WorkflowBed) -> None:
    """Suspending is no way around the limit of tries."""
    bed.workflow("fails", retry=Retry(tries=3, delay=timedelta(0)))(fails)
    bed.start("fails", "f")
    bed.run_due()
    bed.weft.suspend("f")
    bed.weft.resume("f")
    bed.advance(HOUR)
    assert bed.status("f") is FAILED
    assert statuses(bed).count("retrying") == 2


# -- retry


def broken(bed: WorkflowBed, **options: Any) -> list[bool]:
    """A workflow `b` that fails while the list returned is not empty; else as its event says."""
    trouble = [True]

    @bed.workflow("breaks", retry=Retry(tries=2, delay=timedelta(0)))
    def breaks(turn: Turn) -> TurnEnd | None:
        if turn.number == 0:
            turn.state["initialised"] = True
        if trouble:
            raise RuntimeError("broken")
        for event in turn.take("event"):
            return turn.complete([event.payload, turn.state, turn.number, turn.idempotency_key(), turn.timed_out])
        turn.wait("event", **options)
        return None

    return trouble


def test_a_failed_workflow_is_tried_again_with_the_signals_it_had(bed: WorkflowBed) -> None:
    trouble = broken(bed)
    bed.start("breaks", "b")
    bed.signal("b", "event", 1)
    bed.advance(MINUTE)
    assert bed.status("b") is FAILED
    trouble.clear()
    bed.weft.retry("b")
    info = bed.describe("b")
    assert (info.status, info.pending_signals, info.ended_at) == (RUNNING, 1, None)
    bed.run_due()
    assert bed.status("b") is WorkflowStatus.COMPLETED


def test_what_is_tried_again_is_the_same_turn(bed: WorkflowBed) -> None:
    """Else a first turn that failed would never do what first turns do, and its side effects would get other keys."""
    trouble = broken(bed)
    bed.start("breaks", "b")
    bed.signal("b", "event", 1)
    bed.advance(MINUTE)
    trouble.clear()
    bed.weft.retry("b")
    bed.run_due()
    run_id = bed.describe("b").run_id
    assert bed.result("b") == [1, {"initialised": True}, 0, f"{run_id}:0:0", False]


def test_a_turn_that_is_tried_again_sees_that_its_wait_had_timed_out(bed: WorkflowBed) -> None:
    seen: list[Any] = []

    @bed.workflow("late", retry=Retry(tries=1))
    def late(turn: Turn) -> TurnEnd | None:
        if turn.number == 0:
            turn.wait("event", timeout=HOUR)
            return None
        seen.append((turn.number, turn.timed_out, dict(turn.deadlines), turn.began_at))
        if len(seen) == 1:
            raise RuntimeError("once")
        return turn.complete()

    bed.start("late", "l")
    bed.advance(2 * HOUR)
    assert bed.status("l") is FAILED
    bed.weft.retry("l")
    bed.advance(MINUTE)
    assert bed.status("l") is WorkflowStatus.COMPLETED
    assert seen[0] == seen[1]
    assert seen[0][1] is True


def test_a_failure_whose_answer_was_lost_is_one_failure(bed: WorkflowBed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store wrote it and did not say so: the second try at it finds the first (O8)."""
    give_up, lost = Turns.give_up, []

    def give_up_in_silence(turns: Turns, begun: BegunTurn, error: str) -> CommitAnswer:
        answer = give_up(turns, begun, error)
        if not lost:
            lost.append(answer)
            raise StoreUnavailable("lost")
        return answer

    monkeypatch.setattr(Turns, "give_up", give_up_in_silence)
    bed.workflow("fails", retry=Retry(tries=1))(fails)
    bed.start("fails", "f")
    bed.run_due()
    assert [answer.status for answer in lost] == [CommitStatus.WON]
    assert (statuses(bed), bed.status("f")) == (["failed"], FAILED)


def test_a_workflow_that_failed_on_purpose_goes_on_after_the_turn_that_failed_it(bed: WorkflowBed) -> None:
    @bed.workflow("refusing")
    def refusing(turn: Turn) -> TurnEnd:
        turn.take("event")
        turn.state["turns"] = turn.number
        return turn.fail("refused") if turn.number == 0 else turn.complete(turn.number)

    bed.start("refusing", "r")
    bed.signal("r", "event")
    bed.run_due()
    info = bed.describe("r")
    assert (info.status, info.error) == (FAILED, {"type": "WorkflowFailed", "message": "refused"})
    bed.weft.retry("r")
    bed.run_due()
    assert (bed.result("r"), bed.describe("r").pending_signals) == (1, 0)


def test_a_set_aside_workflow_is_tried_again_with_the_signals_it_had(bed: WorkflowBed, collector: WorkflowType) -> None:
    set_aside(bed)
    bed.signal("c", "event", "closed")
    info = bed.describe("c")
    assert info.error is not None
    assert info.error["type"] == "SetAside"
    assert "5 turns began in a row" in info.error["message"]
    bed.weft.retry("c")
    bed.run_due()
    assert bed.result("c") == ["deadly", "closed"]


def test_a_retried_workflow_that_fails_again_has_failed_again(bed: WorkflowBed) -> None:
    broken(bed)
    bed.start("breaks", "b")
    bed.advance(MINUTE)
    bed.weft.retry("b")
    bed.advance(MINUTE)
    assert bed.status("b") is FAILED
    bed.weft.retry("b")
    assert bed.status("b") is RUNNING


def test_replies_that_come_while_a_workflow_has_failed_are_there_when_it_is_retried(bed: WorkflowBed) -> None:
    """Nobody sends them again: without them it would wait for ever."""
    trouble = [True]

    @bed.workflow("two-calls", retry=Retry(tries=1))
    def two_calls(turn: Turn) -> TurnEnd | None:
        if turn.number == 0:
            turn.call({"task": "one"}, reply="done")
            turn.call({"task": "two"}, reply="done")
        turn.state.setdefault("done", []).extend(reply.payload for reply in turn.take("done"))
        if turn.state["done"] and trouble:
            raise RuntimeError("broken")
        if len(turn.state["done"]) == 2:
            return turn.complete(sorted(turn.state["done"]))
        turn.wait("done")
        return None

    bed.start("two-calls", "t")
    bed.run_due()
    one, two = bed.calls
    bed.reply(one, "first")
    bed.run_due()
    assert bed.status("t") is FAILED
    bed.reply(two, "second")
    bed.reply(two, "second, again")
    assert (bed.status("t"), bed.describe("t").pending_signals) == (FAILED, 0)
    trouble.clear()
    bed.weft.retry("t")
    bed.run_due()
    assert bed.result("t") == ["first", "second"]


@pytest.mark.parametrize("status", ["running", "suspended", "completed", "cancelled", "terminated", "timed-out"])
def test_only_what_has_failed_or_was_set_aside_is_retried(bed: WorkflowBed, status: str) -> None:
    bring_to(bed, status)
    with pytest.raises(WrongStatus, match=f"cannot be retried: its status is {status}"):
        bed.weft.retry("w")


# -- statuses and verbs


def bring_to(bed: WorkflowBed, status: str, id: str = "w") -> None:
    """A workflow in this status."""
    if "collect" not in bed.weft.registry.names:
        bed.workflow("collect")(collect)
        bed.workflow("fails", retry=Retry(tries=1))(fails)
    bed.start("fails" if status == "failed" else "collect", id, timeout=HOUR if status == "timed-out" else None)
    bed.run_due()
    moves: dict[str, Callable[[], Any]] = {
        "suspended": lambda: bed.weft.suspend(id),
        "completed": lambda: (bed.signal(id, "event", "closed"), bed.run_due()),
        "cancelled": lambda: (bed.weft.cancel(id), bed.run_due()),
        "terminated": lambda: bed.weft.terminate(id),
        "timed-out": lambda: bed.advance(HOUR),
        "set-aside": lambda: set_aside(bed, id),
    }
    if status in moves:
        moves[status]()
    assert bed.status(id) == status


ENDED = ["completed", "failed", "cancelled", "terminated", "timed-out"]


@pytest.mark.parametrize("status", ENDED)
@pytest.mark.parametrize("verb", ["cancel", "terminate", "suspend", "resume", "signal", "update"])
def test_a_workflow_that_has_ended_takes_nothing_more_and_nothing_changes(
    bed: WorkflowBed, status: str, verb: str
) -> None:
    bring_to(bed, status)
    before = everything(bed)
    with pytest.raises(WorkflowEnded, match=status):
        getattr(bed.weft, verb)("w", *(["event"] if verb in ("signal", "update") else []))
    assert everything(bed) == before


@pytest.mark.parametrize("verb", ["cancel", "terminate", "suspend", "resume", "retry", "describe", "signal", "update"])
@pytest.mark.parametrize(
    ("id", "error"),
    [("nobody", WorkflowNotFound), ("", InvalidInput), ("x" * 256, InvalidInput), ("a\0b", InvalidInput)],
)
def test_a_workflow_that_is_not_there_or_cannot_be_has_its_error(
    bed: WorkflowBed, verb: str, id: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        getattr(bed.weft, verb)(id, *(["event"] if verb in ("signal", "update") else []))


# -- purge


def test_a_purge_deletes_what_ended_longer_ago_with_everything_that_belongs_to_it(bed: WorkflowBed) -> None:
    bring_to(bed, "completed", "old")
    bed.advance(DAY)
    bring_to(bed, "completed", "young")
    bring_to(bed, "running", "alive")
    bed.advance(HOUR)
    assert bed.weft.purge(older_than=DAY) == 1
    with pytest.raises(WorkflowNotFound):
        bed.describe("old")
    assert {info.id for info in bed.weft.list()} == {"young", "alive"}
    run_ids = {info.run_id for info in bed.weft.list()}
    for table in metadata.sorted_tables:
        if "run_id" in table.c and table.name != "weft_history":
            assert {row.run_id for row in rows(bed, select(table.c.run_id))} <= run_ids


def test_a_purge_takes_the_statuses_that_it_is_given(bed: WorkflowBed) -> None:
    for status in ENDED:
        bring_to(bed, status, status)
    bed.advance(MINUTE)
    assert bed.weft.purge(older_than=timedelta(0), status=["failed", WorkflowStatus.CANCELLED]) == 2
    assert {info.id for info in bed.weft.list()} == set(ENDED) - {"failed", "cancelled"}


def test_a_purge_works_in_batches_and_says_how_many(bed: WorkflowBed) -> None:
    bed.workflow("input")(complete_with_input)
    for n in range(5):
        bed.start("input", f"i{n}")
    bed.run_due()
    bed.advance(SECOND)
    assert [bed.weft.purge(older_than=timedelta(0), limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_what_is_not_over_is_never_purged(bed: WorkflowBed) -> None:
    for status in ("running", "suspended", "set-aside"):
        bring_to(bed, status, status)
    bed.advance(DAY)
    assert bed.weft.purge(older_than=timedelta(0)) == 0


def test_an_id_that_is_used_again_after_a_purge_never_sees_an_old_epoch(bed: WorkflowBed) -> None:
    bring_to(bed, "running")
    for _ in range(5):
        bed.weft.suspend("w")
        bed.weft.resume("w")
        bed.run_due()
    bed.weft.terminate("w")
    last = bed.describe("w").epoch
    bed.advance(SECOND)
    bed.weft.purge(older_than=timedelta(0))
    ((floor,),) = rows(bed, select(store.c.epoch_floor))
    assert floor >= last
    bed.start("collect", "w")
    bed.run_due()
    assert bed.describe("w").epoch > last


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"older_than": timedelta(days=-1)}, "older_than must be from 0"),
        ({"older_than": "1 day"}, "older_than must be a timedelta"),
        ({"older_than": DAY, "limit": 0}, "limit must be from 1 to 1000000, not 0"),
        ({"older_than": DAY, "status": ["running"]}, "must be an ending, not running"),
        ({"older_than": DAY, "status": ["gone"]}, "status 'gone' is none of"),
    ],
)
def test_a_purge_that_cannot_be_is_refused(bed: WorkflowBed, arguments: dict[str, Any], problem: str) -> None:
    bring_to(bed, "completed")
    bed.advance(2 * DAY)
    with pytest.raises(InvalidInput, match=problem):
        bed.weft.purge(**arguments)
    assert bed.status("w") is WorkflowStatus.COMPLETED


def test_the_passes_purge_what_the_retention_has_passed(store_and_clock: Any) -> None:
    with WorkflowBed(store=store_and_clock, settings=Settings(retention=DAY)) as bed:
        bring_to(bed, "completed", "old")
        bring_to(bed, "running", "alive")
        bed.advance(DAY + MINUTE)
        assert {info.id for info in bed.weft.list()} == {"alive"}


# -- starting under an id that is taken


@pytest.mark.parametrize("status", ["running", "suspended", "set-aside", *ENDED])
def test_an_id_that_is_taken_is_an_error_unless_it_is_said_otherwise(bed: WorkflowBed, status: str) -> None:
    bring_to(bed, status)
    before = everything(bed)
    with pytest.raises(WorkflowAlreadyExists, match=f"status {status}"):
        bed.start("collect", "w")
    assert everything(bed) == before


@pytest.mark.parametrize("status", ["running", "suspended", "set-aside", *ENDED])
def test_the_existing_workflow_is_used_whatever_its_status(bed: WorkflowBed, status: str) -> None:
    bring_to(bed, status)
    before = everything(bed)
    handle = bed.weft.start("collect", "w", on_conflict=OnConflict.USE_EXISTING)
    assert handle.run_id == bed.describe("w").run_id
    assert everything(bed) == before


def test_a_free_id_is_started_by_every_policy(bed: WorkflowBed) -> None:
    bed.workflow("input")(complete_with_input)
    for policy in OnConflict:
        bed.start("input", policy.value, policy.value, on_conflict=policy)
    bed.run_due()
    assert [bed.result(policy.value) for policy in OnConflict] == [policy.value for policy in OnConflict]


@pytest.mark.parametrize("status", ENDED)
def test_an_ended_workflow_is_restarted_under_a_higher_epoch_with_nothing_of_its_past(
    bed: WorkflowBed, status: str
) -> None:
    bring_to(bed, status)
    before = bed.describe("w")
    bed.start("collect", "w", on_conflict="restart-if-ended")
    bed.run_due()
    after = bed.describe("w")
    assert (after.status, after.state, after.turn, after.error) == (RUNNING, {}, 1, None)
    assert after.run_id != before.run_id
    assert after.epoch > before.epoch
    ((old,),) = rows(bed, select(func.count()).select_from(signals).where(signals.c.run_id == before.run_id))
    assert old == 0


@pytest.mark.parametrize("status", ["running", "suspended", "set-aside"])
def test_a_workflow_that_has_not_ended_is_not_restarted(bed: WorkflowBed, status: str) -> None:
    bring_to(bed, status)
    before = everything(bed)
    with pytest.raises(WorkflowAlreadyExists, match=status):
        bed.start("collect", "w", on_conflict="restart-if-ended")
    assert everything(bed) == before


def test_a_policy_that_does_not_exist_is_refused(bed: WorkflowBed) -> None:
    bed.workflow("input")(complete_with_input)
    with pytest.raises(InvalidInput, match="on_conflict 'replace' is none of error, use-existing, restart-if-ended"):
        bed.start("input", "i", on_conflict="replace")
    assert bed.weft.list() == ()


# -- signal_or_start


def test_a_signal_starts_the_workflow_if_there_is_none(bed: WorkflowBed) -> None:
    bed.workflow("collect")(collect)
    receipt = bed.weft.signal_or_start("collect", "w", "event", 1, input="new")
    bed.run_due()
    assert (bed.state("w"), bed.describe("w").input) == ({"events": [1]}, "new")
    assert receipt.run_id == bed.describe("w").run_id


def test_a_signal_goes_to_the_workflow_if_there_is_one(bed: WorkflowBed, collector: WorkflowType) -> None:
    run_id = bed.describe("c").run_id
    bed.weft.signal_or_start("collect", "c", "event", 1, input="ignored")
    bed.run_due()
    info = bed.describe("c")
    assert (info.run_id, info.state, info.input) == (run_id, {"events": [1]}, None)


@pytest.mark.parametrize("status", ENDED)
def test_a_signal_starts_the_workflow_again_if_it_has_ended(bed: WorkflowBed, status: str) -> None:
    bring_to(bed, status)
    bed.weft.signal_or_start("collect", "w", "event", 1)
    bed.run_due()
    assert (bed.status("w"), bed.state("w")) == (RUNNING, {"events": [1]})


@pytest.mark.parametrize("status", ["suspended", "set-aside"])
def test_a_signal_waits_in_a_workflow_that_cannot_run_now(bed: WorkflowBed, status: str) -> None:
    bring_to(bed, status)
    pending = bed.describe("w").pending_signals
    bed.weft.signal_or_start("collect", "w", "event", 1)
    assert (bed.status("w"), bed.describe("w").pending_signals) == (status, pending + 1)


def test_a_key_makes_it_one_signal_and_one_start(bed: WorkflowBed) -> None:
    bed.workflow("collect")(collect)
    receipts = [bed.weft.signal_or_start("collect", "w", "event", "closed", key="k") for _ in range(2)]
    bed.run_due()
    receipts.append(bed.weft.signal_or_start("collect", "w", "event", "closed", key="k"))
    assert bed.result("w") == ["closed"]
    assert [receipt.is_duplicate for receipt in receipts] == [False, True, True]
    assert len({receipt.run_id for receipt in receipts}) == 1


@pytest.mark.parametrize("first", ["started", "started and ended", "purged"])
def test_somebody_who_is_faster_between_look_and_write_costs_nothing(
    bed: WorkflowBed, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The signal finds nobody (or an ended one), and until it starts one, somebody else has, or has removed it."""
    bed.workflow("collect")(collect)
    if first == "purged":
        bring_to(bed, "terminated")
        bed.advance(SECOND)
    start_new = bed.weft.store.workflows.start_new
    meddled = []

    def meddle(*arguments: Any, **options: Any) -> Any:
        if not meddled and not bed.weft.store.database.is_sqlite:
            meddled.append(True)
            if first == "purged":
                bed.weft.purge(older_than=timedelta(0))
            else:
                bed.start("collect", "w")
            if first == "started and ended":
                bed.weft.terminate("w")
        return start_new(*arguments, **options)

    monkeypatch.setattr(bed.weft.store.workflows, "start_new", meddle, raising=False)
    bed.weft.signal_or_start("collect", "w", "event", 1)
    bed.run_due()
    assert (bed.status("w"), bed.state("w")) == (RUNNING, {"events": [1]})
    ((count,),) = rows(bed, select(func.count()).select_from(workflows))
    assert count == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nonsense", "w", "event"), "no workflow type 'nonsense'"),
        (("collect", "", "event"), "workflow id must not be empty"),
        (("collect", "w", ""), "signal name must not be empty"),
        (("collect", "w", "event", object()), "payload is not JSON"),
    ],
)
def test_neither_is_done_if_one_of_both_cannot_be(bed: WorkflowBed, arguments: tuple[Any, ...], problem: str) -> None:
    bed.workflow("collect")(collect)
    with pytest.raises((InvalidInput, LookupError), match=problem):
        bed.weft.signal_or_start(*arguments)
    assert bed.weft.list() == ()
