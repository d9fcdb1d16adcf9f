"""Updates: asked, validated, applied in order, and answered in the commit that changed the state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flows import HOUR, MINUTE, statuses, wait_for_ever

from weft_tasks.errors import (
    ResultTimeout,
    UpdateFailed,
    UpdateKeyConflict,
    UpdateRejected,
    WorkflowEnded,
    WorkflowNotFound,
)
from weft_tasks.handles import UpdateHandle
from weft_tasks.model import WorkflowStatus
from weft_tasks.store.updates import UPDATE_TRIES, UPDATES_PER_TURN
from weft_tasks.testing import SimulatedCrash, WorkflowBed
from weft_tasks.workflows.registry import Retry, WorkflowType
from weft_tasks.workflows.turn import Turn, TurnEnd


@pytest.fixture
def account(bed: WorkflowBed) -> WorkflowType:
    """An account that waits for `close`; its updates change the balance."""

    @bed.workflow("account")
    def account(turn: Turn) -> TurnEnd | None:
        turn.state.setdefault("balance", 0)
        turn.state["turns"] = turn.state.get("turns", 0) + 1
        if turn.take("close"):
            return turn.complete(turn.state["balance"])
        turn.wait("close")
        return None

    def positive(turn: Turn, amount: int) -> None:
        if amount <= 0:
            raise ValueError(f"not a positive amount: {amount}")

    @account.update("deposit", validator=positive)
    def deposit(turn: Turn, amount: int) -> int:
        turn.state["balance"] += amount
        turn.state.setdefault("log", []).append(amount)
        return int(turn.state["balance"])

    @account.update("drain")
    def drain(turn: Turn, _payload: Any) -> TurnEnd:
        return turn.complete({"drained": turn.state["balance"]})

    @account.update("spoil")
    def spoil(turn: Turn, _payload: Any) -> None:
        turn.state["balance"] = "spoilt"
        turn.take("close")
        turn.wait("else")
        turn.call({"task": "shop.spoil"})
        turn.start_child("account", id="spoilt")
        turn.complete("spoilt")
        raise RuntimeError("after all that")

    return account


@pytest.fixture
def opened(bed: WorkflowBed, account: WorkflowType) -> str:
    """An account that is parked."""
    bed.start("account", "a")
    bed.run_due()
    return "a"


def answers(*handles: UpdateHandle) -> list[Any]:
    return [handle.result(timeout=0) for handle in handles]


def ask(bed: WorkflowBed, name: str, payload: Any = None, key: str | None = None) -> UpdateHandle:
    """Sent, and nothing runs."""
    return bed.weft.update("a", name, payload, key=key)


# -- applied


def test_an_update_is_answered_with_what_its_handler_returns(bed: WorkflowBed, opened: str) -> None:
    assert bed.update(opened, "deposit", 5) == 5
    assert bed.state(opened)["balance"] == 5


def test_pending_updates_are_answered_in_the_order_of_their_arrival(bed: WorkflowBed, opened: str) -> None:
    handles = [ask(bed, "deposit", n) for n in (1, 2, 3)]
    bed.run_due()
    assert answers(*handles) == [1, 3, 6]
    assert bed.state(opened)["log"] == [1, 2, 3]


def test_more_updates_than_a_turn_takes_are_all_answered_in_their_order(bed: WorkflowBed, opened: str) -> None:
    handles = [ask(bed, "deposit", 1) for _ in range(UPDATES_PER_TURN + 2)]
    bed.run_due()
    assert answers(*handles) == list(range(1, UPDATES_PER_TURN + 3))


def test_an_answer_is_there_if_and_only_if_the_state_is(bed: WorkflowBed, opened: str) -> None:
    handle = ask(bed, "deposit", 5)
    bed.crash_next_turn(before="commit")
    bed.run_due()
    with pytest.raises(ResultTimeout):
        handle.result(timeout=0)
    assert bed.state(opened)["balance"] == 0
    bed.crash_next_turn(after="commit")
    bed.advance(MINUTE)
    assert (handle.result(timeout=0), bed.state(opened)["balance"]) == (5, 5)


def test_an_update_whose_message_is_lost_is_answered_after_a_poll(bed: WorkflowBed, opened: str) -> None:
    with bed.without_broker():
        handle = ask(bed, "deposit", 5)
    bed.run_due()
    with pytest.raises(ResultTimeout):
        handle.result(timeout=0)
    bed.advance(MINUTE)
    assert handle.result(timeout=0) == 5


def test_the_main_handler_runs_after_an_applied_update_and_sees_what_it_changed(bed: WorkflowBed, opened: str) -> None:
    before = bed.state(opened)["turns"]
    bed.update(opened, "deposit", 5)
    assert bed.state(opened)["turns"] == before + 1


def test_an_update_may_wake_the_main_handlers_own_end(bed: WorkflowBed) -> None:
    @bed.workflow("approval")
    def approval(turn: Turn) -> TurnEnd | None:
        if "by" in turn.state:
            return turn.complete(turn.state["by"])
        turn.wait("never")
        return None

    @approval.update("approve")
    def approve(turn: Turn, by: str) -> str:
        turn.state["by"] = by
        return "thanks"

    bed.start("approval", "a")
    bed.run_due()
    assert bed.update("a", "approve", "Ada") == "thanks"
    assert bed.result("a") == "Ada"


def test_an_update_that_completes_the_workflow_is_answered_and_the_rest_is_told_of_the_end(
    bed: WorkflowBed, opened: str
) -> None:
    first, drain, last = ask(bed, "deposit", 5), ask(bed, "drain"), ask(bed, "deposit", 1)
    bed.run_due()
    assert answers(first, drain) == [5, None]
    assert bed.result(opened) == {"drained": 5}
    with pytest.raises(WorkflowEnded, match="completed"):
        last.result(timeout=0)


def test_an_update_and_the_signal_that_ends_the_workflow_can_meet_in_one_turn(bed: WorkflowBed, opened: str) -> None:
    handle = ask(bed, "deposit", 5)
    bed.signal(opened, "close")
    bed.run_due()
    assert (handle.result(timeout=0), bed.result(opened)) == (5, 5)


def test_an_update_that_arrives_while_a_turn_runs_is_answered_in_the_next_one(bed: WorkflowBed) -> None:
    handles = []

    @bed.workflow("busy")
    def busy(turn: Turn) -> None:
        if not handles:
            handles.append(bed.weft.update("b", "ping"))
        turn.wait("never")

    @busy.update("ping")
    def ping(turn: Turn, _payload: Any) -> str:
        return f"pong {turn.number}"

    bed.start("busy", "b")
    bed.run_due()
    assert answers(*handles) == ["pong 1"]


def test_an_update_to_a_workflow_on_another_engine_is_answered_there(bed: WorkflowBed, opened: str) -> None:
    bed.kill_engine()
    bed.advance(MINUTE)
    owner = bed.owner(opened)
    assert bed.update(opened, "deposit", 5) == 5
    assert bed.owner(opened) == owner


# -- refused


def test_a_validator_that_raises_rejects_the_update_with_its_reason(bed: WorkflowBed, opened: str) -> None:
    with pytest.raises(UpdateRejected, match="rejected the update 'deposit': ValueError: not a positive amount: -1"):
        bed.update(opened, "deposit", -1)
    assert bed.state(opened)["balance"] == 0


def test_a_rejected_update_does_not_run_the_main_handler(bed: WorkflowBed, opened: str) -> None:
    before = bed.describe(opened)
    with pytest.raises(UpdateRejected):
        bed.update(opened, "deposit", -1)
    after = bed.describe(opened)
    assert after.state == before.state
    assert after.waits == before.waits
    assert not after.is_due


def test_a_rejected_update_leaves_waits_and_their_deadlines_as_they_were(bed: WorkflowBed) -> None:
    @bed.workflow("patient")
    def patient(turn: Turn) -> TurnEnd | None:
        if turn.timed_out:
            return turn.complete(turn.began_at.isoformat())
        turn.wait("event", timeout=HOUR)
        return None

    bed.start("patient", "p")
    bed.run_due()
    due_at = (bed.now + HOUR).isoformat()
    bed.advance(timedelta(minutes=40))
    with pytest.raises(UpdateRejected, match="no such update"):
        bed.update("p", "anything")
    bed.advance(timedelta(minutes=20))
    assert bed.result("p") == due_at


def test_an_unknown_update_is_rejected_with_the_names_there_are(bed: WorkflowBed, opened: str) -> None:
    with pytest.raises(UpdateRejected, match=r"no such update \(deposit, drain, spoil\)"):
        bed.update(opened, "withdraw")


def test_a_validator_changes_nothing_even_if_it_tries_to(bed: WorkflowBed) -> None:
    @bed.workflow("any")
    def any_workflow(turn: Turn) -> None:
        turn.wait("never")

    def meddle(turn: Turn, _payload: Any) -> None:
        turn.state["meddled"] = True
        turn.complete("meddled")
        raise ValueError("no")

    @any_workflow.update("try", validator=meddle)
    def attempt(turn: Turn, _payload: Any) -> None: ...

    bed.start("any", "a")
    bed.run_due()
    with pytest.raises(UpdateRejected):
        bed.update("a", "try")
    assert (bed.status("a"), bed.state("a")) == (WorkflowStatus.RUNNING, {})


def test_rejected_and_applied_updates_of_one_turn_each_get_their_own_answer(bed: WorkflowBed, opened: str) -> None:
    first, bad, unknown, last = (
        ask(bed, "deposit", 1),
        ask(bed, "deposit", 0),
        ask(bed, "nonsense"),
        ask(bed, "deposit", 2),
    )
    bed.run_due()
    assert answers(first, last) == [1, 3]
    for refused in (bad, unknown):
        with pytest.raises(UpdateRejected):
            refused.result(timeout=0)


# -- handlers that raise


def test_what_a_handler_did_before_it_raised_is_undone(bed: WorkflowBed, opened: str) -> None:
    bed.update(opened, "deposit", 5)
    with pytest.raises(UpdateFailed, match="failed: RuntimeError: after all that") as caught:
        bed.update(opened, "spoil")
    assert (caught.value.error_type, caught.value.message) == ("RuntimeError", "after all that")
    assert bed.state(opened)["balance"] == 5
    assert bed.calls == ()
    with pytest.raises(WorkflowNotFound):
        bed.describe("spoilt")
    bed.signal(opened, "close")
    bed.run_due()
    assert bed.result(opened) == 5


def test_a_handler_that_raises_fails_neither_the_turn_nor_the_updates_around_it(bed: WorkflowBed, opened: str) -> None:
    first, bad, last = ask(bed, "deposit", 1), ask(bed, "spoil"), ask(bed, "deposit", 2)
    bed.run_due()
    assert answers(first, last) == [1, 3]
    with pytest.raises(UpdateFailed):
        bad.result(timeout=0)
    assert statuses(bed) == ["committed"] * len(bed.turns)
    assert bed.calls == ()
    assert [wait.name for wait in bed.describe(opened).waits] == ["close"]
    assert [info.id for info in bed.weft.list()] == [opened]


def test_signals_that_a_failed_update_took_are_there_for_the_main_handler(bed: WorkflowBed, opened: str) -> None:
    bad = ask(bed, "spoil")
    bed.signal(opened, "close")
    bed.run_due()
    assert bed.result(opened) == 0
    with pytest.raises(UpdateFailed):
        bad.result(timeout=0)


def test_an_answer_that_is_not_json_fails_the_update_and_is_undone(bed: WorkflowBed, account: WorkflowType) -> None:
    @account.update("leak")
    def leak(turn: Turn, _payload: Any) -> object:
        turn.state["balance"] = -1
        return object()

    bed.start("account", "a")
    bed.run_due()
    with pytest.raises(UpdateFailed, match="update answer is not JSON: it holds a object"):
        bed.update("a", "leak")
    assert bed.state("a")["balance"] == 0


@pytest.mark.parametrize("junk", [object(), {1, 2}, "x" * 300_000])
def test_an_update_that_leaves_a_state_which_cannot_be_stored_fails_and_is_undone(
    bed: WorkflowBed, account: WorkflowType, junk: object
) -> None:
    """It must not take the turn down: the other updates, and the workflow, have done nothing wrong."""

    @account.update("litter")
    def litter(turn: Turn, _payload: Any) -> None:
        turn.state["junk"] = junk

    bed.start("account", "a")
    bed.run_due()
    first, bad, last = ask(bed, "deposit", 1), ask(bed, "litter"), ask(bed, "deposit", 2)
    bed.run_due()
    assert answers(first, last) == [1, 3]
    with pytest.raises(UpdateFailed, match="state"):
        bad.result(timeout=0)
    assert "failed" not in statuses(bed)
    assert "retrying" not in statuses(bed)


# -- the end of the workflow comes first


def test_an_update_to_a_workflow_that_has_ended_is_refused_at_once(bed: WorkflowBed, opened: str) -> None:
    bed.weft.terminate(opened)
    with pytest.raises(WorkflowEnded, match="terminated"):
        ask(bed, "deposit", 1)


def test_an_update_to_a_workflow_that_is_not_there_is_refused(bed: WorkflowBed) -> None:
    with pytest.raises(WorkflowNotFound):
        ask(bed, "deposit", 1)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda bed: bed.weft.terminate("a"), "terminated"),
        (lambda bed: bed.weft.cancel("a"), "cancelled"),
        (lambda bed: bed.advance(days=3), "timed-out"),
    ],
)
def test_a_pending_update_is_answered_with_the_end_of_the_workflow(
    bed: WorkflowBed, account: WorkflowType, end: Callable[[WorkflowBed], None], status: str
) -> None:
    bed.start("account", "a", timeout=timedelta(days=2))
    bed.run_due()
    bed.weft.suspend("a")
    handle = ask(bed, "deposit", 1)
    end(bed)
    bed.run_due()
    with pytest.raises(WorkflowEnded, match=status):
        handle.result(timeout=0)
    assert bed.state("a")["balance"] == 0


def test_an_update_whose_workflow_was_purged_has_a_definite_error(bed: WorkflowBed, opened: str) -> None:
    answered, pending = ask(bed, "deposit", 1), ask(bed, "drain")
    bed.run_due()
    bed.advance(timedelta(seconds=1))
    assert bed.weft.purge(older_than=timedelta(0)) == 1
    for handle in (answered, pending):
        with pytest.raises(WorkflowNotFound):
            handle.result(timeout=0)


def test_an_update_of_an_earlier_run_is_not_answered_by_the_next_one(bed: WorkflowBed, opened: str) -> None:
    bed.weft.suspend(opened)
    handle = ask(bed, "deposit", 1, key="k")
    bed.weft.terminate(opened)
    bed.start("account", opened, on_conflict="restart-if-ended")
    bed.run_due()
    with pytest.raises(WorkflowNotFound):
        handle.result(timeout=0)
    assert bed.state(opened)["balance"] == 0


# -- keys


def test_the_same_key_three_times_is_one_update(bed: WorkflowBed, opened: str) -> None:
    before = ask(bed, "deposit", 5, key="k")
    again = ask(bed, "deposit", 5, key="k")
    bed.run_due()
    after = ask(bed, "deposit", 5, key="k")
    bed.run_due()
    assert answers(before, again, after) == [5, 5, 5]
    assert before.receipt == again.receipt == after.receipt
    assert bed.state(opened)["balance"] == 5


@pytest.mark.parametrize(("name", "payload"), [("deposit", 6), ("drain", 5)])
def test_a_key_that_was_used_for_another_update_is_a_conflict(
    bed: WorkflowBed, opened: str, name: str, payload: int
) -> None:
    ask(bed, "deposit", 5, key="k")
    with pytest.raises(UpdateKeyConflict, match="'k'"):
        ask(bed, name, payload, key="k")
    bed.run_due()
    with pytest.raises(UpdateKeyConflict):
        ask(bed, name, payload, key="k")
    assert bed.state(opened)["balance"] == 5


def test_the_answer_under_a_key_can_be_had_after_the_workflow_has_ended(bed: WorkflowBed, opened: str) -> None:
    ask(bed, "deposit", 5, key="k")
    bed.signal(opened, "close")
    bed.run_due()
    assert ask(bed, "deposit", 5, key="k").result(timeout=0) == 5


# -- suspended, and not yet begun


def test_an_update_to_a_suspended_workflow_waits_until_it_is_resumed(bed: WorkflowBed, opened: str) -> None:
    bed.weft.suspend(opened)
    handle = ask(bed, "deposit", 5)
    bed.advance(HOUR)
    with pytest.raises(ResultTimeout):
        handle.result(timeout=0)
    bed.weft.resume(opened)
    bed.run_due()
    assert handle.result(timeout=0) == 5


# -- updates that take turns down


def poisonous(bed: WorkflowBed, *, retry: Retry | None = None) -> None:
    """A workflow with an update that kills its process, and a list of what was handled."""

    @bed.workflow("frail", retry=retry)
    def frail(turn: Turn) -> None:
        turn.wait("never")

    @frail.update("good")
    def good(turn: Turn, payload: Any) -> Any:
        turn.state.setdefault("good", []).append(payload)
        return payload

    @frail.update("poison")
    def poison(turn: Turn, _payload: Any) -> None:
        raise SimulatedCrash

    bed.start("frail", "a")
    bed.run_due()


@pytest.mark.parametrize("place", [0, 1, 4, 7])
def test_an_update_that_kills_every_turn_is_answered_as_failed_and_all_the_others_go_through(
    bed: WorkflowBed, place: int
) -> None:
    poisonous(bed)
    names = ["good"] * 8
    names[place] = "poison"
    handles = [ask(bed, name, n) for n, name in enumerate(names)]
    bed.advance(timedelta(minutes=10))
    for n, (name, handle) in enumerate(zip(names, handles, strict=True)):
        if name == "good":
            assert handle.result(timeout=0) == n
        else:
            with pytest.raises(UpdateFailed, match=f"{UPDATE_TRIES} turns began with this update"):
                handle.result(timeout=0)
    assert bed.state("a")["good"] == [n for n, name in enumerate(names) if name == "good"]
    assert bed.status("a") is WorkflowStatus.RUNNING


def test_several_poison_updates_in_a_row_set_nothing_aside(bed: WorkflowBed) -> None:
    poisonous(bed)
    handles = [ask(bed, name, name) for name in ("poison", "poison", "good", "poison", "good")]
    bed.advance(timedelta(minutes=20))
    assert answers(handles[2], handles[4]) == ["good", "good"]
    for handle in (handles[0], handles[1], handles[3]):
        with pytest.raises(UpdateFailed):
            handle.result(timeout=0)
    assert bed.status("a") is WorkflowStatus.RUNNING


def test_a_few_crashes_that_no_update_is_to_blame_for_cost_no_update_its_answer(bed: WorkflowBed) -> None:
    poisonous(bed)
    handles = [ask(bed, "good", n) for n in range(6)]
    for _ in range(UPDATE_TRIES - 1):
        bed.crash_next_turn()
    bed.advance(timedelta(minutes=5))
    assert answers(*handles) == list(range(6))


def test_a_spent_update_has_its_answer_also_when_the_main_handler_does_not_run(bed: WorkflowBed) -> None:
    bed.workflow("plain")(wait_for_ever)
    bed.start("plain", "a")
    bed.run_due()
    before = bed.describe("a")
    handle = ask(bed, "unheard of")
    for _ in range(UPDATE_TRIES):
        bed.crash_next_turn()
    bed.advance(timedelta(minutes=5))
    with pytest.raises(UpdateRejected):
        handle.result(timeout=0)
    assert bed.describe("a").waits == before.waits
