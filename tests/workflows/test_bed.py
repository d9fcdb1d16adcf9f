"""The test bed itself: what a user's tests rely on."""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from flows import collect, complete_with_input, fails, statuses, wait_for_ever

from weft_tasks.errors import InvalidInput, WorkflowNotCompleted, WorkflowNotFound
from weft_tasks.model import WorkflowStatus
from weft_tasks.testing import Call, SimulatedCrash, WorkflowBed
from weft_tasks.testing.errors import NeverParks, NoReplyWanted, NoSuchEngine, NotAnswered, NoWeftGiven, PassBroke
from weft_tasks.testing.plugin import NewBed
from weft_tasks.weft import Weft
from weft_tasks.workflows.turn import Turn, TurnEnd


def app_with(**configuration: Any) -> Celery:
    app = Celery("shop", set_as_current=False)
    app.conf.update(configuration)
    return app


def charge_card(order: str, amount: int = 0) -> None:
    """A task."""


def sum_of(x: int, y: int) -> int:
    return x + y


@pytest.fixture
def weft() -> Weft:
    """An application as users have one: its broker, backend and database would be far away."""
    made = Weft(
        app_with(
            broker_url="amqp://nobody:nothing@203.0.113.1:5672//",
            result_backend="redis://203.0.113.1:6379/0",
            weft_database_url="postgresql+psycopg://nobody@203.0.113.1/none",
        )
    )
    made.workflow("collect")(collect)
    made.workflow("input")(complete_with_input)
    return made


@pytest.fixture
def shop(workflow_bed: NewBed, weft: Weft) -> WorkflowBed:
    return workflow_bed(weft)


# -- the everyday


def test_start_signal_and_complete(shop: WorkflowBed) -> None:
    assert shop.start("collect", "c") == "c"
    shop.run_due()
    assert [wait.name for wait in shop.describe("c").waits] == ["event"]
    shop.signal("c", "event", "opened")
    shop.signal("c", "event", "closed")
    shop.run_due()
    assert shop.result("c") == ["opened", "closed"]
    assert shop.state("c") == {"events": ["opened", "closed"]}
    assert shop.status("c") is WorkflowStatus.COMPLETED


def test_nothing_runs_by_itself(shop: WorkflowBed) -> None:
    shop.start("input", "i", {"n": 1})
    assert (shop.status("i"), shop.turns) == (WorkflowStatus.RUNNING, ())


def test_types_may_be_the_tests_own_and_started_by_their_object(workflow_bed: NewBed) -> None:
    bed = workflow_bed()

    @bed.workflow("double")
    def double(turn: Turn) -> TurnEnd:
        return turn.complete(2 * turn.input)

    twice = bed.start(double, input=21)
    bed.run_due()
    assert bed.result(twice) == 42


def test_a_type_that_is_registered_later_is_known_to_engines_that_live_already(shop: WorkflowBed, weft: Weft) -> None:
    shop.start("input", "i")
    shop.run_due()
    weft.workflow("late")(complete_with_input)
    shop.start("late", "l", "here")
    shop.run_due()
    assert shop.result("l") == "here"


def test_a_start_a_signal_and_an_end_take_little_time(workflow_bed: NewBed) -> None:
    def once() -> float:
        began = time.process_time()
        bed = workflow_bed()
        bed.workflow("collect")(collect)
        bed.start("collect", "c")
        bed.run_due()
        bed.signal("c", "event", "closed")
        bed.run_due()
        assert bed.result("c") == ["closed"]
        return time.process_time() - began

    assert min(once() for _ in range(5)) < 0.5  # a few ms on a quiet machine; a server or a sleep would show


def test_two_beds_of_one_weft_do_not_see_each_other(workflow_bed: NewBed, weft: Weft) -> None:
    one, other = workflow_bed(weft), workflow_bed(weft)
    one.start("collect", "c")
    with pytest.raises(WorkflowNotFound):
        other.describe("c")
    other.start("collect", "c")
    one.run_due()
    assert (len(one.turns), len(other.turns)) == (1, 0)
    one.advance(days=1)
    assert one.now - other.now == timedelta(days=1)


def test_a_bed_connects_to_nothing_and_starts_no_thread(
    workflow_bed: NewBed, weft: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise AssertionError("a bed opened a network connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    nap, here = time.sleep, threading.current_thread()
    monkeypatch.setattr(
        time, "sleep", lambda seconds: refuse() if seconds and threading.current_thread() is here else nap(seconds)
    )
    bed = workflow_bed(weft)
    many = [bed.start("collect") for _ in range(20)]
    bed.crash_next_turn()
    bed.run_due()
    bed.kill_engine()
    bed.advance(hours=1)
    for one in many:
        bed.signal(one, "event", "closed")
    bed.advance(hours=1)
    assert [bed.result(one) for one in many] == [["closed"]] * 20


def test_the_settings_are_those_of_the_application(workflow_bed: NewBed) -> None:
    weft = Weft(app_with(weft_payload_limit=100, weft_renew_interval=1, weft_claim_ttl=3))
    bed = workflow_bed(weft)
    weft.workflow("collect")(collect)
    with pytest.raises(InvalidInput, match="limit is 100"):
        bed.start("collect", input="x" * 100)
    bed.start("collect", "c")
    bed.run_due()
    dead = bed.kill_engine()
    bed.advance(seconds=3 + 2 + 1 + 1)
    assert bed.owner("c") not in (dead, None)


def test_an_application_that_uses_a_bed_is_left_as_it_was(workflow_bed: NewBed, weft: Weft) -> None:
    _ = weft.settings
    before = dict(vars(weft))
    bed = workflow_bed(weft)
    bed.start("input", "i")
    bed.run_due()
    bed.close()
    assert vars(weft) == before


def test_the_files_of_a_bed_go_with_it(workflow_bed: NewBed) -> None:
    bed = workflow_bed()
    bed.workflow("input")(complete_with_input)
    bed.start("input")
    bed.run_due()
    file = bed.weft.store.database.shown_url.removeprefix("sqlite:///")
    assert os.path.exists(file)
    bed.close()
    bed.close()
    assert not os.path.exists(file)


def test_a_bed_works_without_pytest() -> None:
    with WorkflowBed() as bed:
        bed.workflow("input")(complete_with_input)
        bed.start("input", "i", 7)
        bed.run_due()
        assert bed.result("i") == 7


# -- code under test that uses the application's own Weft


def test_an_installed_bed_stands_in_for_the_applications_weft(shop: WorkflowBed, weft: Weft) -> None:
    def view(order: str) -> str:
        return weft.start("collect", order).id

    before = dict(vars(weft))
    with shop.installed():
        view("c")
        weft.signal("c", "event", "closed")
        shop.run_due()
        assert weft.describe("c").result == ["closed"]
    assert shop.result("c") == ["closed"]
    assert vars(weft) == before


def test_a_handler_may_use_the_applications_weft_while_the_bed_is_installed(workflow_bed: NewBed, weft: Weft) -> None:
    @weft.workflow("teller")
    def teller(turn: Turn) -> TurnEnd:
        weft.signal("c", "event", "closed")
        return turn.complete()

    bed = workflow_bed(weft)
    bed.start("collect", "c")
    bed.run_due()
    bed.start("teller", "t")
    with bed.installed():
        bed.run_due()
    assert bed.result("c") == ["closed"]


def test_a_bed_made_from_no_weft_stands_in_for_none(workflow_bed: NewBed) -> None:
    with pytest.raises(NoWeftGiven, match=r"WorkflowBed\(weft\)"), workflow_bed().installed():
        pass


# -- time


def test_time_stands_still_until_it_is_moved(shop: WorkflowBed) -> None:
    assert shop.now == datetime(2026, 1, 1, tzinfo=UTC)
    shop.start("collect", "c")
    shop.run_due()
    assert shop.describe("c").updated_at == shop.now
    shop.advance(timedelta(hours=1), minutes=1)
    assert shop.now == datetime(2026, 1, 1, 1, 1, tzinfo=UTC)


def test_time_passes_as_it_does_where_turns_run_when_they_fall_due(workflow_bed: NewBed) -> None:
    bed = workflow_bed()

    @bed.workflow("reminder")
    def reminder(turn: Turn) -> TurnEnd | None:
        if turn.number > 0:
            turn.state.setdefault("reminded", []).append(turn.began_at.isoformat())
        if turn.number == 3:
            return turn.complete()
        turn.sleep(timedelta(days=1))
        return None

    bed.start("reminder", "r")
    bed.advance(days=30)
    assert bed.state("r") == {"reminded": [f"2026-01-0{day}T00:00:00+00:00" for day in (2, 3, 4)]}


def test_a_long_time_in_which_nothing_happens_costs_next_to_nothing(shop: WorkflowBed) -> None:
    shop.start("collect", "c")
    shop.run_due()
    began = time.process_time()
    shop.advance(days=365)
    assert time.process_time() - began < 0.2


def test_work_that_nobody_can_do_does_not_make_time_crawl(workflow_bed: NewBed, weft: Weft) -> None:
    bed = workflow_bed(engines=0)
    bed.workflow("input")(complete_with_input)
    bed.start("input", "i")
    bed.advance(days=365)
    assert bed.status("i") is WorkflowStatus.RUNNING
    bed.add_engine()
    bed.advance(minutes=1)
    assert bed.status("i") is WorkflowStatus.COMPLETED


def test_engines_that_live_stay_alive_over_a_long_time(shop: WorkflowBed) -> None:
    shop.start("collect", "c")
    shop.run_due()
    owner = shop.owner("c")
    shop.advance(days=365)
    assert shop.owner("c") == owner
    assert [engine.silence_ms for engine in shop.weft.store.engines.list()] == [0, 0]


# -- crashes


@pytest.mark.parametrize("moment", [{"before": "handler"}, {"before": "commit"}, {"after": "handler"}, {}])
def test_a_turn_whose_process_dies_before_its_commit_has_not_happened_and_runs_again(
    workflow_bed: NewBed, moment: dict[str, Any]
) -> None:
    bed = workflow_bed()
    ran = []

    @bed.workflow("once")
    def once(turn: Turn) -> TurnEnd:
        ran.append(turn.idempotency_key())
        return turn.complete(len(ran))

    bed.start("once", "o")
    bed.crash_next_turn(**moment)
    bed.run_due()
    assert (bed.status("o"), bed.turns) == (WorkflowStatus.RUNNING, ())
    assert len(ran) == (0 if moment == {"before": "handler"} else 1)
    bed.run_due()
    assert bed.turns == ()
    bed.advance(minutes=1)
    assert bed.status("o") is WorkflowStatus.COMPLETED
    assert len(set(ran)) == 1


def test_a_process_that_dies_right_after_its_commit_has_told_nobody(workflow_bed: NewBed) -> None:
    bed = workflow_bed()

    @bed.workflow("caller")
    def caller(turn: Turn) -> TurnEnd:
        turn.call({"task": "shop.ship", "args": [], "kwargs": {}, "options": {}})
        return turn.complete()

    bed.start("caller", "c")
    bed.crash_next_turn(after="commit")
    bed.run_due()
    assert (bed.status("c"), bed.calls) == (WorkflowStatus.COMPLETED, ())
    bed.advance(minutes=1)
    assert [call.task for call in bed.calls] == ["shop.ship"]


def test_a_crash_can_be_kept_for_one_workflow(shop: WorkflowBed) -> None:
    shop.crash_next_turn("second")
    shop.start("input", "first")
    shop.start("input", "second")
    shop.run_due()
    assert (shop.status("first"), shop.status("second")) == (WorkflowStatus.COMPLETED, WorkflowStatus.RUNNING)


def test_a_handler_may_die_in_the_middle(workflow_bed: NewBed) -> None:
    bed = workflow_bed()
    ran = []

    @bed.workflow("fragile")
    def fragile(turn: Turn) -> TurnEnd:
        ran.append(turn.number)
        if len(ran) == 1:
            turn.state["half"] = "done"
            raise SimulatedCrash
        return turn.complete(turn.state)

    bed.start("fragile", "f")
    bed.advance(minutes=1)
    assert (bed.result("f"), ran) == ({}, [0, 0])


def test_a_dead_engines_workflows_move_to_a_living_one_within_the_documented_bound(shop: WorkflowBed) -> None:
    shop.start("collect", "c")
    shop.run_due()
    dead = shop.kill_engine()
    shop.signal("c", "event", "closed")
    shop.run_due()
    assert shop.owner("c") == dead
    assert dead not in shop.engines
    shop.advance(seconds=45)
    assert shop.owner("c") is None
    assert shop.result("c") == ["closed"]


def test_a_deposed_owner_that_goes_on_is_refused(workflow_bed: NewBed) -> None:
    bed = workflow_bed()
    ran = []

    @bed.workflow("slow")
    def slow(turn: Turn) -> TurnEnd:
        ran.append(turn.number)
        if len(ran) == 1:
            bed.kill_engine()
            bed.advance(minutes=1)
            assert turn.cancelled
            return turn.complete("too late")
        return turn.complete("in time")

    bed.start("slow", "s")
    bed.run_due()
    assert bed.result("s") == "in time"
    assert statuses(bed) == ["committed", "refused"]


def test_an_engine_that_is_stopped_cleanly_hands_over_at_once(shop: WorkflowBed) -> None:
    shop.start("collect", "c")
    shop.run_due()
    owner = shop.owner("c")
    assert owner is not None
    shop.stop_engine(owner)
    shop.run_due()
    assert shop.owner("c") in shop.engines


def test_without_a_broker_messages_are_lost_and_the_passes_make_up_for_it(shop: WorkflowBed) -> None:
    with shop.without_broker():
        shop.start("input", "i", 1)
    shop.run_due()
    assert shop.status("i") is WorkflowStatus.RUNNING
    shop.advance(minutes=1)
    assert shop.result("i") == 1


def test_an_engine_that_is_not_there_can_be_neither_killed_nor_stopped(workflow_bed: NewBed) -> None:
    bed = workflow_bed(engines=1)
    with pytest.raises(NoSuchEngine, match=r"no engine 'b' lives here \(living: engine-1\)"):
        bed.stop_engine("b")
    bed.kill_engine()
    with pytest.raises(NoSuchEngine, match="no engine lives here"):
        bed.kill_engine()


# -- calls


def test_a_call_shows_its_task_arguments_and_options(workflow_bed: NewBed) -> None:
    app = app_with()
    bed = workflow_bed()
    charge = app.task(name="shop.charge")(charge_card)

    @bed.workflow("caller")
    def caller(turn: Turn) -> TurnEnd | None:
        turn.call(charge.s("order-1", amount=7).set(queue="money", countdown=3), reply="charged")
        turn.wait("charged")
        return None

    bed.start("caller", "c")
    bed.run_due()
    (call,) = bed.calls
    assert isinstance(call, Call)
    assert (call.task, call.args, dict(call.kwargs)) == ("shop.charge", ("order-1",), {"amount": 7})
    assert (call.options["queue"], call.options["countdown"]) == ("money", 3)
    assert (call.reply, call.workflow_id, call.run_id) == ("charged", "c", bed.describe("c").run_id)


def test_a_chain_is_one_call_that_names_its_tasks(workflow_bed: NewBed) -> None:
    app = app_with()
    bed = workflow_bed()
    add, show = app.task(name="add")(sum_of), app.task(name="show")(charge_card)

    @bed.workflow("caller")
    def caller(turn: Turn) -> TurnEnd:
        turn.call(add.s(1, 2) | add.s(3) | show.s())
        return turn.complete()

    bed.start("caller", "c")
    bed.run_due()
    assert [(call.task, call.args) for call in bed.calls] == [("add | add | show", (1, 2))]


def test_a_call_that_wants_no_reply_gets_none(workflow_bed: NewBed) -> None:
    bed = workflow_bed()

    @bed.workflow("caller")
    def caller(turn: Turn) -> TurnEnd:
        turn.call({"task": "shop.ship"})
        return turn.complete()

    bed.start("caller", "c")
    bed.run_due()
    with pytest.raises(NoReplyWanted, match=r"'shop.ship' .* reply=NAME"):
        bed.reply(bed.calls[0], "ok")


def test_a_failure_is_told_as_the_real_worker_tells_it(workflow_bed: NewBed) -> None:
    from weft_tasks.celery_host.replies import _described

    bed = workflow_bed()

    @bed.workflow("caller")
    def caller(turn: Turn) -> TurnEnd | None:
        for reply in turn.take("charged"):
            assert reply.is_failure
            return turn.complete(reply.payload)
        turn.call({"task": "shop.charge"}, reply="charged")
        turn.wait("charged")
        return None

    bed.start("caller", "c")
    bed.run_due()
    try:
        raise ValueError("no money")
    except ValueError as error:
        real = _described((None, error, "trace"))
        bed.fail(bed.calls[0], error)
    bed.run_due()
    told = bed.result("c")
    assert isinstance(told, dict)
    assert told.keys() == real.keys()
    assert (told["type"], told["message"]) == (real["type"], real["message"])
    assert 'raise ValueError("no money")' in str(told["traceback"])


# -- errors that help


def test_a_workflow_that_never_parks_is_named(workflow_bed: NewBed) -> None:
    bed = workflow_bed()

    @bed.workflow("greedy")
    def greedy(turn: Turn) -> None:
        turn.wait("event")

    bed.start("greedy", "g")
    bed.signal("g", "event")
    with pytest.raises(NeverParks, match=r"50 of them are turns of workflow 'g' \(type 'greedy'\).*'event'"):
        bed.run_due(limit=50)


def test_a_workflow_that_sleeps_no_time_is_named_when_time_passes(workflow_bed: NewBed) -> None:
    bed = workflow_bed()

    @bed.workflow("restless")
    def restless(turn: Turn) -> None:
        turn.sleep(0)

    bed.start("restless", "r")
    with pytest.raises(NeverParks, match="'r'"):
        bed.advance(hours=1, limit=20)


def test_a_result_that_is_not_there_says_what_the_workflow_waits_for(workflow_bed: NewBed) -> None:
    bed = workflow_bed()

    @bed.workflow("waiter")
    def waiter(turn: Turn) -> None:
        turn.wait("paid", timeout=timedelta(hours=1))

    bed.start("waiter", "w")
    with pytest.raises(NotAnswered, match=r"running, before turn 0, is due: run_due\(\)"):
        bed.result("w")
    bed.run_due()
    with pytest.raises(NotAnswered, match=r"waits for 'paid' until 2026-01-01T01:00:00"):
        bed.result("w")


def test_a_result_that_is_not_there_shows_what_the_handler_raised(workflow_bed: NewBed) -> None:
    bed = workflow_bed()
    bed.workflow("fails")(fails)
    bed.start("fails", "f")
    bed.run_due()
    with pytest.raises(NotAnswered, match=r"RuntimeError: this handler cannot\n(.|\n)*in fails"):
        bed.result("f")
    bed.advance(hours=1)
    with pytest.raises(WorkflowNotCompleted, match="ended as failed"):
        bed.result("f")


def test_a_pass_that_cannot_run_is_not_passed_over_in_silence(
    workflow_bed: NewBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> None:
        raise RuntimeError("a bug")

    bed = workflow_bed()
    with monkeypatch.context() as patched:
        patched.setattr(bed.weft.store.outbox, "list_overdue", broken)
        with pytest.raises(PassBroke, match="what comes after it raised RuntimeError: a bug"):
            bed.advance(minutes=1)
    with monkeypatch.context() as patched:
        patched.setattr(bed.weft.store.signals, "list_ready", broken)
        with pytest.raises(PassBroke, match="signal-poll pass of the bed failed: RuntimeError: a bug"):
            bed.run_passes()
    bed.run_passes()


def test_an_update_without_an_answer_says_why(workflow_bed: NewBed) -> None:
    bed = workflow_bed()
    bed.workflow("waiter")(wait_for_ever)
    bed.start("waiter", "w")
    bed.run_due()
    bed.weft.suspend("w")
    with pytest.raises(NotAnswered, match="update 'approve' of workflow 'w' has no result yet: it is suspended"):
        bed.update("w", "approve")
