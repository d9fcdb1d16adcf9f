"""Celery tasks as activities: sent after the commit under a stable id, and their outcome back once, as a signal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from flows import HOUR, MINUTE, calls_task, collect, rows, statuses
from sqlalchemy import select

from weft_tasks import NEVER
from weft_tasks.celery_host.publisher import CeleryDispatcher
from weft_tasks.celery_host.replies import signature_of
from weft_tasks.errors import StoreUnavailable, WorkflowNotCompleted
from weft_tasks.events import Events
from weft_tasks.model import WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store.outbox import Debt, DebtKind
from weft_tasks.store.tables import outbox, signals
from weft_tasks.testing import Call, WorkflowBed
from weft_tasks.testing.plugin import NewBed
from weft_tasks.weft import Weft
from weft_tasks.workflows.dispatcher import CallOutcome
from weft_tasks.workflows.registry import Retry
from weft_tasks.workflows.turn import Turn, TurnEnd

CHARGE = {"task": "shop.charge", "args": ["order-1"], "kwargs": {"amount": 7}, "options": {"queue": "money"}}


def add(x: int, y: int) -> int:
    return x + y


def divide(x: int, y: int) -> float:
    return x / y


def unpaid(bed: WorkflowBed) -> list[str]:
    """Calls that are still to be sent."""
    return [row.id for row in rows(bed, select(outbox.c.id).where(outbox.c.sent_witnessed.is_(None)))]


def awaited(bed: WorkflowBed) -> list[str]:
    """Calls that were sent and whose reply has not come."""
    return [row.id for row in rows(bed, select(outbox.c.id).where(outbox.c.sent_witnessed.is_not(None)))]


@pytest.fixture
def app() -> Iterator[Celery]:
    """An application with tasks, on a broker in memory."""
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.task(name="add")(add)
    app.task(name="divide")(divide)
    yield app
    app.close()


@pytest.fixture
def charged(bed: WorkflowBed) -> Call:
    """The call of a workflow `w` that waits for its reply."""
    bed.workflow("caller")(calls_task(CHARGE))
    bed.start("caller", "w")
    bed.run_due()
    return bed.calls[0]


# -- sending


def test_a_call_is_sent_after_the_commit_of_its_turn(bed: WorkflowBed) -> None:
    seen = []

    @bed.workflow("caller")
    def caller(turn: Turn) -> None:
        turn.call(CHARGE, reply="done")
        seen.append(bed.calls)
        turn.wait("done")

    bed.start("caller", "w")
    bed.run_due()
    assert seen == [()]
    assert [(call.task, call.args) for call in bed.calls] == [("shop.charge", ("order-1",))]
    assert unpaid(bed) == []


def test_a_turn_that_fails_or_dies_has_sent_nothing(bed: WorkflowBed) -> None:
    @bed.workflow("caller")
    def caller(turn: Turn) -> None:
        turn.call(CHARGE)
        turn.wait("done")
        if turn.tries == 0:
            raise RuntimeError("no")

    bed.start("caller", "w")
    bed.run_due()
    assert bed.calls == ()
    bed.crash_next_turn(before="commit")
    bed.advance(timedelta(seconds=5))
    assert bed.calls == ()
    bed.advance(MINUTE)
    assert len(bed.calls) == 1


def test_a_call_has_the_same_id_in_every_try_of_its_turn(bed: WorkflowBed) -> None:
    ids = []

    @bed.workflow("caller")
    def caller(turn: Turn) -> None:
        ids.append((turn.call(CHARGE), turn.call(CHARGE)))
        turn.wait("done")

    bed.start("caller", "w")
    bed.crash_next_turn(before="commit")
    bed.advance(MINUTE)
    assert len(ids) == 2
    assert ids[0] == ids[1]
    assert [call.id for call in bed.calls] == list(ids[0])


def test_calls_of_other_turns_and_runs_have_other_ids(bed: WorkflowBed) -> None:
    @bed.workflow("caller")
    def caller(turn: Turn) -> TurnEnd | None:
        turn.call(CHARGE)
        if turn.number == 1:
            return turn.complete()
        turn.sleep(1)
        return None

    for _ in range(2):
        bed.start("caller", "w", on_conflict="restart-if-ended")
        bed.advance(MINUTE)
    assert len(bed.calls) == len({call.id for call in bed.calls}) == 4


def test_a_call_that_a_dead_process_did_not_send_is_sent_by_a_pass(bed: WorkflowBed) -> None:
    bed.workflow("caller")(calls_task(CHARGE))
    bed.start("caller", "w")
    bed.crash_next_turn(after="commit")
    bed.run_due()
    (owed,) = unpaid(bed)
    bed.run_passes()
    assert bed.calls == ()
    bed.advance(timedelta(seconds=15))
    assert [call.id for call in bed.calls] == [owed]
    assert unpaid(bed) == []


def test_a_call_that_the_broker_did_not_take_is_sent_when_it_does(bed: WorkflowBed) -> None:
    with ExitStack() as outage:

        @bed.workflow("caller")
        def caller(turn: Turn) -> None:
            turn.call(CHARGE)
            turn.wait("never")
            outage.enter_context(bed.without_broker())

        bed.start("caller", "w")
        bed.run_due()
        (owed,) = unpaid(bed)
        bed.advance(timedelta(seconds=30))
        assert (bed.describe("w").turn, bed.calls, unpaid(bed)) == (1, (), [owed])
    bed.advance(timedelta(seconds=11))
    assert [call.id for call in bed.calls] == [owed]
    assert unpaid(bed) == []


def test_a_call_that_was_sent_but_not_crossed_off_is_sent_again_under_the_same_id(
    bed: WorkflowBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_debt: Debt) -> None:
        raise StoreUnavailable("lost")

    bed.workflow("caller")(calls_task(CHARGE))
    bed.start("caller", "w")
    with monkeypatch.context() as patched:
        patched.setattr(bed.weft.store.outbox, "pay", lost)
        bed.run_due()
    bed.advance(MINUTE)
    assert [call.id for call in bed.calls] == [bed.calls[0].id] * 2


def test_a_call_may_come_from_an_update_and_from_the_last_turn_of_a_cancelled_workflow(bed: WorkflowBed) -> None:
    collector = bed.workflow("collect")(collect)

    @collector.update("pay")
    def pay(turn: Turn, _payload: Any) -> str:
        return turn.call(CHARGE)

    @collector.on_cancel
    def refund(turn: Turn) -> None:
        turn.call({"task": "shop.refund"})

    bed.start("collect", "w")
    bed.run_due()
    charge_id = bed.update("w", "pay")
    bed.weft.cancel("w")
    bed.run_due()
    assert [(call.task, call.id == charge_id) for call in bed.calls] == [("shop.charge", True), ("shop.refund", False)]


@pytest.mark.parametrize("away", ["purge", "restart"])
def test_a_call_that_is_still_owed_is_sent_though_its_workflow_is_purged_or_started_anew(
    bed: WorkflowBed, away: str
) -> None:
    """The turn that asked for it has committed, and so it is due, whatever becomes of the row."""

    @bed.workflow("shipper")
    def shipper(turn: Turn) -> TurnEnd:
        if turn.input == "ship":
            turn.call({"task": "shop.ship"})
        return turn.complete()

    bed.start("shipper", "w", "ship")
    bed.crash_next_turn(after="commit")
    bed.run_due()
    if away == "restart":
        bed.start("shipper", "w", on_conflict="restart-if-ended")
    else:
        bed.advance(timedelta(milliseconds=1))
        assert bed.weft.purge(older_than=timedelta(0)) == 1
    bed.advance(MINUTE)
    assert [call.task for call in bed.calls] == ["shop.ship"]
    assert unpaid(bed) == []


# -- calls that the broker loses


def outcomes(bed: WorkflowBed, monkeypatch: pytest.MonkeyPatch) -> dict[str, CallOutcome]:
    """The result backend that a bed has not."""
    known: dict[str, CallOutcome] = {}
    monkeypatch.setattr(bed.weft.dispatcher, "outcome_of_call", lambda debt: known.get(debt.id))
    return known


def test_a_call_is_owed_until_its_reply_has_come(bed: WorkflowBed, charged: Call) -> None:
    assert awaited(bed) == [charged.id]
    bed.reply(charged, 7)
    assert awaited(bed) == []


@pytest.mark.parametrize("is_failure", [False, True])
def test_an_outcome_whose_reply_was_lost_is_found_in_the_result_backend(
    bed: WorkflowBed, charged: Call, monkeypatch: pytest.MonkeyPatch, is_failure: bool
) -> None:
    outcomes(bed, monkeypatch)[charged.id] = CallOutcome(payload={"receipt": 7}, is_failure=is_failure)
    bed.advance(MINUTE)
    assert bed.result("w") == {"payload": {"receipt": 7}, "is_failure": is_failure}
    assert awaited(bed) == []
    assert bed.calls == (charged,)


def test_a_reply_that_comes_after_all_is_no_second_one(bed: WorkflowBed, monkeypatch: pytest.MonkeyPatch) -> None:
    call = twice(bed)
    outcomes(bed, monkeypatch)[call.id] = CallOutcome(payload="first", is_failure=False)
    bed.advance(MINUTE)
    bed.reply(call, "second")
    bed.run_due()
    assert bed.describe("w").state == {"replies": ["first"]}


def test_an_outcome_that_is_not_json_comes_back_as_a_failure(
    bed: WorkflowBed, charged: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes(bed, monkeypatch)[charged.id] = CallOutcome(payload=object(), is_failure=False)  # type: ignore[arg-type]
    bed.advance(MINUTE)
    result: Any = bed.result("w")
    assert result["is_failure"] is True
    assert "not JSON" in result["payload"]["message"]


def test_a_task_of_which_nothing_is_heard_is_sent_again_under_the_same_id(bed: WorkflowBed, charged: Call) -> None:
    bed.advance(timedelta(minutes=59))
    assert bed.calls == (charged,)
    bed.advance(timedelta(minutes=11))
    assert bed.calls == (charged, charged)
    assert awaited(bed) == [charged.id]
    bed.reply(charged, 7)
    bed.run_due()
    assert bed.result("w") == {"payload": 7, "is_failure": False}


def test_after_each_resending_the_same_time_passes_again(bed: WorkflowBed, charged: Call) -> None:
    for sent in (2, 3, 4):
        bed.advance(timedelta(minutes=30))
        assert len(bed.calls) == sent - 1
        bed.advance(timedelta(minutes=41))
        assert len(bed.calls) == sent


@pytest.mark.parametrize("resend_after", [60, timedelta(minutes=1)])
def test_a_call_may_say_when_it_is_taken_for_lost(bed: WorkflowBed, resend_after: timedelta | float) -> None:
    @bed.workflow("caller")
    def caller(turn: Turn) -> None:
        turn.call(CHARGE, reply="done", resend_after=resend_after)
        turn.wait("done")

    bed.start("caller", "w")
    bed.run_due()
    bed.advance(timedelta(minutes=3))
    assert len(bed.calls) == 2


@pytest.mark.parametrize(
    "put_off", [{"countdown": 7200}, {"eta": datetime(2100, 1, 1, tzinfo=UTC)}], ids=lambda put_off: next(iter(put_off))
)
def test_the_time_until_a_task_may_run_does_not_count(bed: WorkflowBed, put_off: dict[str, Any]) -> None:
    bed.workflow("caller")(calls_task({**CHARGE, "options": put_off}))
    bed.start("caller", "w")
    bed.run_due()
    bed.advance(timedelta(hours=2, minutes=50))
    assert len(bed.calls) == 1
    if "countdown" in put_off:
        bed.advance(timedelta(minutes=21))
        assert len(bed.calls) == 2


def test_a_call_that_must_not_run_twice_may_never_be_sent_again(bed: WorkflowBed) -> None:
    @bed.workflow("caller")
    def caller(turn: Turn) -> None:
        turn.call(CHARGE, reply="done", resend_after=NEVER)
        turn.wait("done")

    bed.start("caller", "w")
    bed.run_due()
    bed.advance(timedelta(days=3))
    assert len(bed.calls) == 1
    assert awaited(bed) == [bed.calls[0].id]


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"resend_after": 60}, "only with a reply"),
        ({"reply": "done", "resend_after": 0}, "more than 0"),
        ({"reply": "done", "resend_after": -1}, "resend_after"),
        ({"reply": "done", "resend_after": "soon"}, "resend_after"),
    ],
)
def test_a_time_that_cannot_be_is_refused(bed: WorkflowBed, how: dict[str, Any], problem: str) -> None:
    @bed.workflow("caller", retry=Retry(tries=1))
    def caller(turn: Turn) -> None:
        turn.call(CHARGE, **how)

    bed.start("caller", "w")
    bed.run_due()
    with pytest.raises(WorkflowNotCompleted, match=problem):
        bed.result("w")
    assert bed.calls == ()


def test_nothing_is_asked_and_nothing_sent_again_for_a_workflow_that_is_over(bed: WorkflowBed, charged: Call) -> None:
    bed.weft.terminate("w")
    bed.advance(timedelta(hours=3))
    assert bed.calls == (charged,)
    assert awaited(bed) == []


@pytest.mark.parametrize("away", ["purge", "restart"])
def test_a_run_that_is_gone_takes_its_awaited_calls_along(bed: WorkflowBed, charged: Call, away: str) -> None:
    bed.weft.terminate("w")
    if away == "restart":
        bed.start("caller", "w", on_conflict="restart-if-ended")
    else:
        bed.advance(timedelta(milliseconds=1))
        bed.weft.purge(older_than=timedelta(0))
    assert charged.id not in awaited(bed)


def test_a_suspended_workflow_still_hears_of_its_calls(
    bed: WorkflowBed, charged: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.weft.suspend("w")
    outcomes(bed, monkeypatch)[charged.id] = CallOutcome(payload=7, is_failure=False)
    bed.advance(MINUTE)
    bed.weft.resume("w")
    bed.run_due()
    assert bed.result("w") == {"payload": 7, "is_failure": False}


def test_a_failed_run_waits_for_its_retry_before_a_call_is_sent_again(
    bed: WorkflowBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [True]

    @bed.workflow("caller", retry=Retry(tries=1))
    def caller(turn: Turn) -> None:
        if turn.number == 0:
            turn.call(CHARGE, reply="done")
        elif broken:
            raise RuntimeError("broken")
        turn.take("go")
        turn.wait("done", "go")

    bed.start("caller", "w")
    bed.run_due()
    bed.signal("w", "go")
    bed.run_due()
    assert bed.describe("w").status is WorkflowStatus.FAILED
    bed.advance(timedelta(hours=3))
    assert len(bed.calls) == 1
    broken.clear()
    bed.weft.retry("w")
    bed.advance(timedelta(minutes=11))
    assert len(bed.calls) == 2


def test_a_store_that_fails_in_between_leaves_the_call_owed(
    bed: WorkflowBed, charged: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes(bed, monkeypatch)[charged.id] = CallOutcome(payload=7, is_failure=False)

    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise StoreUnavailable("lost")

    with monkeypatch.context() as patched:
        patched.setattr(bed.weft.store.signals, "send", fail)
        bed.advance(MINUTE)
    assert awaited(bed) == [charged.id]
    bed.advance(timedelta(minutes=10))
    assert bed.result("w") == {"payload": 7, "is_failure": False}


# -- replies


def test_what_the_task_returns_comes_back_as_the_signal_that_was_named(bed: WorkflowBed, charged: Call) -> None:
    bed.reply(charged, {"receipt": 7})
    bed.run_due()
    assert bed.result("w") == {"payload": {"receipt": 7}, "is_failure": False}


def test_a_task_that_fails_for_good_comes_back_as_a_failure(bed: WorkflowBed, charged: Call) -> None:
    bed.fail(charged, ValueError("no money"))
    bed.run_due()
    result = bed.result("w")
    assert isinstance(result, dict)
    assert result["is_failure"] is True
    assert isinstance(result["payload"], dict)
    assert (result["payload"]["type"], result["payload"]["message"]) == ("ValueError", "no money")


def twice(bed: WorkflowBed) -> Call:
    """A workflow that keeps every reply to its one call."""

    @bed.workflow("keeper")
    def keeper(turn: Turn) -> None:
        if turn.number == 0:
            turn.call(CHARGE, reply="done")
        for reply in turn.take("done"):
            turn.state.setdefault("replies", []).append(reply.payload)
        turn.wait("done")

    bed.start("keeper", "w")
    bed.run_due()
    return bed.calls[0]


@pytest.mark.parametrize("between", [True, False])
@pytest.mark.parametrize("second", ["once", "another result", ValueError("failed the second time")])
def test_a_task_that_ran_twice_is_one_reply_whatever_it_says_the_second_time(
    bed: WorkflowBed, second: str | ValueError, between: bool
) -> None:
    call = twice(bed)
    bed.reply(call, "once")
    if between:
        bed.run_due()
    if isinstance(second, ValueError):
        bed.fail(call, second)
    else:
        bed.reply(call, second)
    bed.run_due()
    assert bed.state("w") == {"replies": ["once"]}


def test_a_reply_that_comes_before_anybody_waits_for_it_is_kept(bed: WorkflowBed) -> None:
    @bed.workflow("late")
    def late(turn: Turn) -> TurnEnd | None:
        if turn.number == 0:
            turn.call(CHARGE, reply="done")
            turn.wait("go")
            return None
        for reply in turn.take("done"):
            return turn.complete(reply.payload)
        turn.wait("done")
        return None

    bed.start("late", "w")
    bed.run_due()
    bed.reply(bed.calls[0], "early")
    bed.run_due()
    assert bed.status("w") is WorkflowStatus.RUNNING
    bed.signal("w", "go")
    bed.run_due()
    assert bed.result("w") == "early"


def test_a_reply_to_a_suspended_workflow_is_there_when_it_is_resumed(bed: WorkflowBed, charged: Call) -> None:
    bed.weft.suspend("w")
    bed.reply(charged, 1)
    bed.advance(HOUR)
    assert bed.status("w") is WorkflowStatus.SUSPENDED
    bed.weft.resume("w")
    bed.run_due()
    assert bed.result("w") == {"payload": 1, "is_failure": False}


def test_a_reply_to_a_workflow_that_has_ended_has_no_effect(bed: WorkflowBed, charged: Call) -> None:
    bed.weft.terminate("w")
    bed.reply(charged, 1)
    bed.advance(MINUTE)
    assert (bed.status("w"), bed.describe("w").pending_signals) == (WorkflowStatus.TERMINATED, 0)


def test_a_reply_never_reaches_another_run_under_the_same_id(bed: WorkflowBed, charged: Call) -> None:
    bed.weft.terminate("w")
    bed.start("caller", "w", on_conflict="restart-if-ended")
    bed.run_due()
    bed.reply(charged, "of the first run")
    bed.run_due()
    assert bed.describe("w").pending_signals == 0
    bed.reply(bed.calls[-1], "of the second run")
    bed.run_due()
    assert bed.result("w") == {"payload": "of the second run", "is_failure": False}


def test_a_reply_to_a_workflow_that_was_purged_has_no_effect(bed: WorkflowBed, charged: Call) -> None:
    bed.weft.terminate("w")
    bed.advance(timedelta(seconds=1))
    bed.weft.purge(older_than=timedelta(0))
    bed.reply(charged, 1)
    assert rows(bed, select(signals)) == []


def test_a_result_that_is_too_large_comes_back_as_a_failure_that_says_so(bed: WorkflowBed, charged: Call) -> None:
    bed.reply(charged, "x" * 300_000)
    bed.run_due()
    result = bed.result("w")
    assert isinstance(result, dict)
    assert result["is_failure"] is True
    assert "limit" in str(result["payload"])


def test_a_reply_is_known_by_its_call_and_not_by_its_name(bed: WorkflowBed) -> None:
    """Two calls may share a reply name: the workflow gets both."""

    @bed.workflow("fan-out")
    def fan_out(turn: Turn) -> TurnEnd | None:
        if turn.number == 0:
            for _ in range(3):
                turn.call(CHARGE, reply="done")
        turn.state.setdefault("n", []).extend(reply.payload for reply in turn.take("done"))
        if len(turn.state["n"]) == 3:
            return turn.complete(turn.state["n"])
        turn.wait("done")
        return None

    bed.start("fan-out", "w")
    bed.run_due()
    for n, call in enumerate(bed.calls):
        bed.reply(call, n)
        bed.run_due()
    assert bed.result("w") == [0, 1, 2]


# -- what can be called


@pytest.mark.parametrize(
    ("signature", "problem"),
    [
        ("shop.charge", "takes a Celery signature"),
        (add, "takes a Celery signature"),
        (None, "takes a Celery signature"),
        ({"args": [1]}, "takes a Celery signature"),
        ({"task": "add", "options": {"task_id": "mine"}}, "remove task_id"),
        ({"task": "add", "args": [object()]}, "signature is not JSON: it holds a object"),
        ({"task": "add", "args": ["x" * 300_000]}, "limit"),
    ],
)
def test_what_is_not_one_task_is_refused_and_the_turn_commits_nothing(
    bed: WorkflowBed, signature: Any, problem: str
) -> None:
    refused(bed, signature, problem)


@pytest.mark.parametrize("kind", ["group", "chord", "chain with a group inside", "chain that ends in a group"])
def test_groups_and_chords_are_refused_clearly(bed: WorkflowBed, app: Celery, kind: str) -> None:
    one, many = app.tasks["add"].s(1, 2), [app.tasks["add"].s(n, n) for n in range(2)]
    signature = {
        "group": group(many, app=app),
        "chord": chord(many, one, app=app),
        "chain with a group inside": chain(one, group(many), one, app=app),
        "chain that ends in a group": chain(one, group(many), app=app),
    }[kind]
    refused(bed, signature, "no one result")


def refused(bed: WorkflowBed, signature: Any, problem: str) -> None:
    bed.workflow("caller", retry=Retry(tries=1))(calls_task(signature))
    bed.start("caller", "w")
    bed.run_due()
    with pytest.raises(WorkflowNotCompleted, match=problem):
        bed.result("w")
    assert bed.calls == ()
    assert unpaid(bed) == []


def test_a_handler_may_catch_the_refusal_and_go_on(bed: WorkflowBed) -> None:
    @bed.workflow("careful")
    def careful(turn: Turn) -> TurnEnd:
        with pytest.raises(ValueError, match="not JSON"):
            turn.call({"task": "add", "args": [object()]})
        turn.call({"task": "add", "args": [1, 2]})
        return turn.complete()

    bed.start("careful", "w")
    bed.run_due()
    assert [call.args for call in bed.calls] == [(1, 2)]
    assert statuses(bed) == ["committed"]


@pytest.mark.parametrize(
    "options", [{"eta": datetime(2030, 1, 1, tzinfo=UTC)}, {"expires": datetime(2030, 1, 1, tzinfo=UTC)}]
)
def test_times_among_the_options_are_kept(bed: WorkflowBed, app: Celery, options: dict[str, Any]) -> None:
    bed.workflow("caller")(calls_task(app.tasks["add"].s(1, 2).set(**options)))
    bed.start("caller", "w")
    bed.run_due()
    headers = published(app, bed.calls[0], "celery")["headers"]
    (name,) = options
    assert headers[name] == "2030-01-01T00:00:00+00:00"


# -- under Celery


def debt_of(call: Call) -> Debt:
    body = {"signature": call.signature, "reply": call.reply}
    return Debt(id=call.id, kind=DebtKind.CALL, workflow_id=call.workflow_id, run_id=call.run_id, body=body)


def published(app: Celery, call: Call, queue: str) -> Any:
    """The message that Celery makes of a call, as it lies in the broker."""
    Weft(app)
    app.finalize()
    assert CeleryDispatcher(app, Settings(), Events()).send_call(debt_of(call))
    with app.connection_for_write() as connection:
        message = app.amqp.queues[queue](connection.default_channel).get()
        assert message is not None
        return {"headers": message.headers, "properties": message.properties, "body": message.payload}


def test_routing_countdown_priority_limits_and_retries_of_the_signature_are_kept(bed: WorkflowBed, app: Celery) -> None:
    signature = (
        app.tasks["add"]
        .s(1, y=2)
        .set(
            queue="money",
            countdown=60,
            priority=3,
            time_limit=9,
            soft_time_limit=8,
            expires=3600,
            headers={"tenant": "t"},
        )
    )
    bed.workflow("caller")(calls_task(signature))
    bed.start("caller", "w")
    bed.run_due()
    (call,) = bed.calls
    message = published(app, call, "money")
    headers = message["headers"]
    assert (headers["id"], headers["task"]) == (call.id, "add")
    assert message["body"][0] == [1]
    assert message["body"][1] == {"y": 2}
    assert headers["timelimit"] == [9, 8]
    assert headers["tenant"] == "t"
    assert message["properties"]["priority"] == 3
    eta = datetime.fromisoformat(headers["eta"])
    assert timedelta(seconds=50) < eta - datetime.now(UTC) <= MINUTE
    assert headers["expires"] is not None


def eagerly(workflow_bed: NewBed, app: Celery, signature: Any) -> Any:
    """What a workflow gets when its call runs under Celery, with Celery's own callbacks."""
    app.conf.update(task_always_eager=True, task_store_eager_result=False)
    weft = Weft(app)
    weft.workflow("caller")(calls_task(signature))
    bed = workflow_bed(weft)
    bed.start("caller", "w")
    bed.run_due()
    with bed.installed(), suppress(ZeroDivisionError):
        signature_of(app, debt_of(bed.calls[0])).apply_async(task_id=bed.calls[0].id)
    bed.run_due()
    return bed.result("w")


def test_a_result_comes_back_through_celerys_own_link(workflow_bed: NewBed, app: Celery) -> None:
    assert eagerly(workflow_bed, app, app.tasks["add"].s(1, 2)) == {"payload": 3, "is_failure": False}


def test_a_chain_comes_back_with_the_result_of_its_last_task(workflow_bed: NewBed, app: Celery) -> None:
    signature = app.tasks["add"].s(1, 2) | app.tasks["add"].s(3) | app.tasks["divide"].s(2)
    assert eagerly(workflow_bed, app, signature) == {"payload": 3.0, "is_failure": False}


def test_the_tasks_of_a_chain_have_the_same_ids_in_every_try(bed: WorkflowBed, app: Celery) -> None:
    add = app.tasks["add"]
    bed.workflow("caller")(calls_task(add.s(1, 2) | add.s(3) | add.s(4)))
    bed.start("caller", "w")
    bed.run_due()
    (call,) = bed.calls
    message = published(app, call, "celery")
    rest = [part["options"]["task_id"] for part in message["body"][2]["chain"]]
    assert [message["headers"]["id"], *rest] == [f"{call.id}.1", call.id, f"{call.id}.2"]


@pytest.mark.parametrize("place", ["alone", "in a chain"])
def test_a_failure_comes_back_through_celerys_own_errback(workflow_bed: NewBed, app: Celery, place: str) -> None:
    bad = app.tasks["divide"].s(1, 0)
    told = eagerly(workflow_bed, app, bad if place == "alone" else bad | app.tasks["add"].s(1))
    assert told["is_failure"] is True
    assert (told["payload"]["type"], told["payload"]["message"]) == ("ZeroDivisionError", "division by zero")
