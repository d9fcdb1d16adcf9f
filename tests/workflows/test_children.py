"""Children: started with a commit, replied for when they end, and dealt with when their parent ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flows import HOUR, MINUTE, collect, complete_with_input, fails, rows, statuses, wait_for_ever
from sqlalchemy import select

from weft_tasks.errors import InvalidInput, WorkflowNotCompleted, WorkflowNotFound
from weft_tasks.model import WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store.tables import outbox
from weft_tasks.testing import SimulatedCrash, WorkflowBed
from weft_tasks.workflows.registry import Retry
from weft_tasks.workflows.turn import Turn, TurnEnd

RUNNING, CANCELLED = WorkflowStatus.RUNNING, WorkflowStatus.CANCELLED


@pytest.fixture
def family(bed: WorkflowBed) -> WorkflowBed:
    """With a parent `p` whose child `c` is of the type and input that its own input names, and that ends with what it
    hears of the child, or on the signal `end`."""

    @bed.workflow("parent", retry=Retry(tries=1))
    def parent(turn: Turn) -> TurnEnd | None:
        if turn.number == 0:
            turn.start_child(turn.input["type"], turn.input.get("input"), id="c", reply="child", **turn.input["how"])
        for told in turn.take("child"):
            return turn.complete({"payload": told.payload, "is_failure": told.is_failure})
        for end in turn.take("end"):
            if end.payload == "raise":
                raise RuntimeError("the parent fails")
            return turn.fail("on purpose") if end.payload == "fail" else turn.complete("ended first")
        turn.wait("child", "end")
        return None

    bed.workflow("input")(complete_with_input)
    bed.workflow("waits")(wait_for_ever)
    bed.workflow("collect")(collect)
    bed.workflow("fails", retry=Retry(tries=1))(fails)
    return bed


def begin(family: WorkflowBed, type: str, input: Any = None, **how: Any) -> None:
    family.start("parent", "p", {"type": type, "input": input, "how": how})
    family.run_due()


# -- starting


def test_a_child_starts_with_its_parents_commit_and_knows_its_parent(family: WorkflowBed) -> None:
    begin(family, "waits")
    child = family.describe("c")
    assert (child.status, child.parent_id, child.type) == (RUNNING, "p", "waits")
    assert len(family.turns) == 2


def test_a_turn_that_dies_or_fails_has_started_no_child(family: WorkflowBed) -> None:
    family.crash_next_turn("p", before="commit")
    begin(family, "input")
    with pytest.raises(WorkflowNotFound):
        family.describe("c")
    family.advance(MINUTE)
    assert family.status("p") is WorkflowStatus.COMPLETED


def test_a_child_whose_offer_was_lost_is_picked_up_by_a_pass(family: WorkflowBed) -> None:
    family.crash_next_turn("p", after="commit")
    begin(family, "input", 7)
    assert (family.status("c"), len(family.turns)) == (RUNNING, 0)
    family.advance(MINUTE)
    assert family.result("p") == {"payload": 7, "is_failure": False}


def test_a_child_without_an_id_gets_one_that_is_the_same_in_every_try(bed: WorkflowBed) -> None:
    ids = []

    @bed.workflow("parent", retry=Retry(delay=timedelta(seconds=1)))
    def parent(turn: Turn) -> None:
        ids.append((turn.start_child("child"), turn.start_child("child")))
        if turn.tries == 0:
            raise RuntimeError("once")
        turn.wait("never")

    bed.workflow("child")(wait_for_ever)
    bed.start("parent", "p")
    bed.advance(MINUTE)
    assert len(ids) == 2
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2
    assert {bed.describe(child).parent_id for child in ids[0]} == {"p"}


def test_a_child_of_a_parent_with_a_very_long_id_gets_an_id_that_is_allowed(bed: WorkflowBed) -> None:
    @bed.workflow("parent")
    def parent(turn: Turn) -> TurnEnd:
        return turn.complete(turn.start_child("child", close_policy="abandon"))

    bed.workflow("child")(wait_for_ever)
    bed.start("parent", "p" * 255)
    bed.run_due()
    child = bed.result("p" * 255)
    assert isinstance(child, str)
    assert len(child) <= 255
    assert bed.status(child) is RUNNING


# -- the reply


def test_a_child_that_completes_tells_its_parent_the_result(family: WorkflowBed) -> None:
    begin(family, "input", {"n": 7})
    assert family.result("p") == {"payload": {"n": 7}, "is_failure": False}


@pytest.mark.parametrize(
    ("type", "end", "status", "error_type"),
    [
        ("fails", lambda bed: bed.run_due(), "failed", "RuntimeError"),
        ("waits", lambda bed: bed.weft.terminate("c", "enough"), "terminated", "Terminated"),
        ("waits", lambda bed: bed.weft.cancel("c"), "cancelled", None),
        ("timed", lambda bed: bed.advance(2 * HOUR), "timed-out", "TimedOut"),
    ],
)
def test_a_child_that_ends_otherwise_tells_its_parent_how(
    family: WorkflowBed, type: str, end: Callable[[WorkflowBed], None], status: str, error_type: str | None
) -> None:
    if type == "timed":
        begin(family, "waits", timeout=3600)
    else:
        begin(family, type)
    end(family)
    family.run_due()
    told = family.result("p")
    assert isinstance(told, dict)
    assert told["is_failure"] is True
    payload = told["payload"]
    assert isinstance(payload, dict)
    assert (payload["type"], payload["child"], payload["status"]) == ("ChildFailed", "c", status)
    error = payload["error"]
    assert (error["type"] if isinstance(error, dict) else error) == error_type


@pytest.mark.parametrize("when", ["before commit", "after commit"])
def test_a_reply_arrives_once_though_the_childs_process_dies(family: WorkflowBed, when: str) -> None:
    if when == "before commit":
        family.crash_next_turn("c", before="commit")
    else:
        family.crash_next_turn("c", after="commit")
    begin(family, "input", 7)
    assert family.status("p") is RUNNING
    family.advance(MINUTE)
    assert family.result("p") == {"payload": 7, "is_failure": False}
    assert rows(family, select(outbox)) == []


def test_a_reply_arrives_though_parent_and_child_are_on_different_engines_and_one_dies(family: WorkflowBed) -> None:
    begin(family, "collect")
    assert family.owner("p") != family.owner("c")
    family.kill_engine(family.owner("p"))
    family.signal("c", "event", "closed")
    family.advance(5 * MINUTE)
    assert family.result("p") == {"payload": ["closed"], "is_failure": False}


def test_a_child_without_reply_tells_nobody(bed: WorkflowBed) -> None:
    @bed.workflow("parent")
    def parent(turn: Turn) -> None:
        if turn.number == 0:
            turn.start_child("child", id="c")
        turn.wait("child")

    bed.workflow("child")(complete_with_input)
    bed.start("parent", "p")
    bed.advance(MINUTE)
    assert (bed.status("c"), bed.describe("p").pending_signals) == (WorkflowStatus.COMPLETED, 0)


def test_many_children_are_told_apart_by_what_they_return(bed: WorkflowBed) -> None:
    @bed.workflow("summary")
    def summary(turn: Turn) -> TurnEnd | None:
        if turn.number == 0:
            for n in range(10):
                turn.start_child("square", n, reply="squared")
        turn.state.setdefault("squares", []).extend(told.payload for told in turn.take("squared"))
        if len(turn.state["squares"]) == 10:
            return turn.complete(sorted(turn.state["squares"]))
        turn.wait("squared")
        return None

    @bed.workflow("square")
    def square(turn: Turn) -> TurnEnd:
        return turn.complete(turn.input**2)

    bed.start("summary", "s")
    bed.run_due()
    assert bed.result("s") == [n**2 for n in range(10)]


def test_a_child_whose_parent_has_ended_before_it_ends_in_peace(family: WorkflowBed) -> None:
    begin(family, "collect", close_policy="abandon")
    family.signal("p", "end")
    family.run_due()
    family.signal("c", "event", "closed")
    family.advance(MINUTE)
    assert family.result("c") == ["closed"]
    assert family.result("p") == "ended first"
    assert rows(family, select(outbox)) == []


@pytest.mark.parametrize("away", ["restart", "purge"])
def test_a_reply_never_reaches_another_run_of_the_parent(family: WorkflowBed, away: str) -> None:
    begin(family, "collect", close_policy="abandon")
    family.weft.terminate("p")
    if away == "purge":
        family.advance(timedelta(seconds=1))
        family.weft.purge(older_than=timedelta(0))
    family.start("collect", "p", on_conflict="restart-if-ended")
    family.signal("c", "event", "closed")
    family.advance(MINUTE)
    assert family.status("c") is WorkflowStatus.COMPLETED
    assert (family.status("p"), family.describe("p").pending_signals) == (RUNNING, 0)


def test_a_child_that_failed_and_was_retried_tells_its_parent_each_of_its_ends(bed: WorkflowBed) -> None:
    @bed.workflow("parent")
    def parent(turn: Turn) -> None:
        if turn.number == 0:
            turn.start_child("fragile", id="c", reply="child")
        for told in turn.take("child"):
            turn.state.setdefault("told", []).append([told.is_failure, told.payload if not told.is_failure else None])
        turn.wait("child")

    broken = [True]

    @bed.workflow("fragile", retry=Retry(tries=1))
    def fragile(turn: Turn) -> TurnEnd:
        if broken:
            raise RuntimeError("broken")
        return turn.complete("mended")

    bed.start("parent", "p")
    bed.run_due()
    assert bed.state("p") == {"told": [[True, None]]}
    broken.clear()
    bed.weft.retry("c")
    bed.advance(MINUTE)
    assert bed.result("c") == "mended"
    assert bed.state("p") == {"told": [[True, None], [False, "mended"]]}
    assert rows(bed, select(outbox)) == []


def test_a_parent_that_failed_and_is_retried_hears_what_became_of_its_children_meanwhile(bed: WorkflowBed) -> None:
    """They were cancelled with it, and nobody tells it again: without that it would wait for them for ever."""
    broken = [True]

    @bed.workflow("parent", retry=Retry(tries=1))
    def parent(turn: Turn) -> TurnEnd | None:
        if turn.number == 0:
            turn.start_child("child", id="c", reply="child")
        for told in turn.take("child"):
            return turn.complete([told.is_failure, told.payload["status"]])
        if turn.take("event") and broken:
            raise RuntimeError("broken")
        turn.wait("child", "event")
        return None

    bed.workflow("child")(wait_for_ever)
    bed.start("parent", "p")
    bed.run_due()
    bed.signal("p", "event")
    bed.advance(MINUTE)
    assert (bed.status("p"), bed.status("c")) == (WorkflowStatus.FAILED, CANCELLED)
    broken.clear()
    bed.weft.retry("p")
    bed.run_due()
    assert bed.result("p") == [True, "cancelled"]


# -- the close policy


ENDS: dict[str, Callable[[WorkflowBed], Any]] = {
    "complete": lambda bed: bed.signal("p", "end"),
    "fail": lambda bed: bed.signal("p", "end", "fail"),
    "raise": lambda bed: bed.signal("p", "end", "raise"),
    "cancel": lambda bed: bed.weft.cancel("p"),
    "terminate": lambda bed: bed.weft.terminate("p"),
    "timeout": lambda bed: bed.advance(2 * HOUR),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("policy", "becomes"), [("cancel", CANCELLED), ("abandon", RUNNING)])
def test_what_becomes_of_a_child_when_its_parent_ends_is_its_close_policy(
    family: WorkflowBed, end: str, policy: str, becomes: WorkflowStatus
) -> None:
    family.start("parent", "p", {"type": "waits", "how": {"close_policy": policy}}, timeout=HOUR)
    family.run_due()
    ENDS[end](family)
    family.advance(MINUTE)
    assert family.status("p").is_ended
    assert family.status("c") is becomes


def test_the_policy_is_to_cancel_unless_something_else_is_said(family: WorkflowBed) -> None:
    begin(family, "waits")
    family.weft.terminate("p")
    family.advance(MINUTE)
    assert family.status("c") is CANCELLED


def test_a_cancelled_child_gets_its_last_turn(family: WorkflowBed) -> None:
    @family.workflow("tidy")
    def tidy(turn: Turn) -> None:
        turn.wait("never")

    @tidy.on_cancel
    def clean_up(turn: Turn) -> None:
        turn.call({"task": "shop.refund"})

    begin(family, "tidy")
    family.weft.terminate("p")
    family.advance(MINUTE)
    assert (family.status("c"), [call.task for call in family.calls]) == (CANCELLED, ["shop.refund"])


@pytest.mark.parametrize("state", ["suspended", "set aside", "delayed by its retry"])
def test_a_child_that_cannot_run_is_cancelled_all_the_same(bed: WorkflowBed, state: str) -> None:
    @bed.workflow("parent")
    def parent(turn: Turn) -> None:
        turn.start_child("child", id="c") if turn.number == 0 else None
        turn.wait("never")

    @bed.workflow("child", retry=Retry(delay=HOUR, max_delay=HOUR))
    def child(turn: Turn) -> None:
        if state == "set aside":
            raise SimulatedCrash
        if state == "delayed by its retry":
            raise RuntimeError("later")
        turn.wait("never")

    bed.start("parent", "p")
    bed.advance(5 * MINUTE)
    if state == "suspended":
        bed.weft.suspend("c")
    if state == "set aside":
        assert bed.status("c") is WorkflowStatus.SET_ASIDE
    bed.weft.terminate("p")
    bed.advance(MINUTE)
    assert bed.status("c") is CANCELLED


def test_a_set_aside_child_that_is_cancelled_with_its_parent_takes_its_own_children_along(bed: WorkflowBed) -> None:
    @bed.workflow("parent")
    def parent(turn: Turn) -> None:
        turn.start_child("child", id="c") if turn.number == 0 else None
        turn.wait("never")

    @bed.workflow("child")
    def child(turn: Turn) -> None:
        if turn.take("die"):
            raise SimulatedCrash
        turn.start_child("grandchild", id="g") if turn.number == 0 else None
        turn.wait("die")

    bed.workflow("grandchild")(wait_for_ever)
    bed.start("parent", "p")
    bed.run_due()
    bed.signal("c", "die")
    bed.advance(5 * MINUTE)
    pending = bed.weft.update("c", "anything")
    assert bed.status("c") is WorkflowStatus.SET_ASIDE
    bed.weft.terminate("p")
    bed.advance(MINUTE)
    assert [bed.status(who) for who in ("c", "g")] == [CANCELLED, CANCELLED]
    assert bed.describe("c").pending_updates == 0
    assert pending is not None


def test_grandchildren_end_with_their_parents_one_after_the_other(bed: WorkflowBed) -> None:
    @bed.workflow("line")
    def line(turn: Turn) -> None:
        if turn.number == 0 and turn.input > 0:
            turn.start_child("line", turn.input - 1, id=f"level-{turn.input - 1}")
        turn.wait("never")

    bed.start("line", "level-4", 4)
    bed.run_due()
    bed.weft.terminate("level-4")
    bed.advance(5 * MINUTE)
    assert {bed.status(f"level-{n}") for n in range(4)} == {CANCELLED}


def test_the_turn_of_a_child_that_runs_when_its_parent_ends_cannot_commit(bed: WorkflowBed) -> None:
    @bed.workflow("parent")
    def parent(turn: Turn) -> None:
        turn.start_child("child", id="c") if turn.number == 0 else None
        turn.wait("never")

    @bed.workflow("child")
    def child(turn: Turn) -> TurnEnd:
        bed.weft.terminate("p")
        assert turn.cancelled
        return turn.complete("too late")

    bed.start("parent", "p")
    bed.run_due()
    (ordered,) = [task_id for engine in bed.engines for task_id in bed.weft.store.aborts.list(engine)]
    assert ordered
    bed.advance(MINUTE)
    assert (bed.status("c"), statuses(bed).count("refused")) == (CANCELLED, 1)


def test_a_parent_that_ends_in_the_turn_that_starts_a_child_deals_with_it_by_its_policy(bed: WorkflowBed) -> None:
    @bed.workflow("parent")
    def parent(turn: Turn) -> TurnEnd:
        turn.start_child("child", id="kept", close_policy="abandon")
        turn.start_child("child", id="dropped", close_policy="cancel")
        return turn.complete()

    bed.workflow("child")(wait_for_ever)
    bed.start("parent", "p")
    bed.advance(MINUTE)
    assert (bed.status("kept"), bed.status("dropped")) == (RUNNING, CANCELLED)


def test_the_last_turn_of_a_cancelled_workflow_may_start_a_child_to_clean_up_after_it(bed: WorkflowBed) -> None:
    main = bed.workflow("main")(wait_for_ever)
    bed.workflow("input")(complete_with_input)

    @main.on_cancel
    def clean_up(turn: Turn) -> None:
        turn.start_child("input", "tidied", id="c", close_policy="abandon")

    bed.start("main", "m")
    bed.run_due()
    bed.weft.cancel("m")
    bed.run_due()
    assert (bed.status("m"), bed.result("c")) == (CANCELLED, "tidied")


def test_a_last_turn_whose_child_cannot_be_is_cancelled_with_the_error(bed: WorkflowBed) -> None:
    main = bed.workflow("main")(wait_for_ever)

    @main.on_cancel
    def clean_up(turn: Turn) -> None:
        turn.call({"task": "shop.refund"})
        turn.start_child("main", id="taken")

    bed.start("main", "taken")
    bed.start("main", "m")
    bed.run_due()
    bed.weft.cancel("m")
    bed.advance(Settings().cancel_bound)
    info = bed.describe("m")
    assert (info.status, bed.calls) == (CANCELLED, ())
    assert info.error is not None
    assert "'taken'" in str(info.error["message"])


# -- what cannot be


def test_a_child_under_an_id_that_is_taken_fails_the_parent_clearly_and_nothing_is_half_done(
    family: WorkflowBed,
) -> None:
    family.start("input", "c", "somebody else")
    family.run_due()
    begin(family, "waits")
    with pytest.raises(WorkflowNotCompleted, match=r"InvalidInput.*'c'"):
        family.result("p")
    assert family.result("c") == "somebody else"
    assert family.calls == ()


def test_two_children_under_one_id_fail_the_turn(bed: WorkflowBed) -> None:
    @bed.workflow("parent", retry=Retry(tries=1))
    def parent(turn: Turn) -> TurnEnd:
        turn.start_child("child", id="first")
        turn.start_child("child", id="twin")
        turn.start_child("child", id="twin")
        return turn.complete()

    bed.workflow("child")(wait_for_ever)
    bed.start("parent", "p")
    bed.run_due()
    with pytest.raises(WorkflowNotCompleted, match="'twin'"):
        bed.result("p")
    assert [info.id for info in bed.weft.list()] == ["p"]


def test_a_child_under_its_parents_own_id_fails_the_turn(bed: WorkflowBed) -> None:
    @bed.workflow("parent", retry=Retry(tries=1))
    def parent(turn: Turn) -> TurnEnd:
        turn.start_child("parent", id=turn.workflow_id)
        return turn.complete()

    bed.start("parent", "p")
    bed.run_due()
    assert bed.status("p") is WorkflowStatus.FAILED


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"id": ""}, "child id must not be empty"),
        ({"id": "x" * 256}, "child id has 256 characters"),
        ({"id": "a\nb"}, "child id"),
        ({"id": 7}, "child id must be a string"),
        ({"reply": ""}, "reply must not be empty"),
        ({"close_policy": "terminate"}, "close policy must be 'cancel' or 'abandon'"),
        ({"timeout": -1}, "timeout must be from 0"),
        ({"input": object()}, "child input is not JSON"),
        ({"input": "x" * 300_000}, "limit"),
    ],
)
def test_a_child_that_cannot_be_is_refused(bed: WorkflowBed, arguments: dict[str, Any], problem: str) -> None:
    @bed.workflow("parent")
    def parent(turn: Turn) -> TurnEnd:
        with pytest.raises(InvalidInput, match=problem):
            turn.start_child("parent", **arguments)
        return turn.complete("refused")

    bed.start("parent", "p")
    bed.run_due()
    assert bed.result("p") == "refused"
    assert [info.id for info in bed.weft.list()] == ["p"]


def test_a_child_of_an_unknown_type_fails_the_turn_with_the_names_there_are(family: WorkflowBed) -> None:
    begin(family, "nonsense")
    with pytest.raises(WorkflowNotCompleted, match=r"no workflow type 'nonsense' is registered here \(known: collect"):
        family.result("p")
