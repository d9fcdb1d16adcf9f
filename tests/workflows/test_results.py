"""Results and queries: what a handle waits for, from any process, and what can be listed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flows import DAY, HOUR, collect, complete_with_input, fails, wait_for_ever

from weft_tasks import handles
from weft_tasks.errors import InvalidInput, ResultTimeout, WorkflowEnded, WorkflowNotCompleted, WorkflowNotFound
from weft_tasks.model import SignalReceipt, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.testing import WorkflowBed
from weft_tasks.workflows.registry import Retry
from weft_tasks.workflows.turn import Turn, TurnEnd


@pytest.fixture
def shop(bed: WorkflowBed) -> WorkflowBed:
    bed.workflow("collect")(collect)
    bed.workflow("input")(complete_with_input)
    bed.workflow("waits")(wait_for_ever)
    bed.workflow("fails", retry=Retry(tries=1))(fails)
    return bed


# -- the result of a workflow


@pytest.mark.parametrize("result", [None, 0, "", [], {"a": [1, 2.5, None, True]}, "ünïcödé \x00 \ud800", 2**70])
def test_a_result_is_what_the_handler_completed_with(shop: WorkflowBed, result: object) -> None:
    handle = shop.weft.start("input", "i", result)
    shop.run_due()
    assert handle.result(timeout=0) == result


def test_a_result_that_is_there_is_had_again_and_again_and_from_another_handle(shop: WorkflowBed) -> None:
    handle = shop.weft.start("input", "i", 7)
    shop.run_due()
    assert [handle.result(timeout=0), handle.result(timeout=0), shop.weft.handle("i").result(timeout=0)] == [7, 7, 7]


def test_a_result_that_is_not_there_in_time_is_a_timeout_and_loses_nothing(shop: WorkflowBed) -> None:
    handle = shop.weft.start("input", "i", 7)
    with pytest.raises(ResultTimeout, match=r"workflow 'i' \(running\) has no result after 0\.01 s") as caught:
        handle.result(timeout=0.01)
    assert isinstance(caught.value, TimeoutError)
    shop.run_due()
    assert handle.result(timeout=0) == 7


def test_a_result_that_comes_while_it_is_waited_for_is_had(shop: WorkflowBed, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def instead_of_sleeping(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            shop.run_due()

    monkeypatch.setattr(handles.time, "sleep", instead_of_sleeping)
    assert shop.weft.start("input", "i", 7).result(timeout=60) == 7
    assert len(pauses) == 5
    assert pauses == sorted(pauses)


@pytest.mark.parametrize("status", ["failed", "cancelled", "terminated", "timed-out"])
def test_any_other_ending_is_an_error_that_says_which_and_why(shop: WorkflowBed, status: str) -> None:
    handle = shop.weft.start("fails" if status == "failed" else "waits", "w", timeout=HOUR)
    shop.run_due()
    if status == "cancelled":
        shop.weft.cancel("w")
        shop.run_due()
    if status == "terminated":
        shop.weft.terminate("w", "enough")
    if status == "timed-out":
        shop.advance(HOUR)
    with pytest.raises(WorkflowNotCompleted, match=f"ended as {status}") as caught:
        handle.result(timeout=0)
    assert caught.value.status == status
    reasons = {"failed": "this handler cannot", "terminated": "enough", "timed-out": "timeout has passed"}
    assert reasons.get(status, "None") in str(caught.value)


def test_the_result_of_a_purged_workflow_is_a_definite_error(shop: WorkflowBed) -> None:
    handle = shop.weft.start("input", "i")
    shop.run_due()
    shop.advance(timedelta(seconds=1))
    shop.weft.purge(older_than=timedelta(0))
    with pytest.raises(WorkflowNotFound):
        handle.result(timeout=60)


def test_a_handle_is_for_one_run_and_never_shows_another(shop: WorkflowBed) -> None:
    first = shop.weft.start("input", "i", "first")
    shop.run_due()
    second = shop.weft.start("input", "i", "second", on_conflict="restart-if-ended")
    shop.run_due()
    for look in (first.describe, lambda: first.result(timeout=60)):
        with pytest.raises(WorkflowNotFound):
            look()
    assert second.result(timeout=0) == "second"


@pytest.mark.parametrize("verb", ["signal", "update"])
def test_a_handle_reaches_its_own_run_and_never_another(shop: WorkflowBed, verb: str) -> None:
    first = shop.weft.start("collect", "c")
    shop.run_due()
    assert getattr(first, verb)("event", 1) is not None
    shop.weft.terminate("c")
    with pytest.raises(WorkflowEnded):
        getattr(first, verb)("event", 2)
    second = shop.weft.start("collect", "c", on_conflict="restart-if-ended")
    with pytest.raises(WorkflowNotFound):
        getattr(first, verb)("event", 3)
    info = second.describe()
    assert (info.pending_signals, info.pending_updates) == (0, 0)
    assert isinstance(second.signal("event", "closed"), SignalReceipt)


def test_a_handle_on_a_workflow_that_is_not_there_is_an_error(shop: WorkflowBed) -> None:
    with pytest.raises(WorkflowNotFound, match="'nobody'"):
        shop.weft.handle("nobody")


def test_a_wait_for_a_workflow_that_was_set_aside_says_so(shop: WorkflowBed) -> None:
    handle = shop.weft.start("waits", "w")
    for _ in range(Settings().begun_turn_limit):
        shop.crash_next_turn()
    shop.advance(minutes=10)
    assert handle.describe().status is WorkflowStatus.SET_ASIDE
    with pytest.raises(ResultTimeout, match="set-aside"):
        handle.result(timeout=0)


@pytest.mark.parametrize("timeout", [-1, "soon", None, float("nan")])
def test_a_time_to_wait_that_cannot_be_is_refused(shop: WorkflowBed, timeout: object) -> None:
    handle = shop.weft.start("input", "i", 7)
    asked = handle.update("anything")
    for each in (handle, asked):
        with pytest.raises(InvalidInput, match="timeout"):
            each.result(timeout=timeout)  # type: ignore[arg-type]


def test_a_time_to_wait_may_be_a_timedelta(shop: WorkflowBed) -> None:
    handle = shop.weft.start("input", "i", 7)
    shop.run_due()
    assert handle.result(timeout=timedelta(seconds=1)) == 7


# -- describe


def test_a_description_shows_what_the_workflow_is_and_waits_for(shop: WorkflowBed) -> None:
    @shop.workflow("rich")
    def rich(turn: Turn) -> None:
        turn.state["n"] = turn.number
        turn.wait("paid", timeout=HOUR)
        turn.wait("else")

    shop.start("rich", "r", {"in": 1})
    shop.run_due()
    shop.signal("r", "unheard")
    shop.weft.update("r", "unheard")
    info = shop.describe("r")
    assert (info.id, info.type, info.version, info.input, info.state) == ("r", "rich", 1, {"in": 1}, {"n": 0})
    assert (info.status, info.turn, info.is_due, info.is_cancelling) == (WorkflowStatus.RUNNING, 1, True, False)
    assert {wait.name: wait.deadline for wait in info.waits} == {"paid": shop.now + HOUR, "else": None}
    assert (info.pending_signals, info.pending_updates) == (1, 1)
    assert (info.created_at, info.updated_at, info.ended_at) == (shop.now, shop.now, None)
    assert (info.engine_id in shop.engines, info.parent_id) == (True, None)


def test_a_workflow_that_has_ended_waits_for_nothing(shop: WorkflowBed) -> None:
    for status in ("completed", "failed", "terminated"):
        shop.start({"completed": "input", "failed": "fails", "terminated": "waits"}[status], status)
        shop.run_due()
        if status == "terminated":
            shop.weft.terminate(status)
        info = shop.describe(status)
        assert (info.status, info.is_due, info.engine_id) == (status, False, None)


# -- list


@pytest.fixture
def many(shop: WorkflowBed) -> WorkflowBed:
    """Old and young, waiting and completed."""
    for n in range(3):
        shop.start("waits", f"old-{n}")
    shop.run_due()
    shop.advance(DAY)
    for n in range(3):
        shop.start("input", f"young-{n}")
    shop.run_due()
    return shop


def ids(found: object) -> list[str]:
    return [info.id for info in found]  # type: ignore[attr-defined]


def test_a_list_can_be_narrowed_by_type_status_engine_and_age(many: WorkflowBed) -> None:
    old, young = [f"old-{n}" for n in range(3)], [f"young-{n}" for n in range(3)]
    listed = many.weft.list
    assert ids(listed()) == old + young
    assert ids(listed(type="waits")) == ids(listed(status="running")) == old
    assert ids(listed(type="input")) == ids(listed(status=WorkflowStatus.COMPLETED)) == young
    assert ids(listed(older_than=HOUR)) == old
    assert ids(listed(older_than=2 * DAY)) == ids(listed(type="nonsense")) == []
    on = {engine: ids(listed(engine_id=engine)) for engine in many.engines}
    assert sorted(id for found in on.values() for id in found) == old
    assert ids(listed(type="waits", status="running", older_than=HOUR, limit=2)) == old[:2]


def test_pages_follow_each_other_until_there_is_nothing_more(many: WorkflowBed) -> None:
    pages, after = [], None
    while page := many.weft.list(limit=4, after=after):
        pages.append(ids(page))
        after = page[-1].id
    assert pages == [["old-0", "old-1", "old-2", "young-0"], ["young-1", "young-2"]]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"limit": 0}, "limit must be from 1"),
        ({"limit": 10_001}, "limit must be from 1"),
        ({"status": "gone"}, "status 'gone' is none of running, suspended"),
        ({"older_than": timedelta(-1)}, "older_than must be from 0"),
        ({"older_than": "a day"}, "older_than must be a timedelta"),
    ],
)
def test_a_list_that_cannot_be_is_refused(many: WorkflowBed, arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        many.weft.list(**arguments)  # type: ignore[arg-type]


def test_a_result_is_not_lost_on_a_turn_end_that_is_falsy(shop: WorkflowBed) -> None:
    @shop.workflow("empty")
    def empty(turn: Turn) -> TurnEnd:
        return turn.complete()

    shop.start("empty", "e")
    shop.run_due()
    assert (shop.status("e"), shop.result("e")) == (WorkflowStatus.COMPLETED, None)
