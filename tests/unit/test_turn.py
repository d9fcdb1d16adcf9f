"""What a handler is given and what becomes of it: the turn, and the runner that turns a message into a commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from weft_tasks.errors import InvalidInput, StoreUnavailable, TurnError
from weft_tasks.events import (
    ClaimAttempted,
    ClaimLost,
    CommitUnknown,
    Event,
    Events,
    TurnEnded,
    TurnFailed,
    WakeDiscarded,
)
from weft_tasks.model import TurnMessage, Wait, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.store.outbox import Debt
from weft_tasks.store.payloads import LONGEST_DURATION
from weft_tasks.store.turns import BegunTurn, BufferedSignal, TurnOutcome
from weft_tasks.workflows.payments import Payments
from weft_tasks.workflows.registry import Registry, Retry, WorkflowType
from weft_tasks.workflows.runner import TurnReport, TurnRunner, TurnStatus
from weft_tasks.workflows.turn import Turn

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = Settings()


def signal(number: int, name: str = "event", payload: Any = None) -> BufferedSignal:
    return BufferedSignal(number=number, name=name, payload=payload, sent_at=NOW)


def begun(*signals: BufferedSignal, **changes: Any) -> BegunTurn:
    turn = BegunTurn(
        workflow_id="w",
        run_id="r" * 32,
        type="permit",
        engine_id="a",
        epoch=1,
        turn=2,
        attempt=3,
        tries=0,
        horizon=10,
        began_at=NOW,
        input={"case": 7},
        state_json='{"steps": []}',
        signals=signals,
        has_more=False,
        waits=(),
    )
    return replace(turn, **changes)


def turn_of(*signals: BufferedSignal, is_current: Callable[[], bool] = lambda: True, **changes: Any) -> Turn:
    return Turn(begun(*signals, **changes), payload_limit=1000, is_current=is_current)


# -- taking signals ----------------------------------------------------------------------------------------------------


def test_a_turn_takes_the_signals_of_one_name_in_order_and_each_once() -> None:
    turn = turn_of(signal(1), signal(2, "note"), signal(5), signal(9))
    assert [s.number for s in turn.take("event", limit=2)] == [1, 5]
    assert [s.number for s in turn.take("event")] == [9]
    assert list(turn.take("event")) == []
    turn.wait("event")
    assert turn.outcome(None).consumed == (1, 5, 9)


def test_nothing_is_consumed_that_was_not_taken() -> None:
    turn = turn_of(signal(1), signal(2))
    assert list(turn.take("event", limit=0)) == []
    assert list(turn.take("other")) == []
    turn.wait("other")
    assert turn.outcome(None).consumed == ()


def test_a_negative_limit_and_an_impossible_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="limit"):
        turn_of().take("event", limit=-1)
    with pytest.raises(InvalidInput, match="signal name"):
        turn_of().take("")


# -- waiting -----------------------------------------------------------------------------------------------------------


def waits(turn: Turn) -> dict[str, Any]:
    return dict(turn.outcome(None).waits)


def test_several_waits_add_up_and_the_latest_word_on_a_name_counts() -> None:
    turn = turn_of()
    turn.wait("paid", "refused", timeout=60)
    turn.wait("note")
    turn.wait("refused", timeout=timedelta(days=1))
    assert waits(turn) == {"paid": timedelta(seconds=60), "refused": timedelta(days=1), "note": None}


@pytest.mark.parametrize("timeout", [-1, timedelta(seconds=-1), "60", True, float("nan"), timedelta.max])
def test_an_impossible_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout"):
        turn_of().wait("paid", timeout=timeout)


def test_a_wait_for_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one signal"):
        turn_of().wait()


@pytest.mark.parametrize("name", ["", "nul\x00", 5])
def test_a_wait_for_an_impossible_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidInput, match="signal name"):
        turn_of().wait(name)


def test_a_time_to_wait_until_needs_a_zone_and_excludes_a_timeout() -> None:
    with pytest.raises(InvalidInput, match="time zone"):
        turn_of().wait("paid", until=datetime(2027, 1, 1))
    with pytest.raises(InvalidInput, match="not both"):
        turn_of().wait("paid", until=NOW, timeout=5)


def test_a_time_to_wait_until_that_no_calendar_reaches_is_refused() -> None:
    """As a deadline it could not be read back, and every poll of the store would fail on it."""
    for until in (datetime.max.replace(tzinfo=UTC), NOW + LONGEST_DURATION + timedelta(seconds=1)):
        with pytest.raises(InvalidInput, match="until"):
            turn_of().wait("paid", until=until)


def test_a_turn_that_left_what_it_now_waits_for_is_followed_by_another_at_once() -> None:
    for waited, left, wants_more in (("event", True, True), ("event", False, False), ("other", True, False)):
        turn = turn_of(signal(1))
        if not left:
            turn.take("event")
        turn.wait(waited)
        assert turn.outcome(None).wants_more is wants_more


def test_a_turn_that_was_not_given_everything_is_followed_by_another() -> None:
    turn = turn_of(has_more=True)
    turn.wait("event")
    assert turn.outcome(None).wants_more


def test_a_deadline_that_passed_with_nothing_awaited_there_has_timed_out() -> None:
    past = (Wait(name="paid", deadline=NOW), Wait(name="note", deadline=None))
    assert turn_of(waits=past).timed_out
    assert turn_of(signal(1, "other"), waits=past).timed_out
    assert not turn_of(signal(1, "note"), waits=past).timed_out
    future = (Wait(name="paid", deadline=NOW + timedelta(milliseconds=1)),)
    assert not turn_of(waits=future).timed_out
    assert not turn_of().timed_out


# -- ending ------------------------------------------------------------------------------------------------------------


def test_a_completed_turn_has_its_result_and_waits_for_nothing() -> None:
    turn = turn_of()
    turn.wait("event")
    outcome = turn.outcome(turn.complete(["done"]))
    assert (outcome.status, outcome.result, outcome.error, outcome.waits) == (
        WorkflowStatus.COMPLETED,
        '["done"]',
        None,
        (),
    )


def test_a_failed_turn_has_its_reason() -> None:
    turn = turn_of()
    outcome = turn.outcome(turn.fail("payment refused"))
    assert outcome.status is WorkflowStatus.FAILED
    assert json.loads(outcome.error or "") == {"type": "WorkflowFailed", "message": "payment refused"}
    assert outcome.result is None


def test_an_ending_counts_even_if_the_handler_forgets_to_return_it() -> None:
    turn = turn_of()
    turn.complete()
    assert turn.outcome(None).status is WorkflowStatus.COMPLETED


def test_a_turn_ends_once() -> None:
    turn = turn_of()
    turn.complete()
    with pytest.raises(TurnError, match="ended already"):
        turn.fail("after all")


@pytest.mark.parametrize("returned", [True, 0, {"status": "done"}, "done"], ids=repr)
def test_a_handler_that_returns_something_else_is_told_what_it_may_return(returned: object) -> None:
    turn = turn_of()
    turn.wait("event")
    with pytest.raises(TurnError, match=r"may return turn\.complete"):
        turn.outcome(returned)


def test_the_end_of_another_turn_is_not_an_end() -> None:
    turn = turn_of()
    turn.wait("event")
    with pytest.raises(TurnError):
        turn.outcome(turn_of().complete())


def test_a_turn_that_waits_for_nothing_and_does_not_end_is_refused() -> None:
    with pytest.raises(TurnError, match="never run again"):
        turn_of().outcome(None)


# -- state -------------------------------------------------------------------------------------------------------------


def test_the_state_is_stored_as_the_handler_left_it() -> None:
    turn = turn_of()
    turn.state["steps"].append("T02")
    turn.wait("event")
    assert json.loads(turn.outcome(None).state_json) == {"steps": ["T02"]}


@pytest.mark.parametrize("state", [{"when": NOW}, {1: "key"}, {"n": float("nan")}, {"big": "x" * 1000}], ids=str)
def test_a_state_that_is_not_json_or_too_large_is_refused(state: dict[Any, Any]) -> None:
    turn = turn_of()
    turn.state = state
    turn.wait("event")
    with pytest.raises(InvalidInput, match="state"):
        turn.outcome(None)


@pytest.mark.parametrize("state", [None, [], "text", 5], ids=repr)
def test_a_state_that_is_no_object_is_refused(state: Any) -> None:
    turn = turn_of()
    turn.state = state
    turn.wait("event")
    with pytest.raises(InvalidInput, match=r"state must be a JSON object"):
        turn.outcome(None)


def test_a_second_try_gets_the_same_keys_for_its_side_effects() -> None:
    first, second = turn_of(tries=0, attempt=3), turn_of(tries=1, attempt=4)
    keys = [first.idempotency_key(), first.idempotency_key()]
    assert keys == [second.idempotency_key(), second.idempotency_key()] == [f"{'r' * 32}:2:0", f"{'r' * 32}:2:1"]


def test_whether_a_turn_is_still_its_owners_is_asked_each_time() -> None:
    answers = iter([True, False])
    turn = turn_of(is_current=lambda: next(answers))
    assert [turn.cancelled, turn.cancelled] == [False, True]


# -- the runner --------------------------------------------------------------------------------------------------------


@dataclass
class Sent:
    """A dispatcher that keeps what it is given."""

    turns: list[TurnMessage] = field(default_factory=list)
    calls: list[Debt] = field(default_factory=list)
    reclaims: int = 0

    def send_turn(self, message: TurnMessage) -> bool:
        self.turns.append(message)
        return True

    def send_call(self, debt: Debt) -> bool:
        self.calls.append(debt)
        return True

    def outcome_of_call(self, debt: Debt) -> None:
        return None

    def request_reclaim(self) -> None:
        self.reclaims += 1


class Bench:
    """A runner on a real SQLite store, with one engine `a` that knows the type `permit`."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.sent, self.events, self.slept = Sent(), list[Event](), list[float]()
        self.routine: list[Event] = []
        self.calls = 0
        store.engines.register("a", node="a@h", host="h", pid=1, types=["permit"], slots=2)

    def runner(
        self,
        handler: Callable[[Turn], Any],
        *,
        turns: Any = None,
        retry: Retry | None = None,
        workflow_type: WorkflowType | None = None,
    ) -> TurnRunner:
        def counted(turn: Turn) -> Any:
            self.calls += 1
            return handler(turn)

        registry = Registry()
        registry.register(workflow_type or WorkflowType("permit", counted, retry=retry))
        return TurnRunner(
            registry=registry,
            claims=self.store.claims,
            turns=turns or self.store.turns,
            dispatcher=self.sent,
            payments=Payments(
                outbox=self.store.outbox,
                signals=self.store.signals,
                dispatcher=self.sent,
                payload_limit=SETTINGS.payload_limit,
                events=Events(self.events.append),
            ),
            settings=SETTINGS,
            events=Events(self.note),
            sleep=self.slept.append,
        )

    def run(self, handler: Callable[[Turn], Any], message: TurnMessage | None = None, **kw: Any) -> TurnReport:
        message = message or self.store.workflows.start("w", "permit", "null")
        return self.runner(handler, **kw).run(message, task_id="task", engine_id="a")

    def note(self, event: Event) -> None:
        """What every turn reports is kept apart from what does not go as it should."""
        (self.routine if isinstance(event, ClaimAttempted | TurnEnded) else self.events).append(event)

    def info(self) -> Any:
        return self.store.workflows.describe("w")

    def message(self) -> TurnMessage:
        row = self.info()
        return TurnMessage(workflow_id="w", run_id=row.run_id, engine_id=row.engine_id, epoch=row.epoch, turn=row.turn)


@pytest.fixture
def bench(fresh_store: Callable[[str], tuple[Store, ManualClock]]) -> Bench:
    return Bench(*fresh_store("sqlite"))


def park(turn: Turn) -> None:
    turn.wait("event")


def test_a_new_workflow_is_acquired_and_its_turn_commits(bench: Bench) -> None:
    report = bench.run(park)
    assert (report.status, report.turn, report.epoch) == (TurnStatus.COMMITTED, 0, 1)
    assert (bench.info().engine_id, bench.info().turn) == ("a", 1)
    assert bench.sent.turns == []


def test_what_arrived_meanwhile_is_told_to_the_engine_after_the_commit(bench: Bench) -> None:
    def handler(turn: Turn) -> None:
        bench.store.signals.send("w", "event", "1", key=None)
        turn.wait("event")

    bench.run(handler)
    assert bench.sent.turns == [bench.message()]


def test_a_message_that_matches_nothing_is_discarded_and_reported_and_calls_no_handler(bench: Bench) -> None:
    bench.run(park)
    report = bench.run(park, replace(bench.message(), epoch=0))
    assert (report.status, report.reason) == (TurnStatus.DISCARDED, "other-owner")
    assert [type(e) for e in bench.events] == [WakeDiscarded]
    assert bench.calls == 1


def test_the_offer_of_a_workflow_that_somebody_else_has_is_discarded(bench: Bench) -> None:
    message = bench.store.workflows.start("w", "permit", "null")
    bench.run(park, message)
    assert bench.run(park, message).reason == "not-acquired: lost"
    assert bench.calls == 1


def test_a_turn_without_work_calls_no_handler(bench: Bench) -> None:
    bench.run(park)
    bench.store.signals.send("w", "note", "1", key=None)
    with bench.store.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE weft_workflows SET due = 1")
    report = bench.run(park, bench.message())
    assert report.status is TurnStatus.NOTHING_TO_DO
    assert (bench.calls, bench.info().turn) == (1, 1)


def test_a_commit_on_a_draining_engine_asks_for_a_reclaim_pass(bench: Bench) -> None:
    def handler(turn: Turn) -> None:
        bench.store.engines.drain("a")
        turn.wait("event")

    bench.run(handler)
    assert (bench.sent.reclaims, bench.info().engine_id) == (1, None)


def test_a_turn_that_lost_its_workflow_is_refused_reported_and_left_in_the_history(bench: Bench) -> None:
    def handler(turn: Turn) -> None:
        bench.store.engines.register("b", node="b@h", host="h", pid=2, types=["permit"], slots=2)
        bench.store.engines.stop("a")
        bench.store.claims.take_over("w", turn.run_id, "a", 1, "b")
        assert turn.cancelled
        turn.wait("event")

    report = bench.run(handler)
    assert report.status is TurnStatus.REFUSED
    assert [type(e) for e in bench.events] == [ClaimLost]
    assert [entry.event for entry in bench.store.history.list(event="commit-refused")] == ["commit-refused"]
    assert (bench.info().turn, bench.info().engine_id) == (0, "b")


def test_a_time_to_wait_until_is_kept_however_long_the_turn_takes(bench: Bench) -> None:
    """Counted from the commit, it would move away with every turn that goes on waiting."""
    until = NOW + timedelta(seconds=60, milliseconds=1)

    def handler(turn: Turn) -> None:
        bench.clock.advance(timedelta(seconds=7))
        turn.take("event")
        turn.wait("event", until=turn.deadlines.get("event", until))

    bench.run(handler)
    for _ in range(3):
        bench.store.signals.send("w", "event", "1", key=None)
        bench.run(handler, bench.message())
    assert bench.info().waits == (Wait(name="event", deadline=until),)
    bench.clock.advance(timedelta(seconds=32))
    assert bench.store.signals.list_ready() == ()
    bench.clock.advance(timedelta(milliseconds=1))
    assert [ready.deadline_passed for ready in bench.store.signals.list_ready()] == [True]


@pytest.mark.parametrize(("timeout", "first"), [(59, "soon"), (61, "event")])
def test_of_a_time_and_a_duration_the_earlier_one_wakes(bench: Bench, timeout: int, first: str) -> None:
    def handler(turn: Turn) -> None:
        turn.wait("event", until=NOW + timedelta(seconds=60))
        turn.wait("soon", timeout=timeout)
        turn.wait("never")

    bench.run(handler)
    bench.clock.advance(timedelta(seconds=min(timeout, 60)) - timedelta(milliseconds=1))
    assert bench.store.signals.list_ready() == ()
    bench.clock.advance(timedelta(milliseconds=1))
    assert [ready.name for ready in bench.store.signals.list_ready()] == [first]


# -- handlers that raise ---------------------------------------------------------------------------------------------


def raises(error: BaseException) -> Callable[[Turn], None]:
    def handler(turn: Turn) -> None:
        turn.state["half"] = "done"
        turn.take("event")
        raise error

    return handler


def test_a_handler_that_raises_commits_nothing_and_is_tried_again_ever_later_and_then_has_failed(
    bench: Bench,
) -> None:
    message = bench.store.workflows.start("w", "permit", "null")
    bench.store.signals.send("w", "event", "1", key=None)
    waits = []
    for _ in range(SETTINGS.turn_tries):
        report = bench.run(raises(RuntimeError("no")), message)
        message = bench.message()
        event = bench.events[-1]
        assert isinstance(event, TurnFailed)
        assert event.error == "RuntimeError: no"
        waits.append(event.retry_in)
        bench.clock.advance(timedelta(seconds=event.retry_in or 0))
    assert waits == [1, 2, 4, 8, None]
    assert report.status is TurnStatus.FAILED
    info = bench.info()
    assert (info.status, info.state, info.error["type"], info.error["message"]) == ("failed", {}, "RuntimeError", "no")
    assert "raise error" in info.error["traceback"]


def test_the_wait_between_tries_has_a_limit_however_many_tries_there_are(bench: Bench) -> None:
    policy = Retry(tries=200, delay=timedelta(days=1), max_delay=timedelta(days=2))
    bench.run(raises(RuntimeError()), retry=policy)
    with bench.store.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE weft_workflows SET tries = 150")
    bench.clock.advance(timedelta(days=1))
    report = bench.run(raises(RuntimeError()), bench.message(), retry=policy)
    assert report.status is TurnStatus.RETRYING
    assert bench.events[-1].retry_in == timedelta(days=2).total_seconds()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("nor can I be printed")


@pytest.mark.parametrize(
    "error",
    [
        Unprintable(),
        RuntimeError("🜁" * 20_000),
        RuntimeError("\ud800 \x00"),
        RecursionError("too deep"),
        type("E" * 5000, (Exception,), {})(),
    ],
    ids=["unprintable", "20,000 emoji", "half a character and NUL", "recursion", "a long name"],
)
def test_an_error_of_any_kind_is_described_and_the_turn_tried_again(bench: Bench, error: Exception) -> None:
    report = bench.run(raises(error))
    assert report.status is TurnStatus.RETRYING
    assert bench.info().error["type"] == type(error).__name__[:200]
    assert len(json.dumps(bench.info().error)) < SETTINGS.payload_limit


@pytest.mark.parametrize("where", ["handler", "validator"])
def test_an_update_whose_error_cannot_be_printed_is_answered_all_the_same(bench: Bench, where: str) -> None:
    def raise_it(_turn: Turn, _payload: Any) -> None:
        raise Unprintable

    permit = WorkflowType("permit", park)
    if where == "handler":
        permit.update("set")(raise_it)
    else:
        permit.update("set", validator=raise_it)(lambda _turn, _payload: None)
    message = bench.store.workflows.start("w", "permit", "null")
    sent = bench.store.updates.send("w", "set", "1", key=None)
    assert bench.run(park, message, workflow_type=permit).status is TurnStatus.COMMITTED
    state = bench.store.updates.read(sent.receipt)
    assert (state.status, state.answer["type"]) == ("failed" if where == "handler" else "rejected", "Unprintable")


def test_an_outcome_that_has_no_meaning_is_a_failed_try(bench: Bench) -> None:
    assert bench.run(lambda turn: None).status is TurnStatus.RETRYING
    assert bench.info().error["type"] == "TurnError"


def test_a_child_under_an_id_that_is_taken_is_a_failed_try_and_leaves_nothing(bench: Bench) -> None:
    bench.store.workflows.start("taken", "permit", "null")

    def handler(turn: Turn) -> None:
        turn.start_child("permit", id="taken")
        turn.wait("event")

    assert bench.run(handler).status is TurnStatus.RETRYING
    assert bench.info().error["type"] == "InvalidInput"
    assert "taken" in bench.info().error["message"]
    assert bench.info().turn == 0


def test_a_process_that_ends_within_the_handler_leaves_its_attempt_to_the_heartbeats(bench: Bench) -> None:
    with pytest.raises(SystemExit):
        bench.run(raises(SystemExit(1)))
    assert bench.store.turns.begin(bench.message(), "again") == "in-hand"


# -- a store that does not answer (O8) -------------------------------------------------------------------------------


class Flaky:
    """The turns of a store whose connection breaks at a commit: before it is written, or after."""

    def __init__(self, turns: Any, *failures: str) -> None:
        self._turns = turns
        self._failures = list(failures)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turns, name)

    def commit(self, turn: BegunTurn, outcome: TurnOutcome) -> Any:
        return self._break(lambda: self._turns.commit(turn, outcome))

    def settle(self, turn: BegunTurn) -> Any:
        return self._break(lambda: self._turns.settle(turn))

    def _break(self, write: Callable[[], Any]) -> Any:
        failure = self._failures.pop(0) if self._failures else None
        if failure == "before":
            raise StoreUnavailable("broken before the commit")
        answer = write()
        if failure == "after":
            raise StoreUnavailable("broken after the commit")
        return answer


def count(turn: Turn) -> None:
    turn.state["count"] = turn.state.get("count", 0) + 1
    turn.wait("event")


@pytest.mark.parametrize(
    "failures", [("before",), ("after",), ("before", "before", "after"), ("after", "before", "before")], ids=str
)
def test_a_commit_that_got_no_answer_is_resolved_and_happens_once(bench: Bench, failures: tuple[str, ...]) -> None:
    report = bench.run(count, turns=Flaky(bench.store.turns, *failures))
    assert report.status is TurnStatus.COMMITTED
    assert (bench.info().state, bench.info().turn, bench.calls) == ({"count": 1}, 1, 1)
    assert [type(e) for e in bench.events] == [CommitUnknown] * len(failures)
    assert len(bench.slept) == len(failures)


def test_a_commit_that_never_arrived_and_whose_workflow_is_gone_by_then_is_refused(bench: Bench) -> None:
    class Stopped(Flaky):
        def commit(self, turn: BegunTurn, outcome: TurnOutcome) -> Any:
            if self._failures:
                bench.store.claims.release_all("a")
            return super().commit(turn, outcome)

    report = bench.run(count, turns=Stopped(bench.store.turns, "before"))
    assert report.status is TurnStatus.REFUSED
    assert bench.info().turn == 0


def test_a_store_that_stays_away_leaves_the_turn_unknown_after_about_a_ttl(bench: Bench) -> None:
    report = bench.run(count, turns=Flaky(bench.store.turns, *["before"] * 1000))
    assert report.status is TurnStatus.UNKNOWN
    ttl = SETTINGS.claim_ttl.total_seconds()
    assert ttl <= sum(bench.slept) <= ttl + SETTINGS.renew_interval.total_seconds()
    assert max(bench.slept) <= SETTINGS.renew_interval.total_seconds()
    assert bench.info().turn == 0


def test_an_ending_without_a_commit_that_got_no_answer_is_resolved_as_well(bench: Bench) -> None:
    bench.run(park)
    with bench.store.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE weft_workflows SET due = 1")
    report = bench.run(park, bench.message(), turns=Flaky(bench.store.turns, "after"))
    assert report.status is TurnStatus.NOTHING_TO_DO


def test_a_begin_that_got_no_answer_is_unknown_and_calls_no_handler(bench: Bench) -> None:
    class Away(Flaky):
        def begin(self, *_args: Any) -> Any:
            raise StoreUnavailable("away")

    report = bench.run(count, turns=Away(bench.store.turns))
    assert (report.status, report.reason, bench.calls) == (TurnStatus.UNKNOWN, "away", 0)


# -- what every turn reports


def test_a_turn_reports_its_claim_and_how_it_ended(bench: Bench) -> None:
    bench.run(park)
    claimed, ended = bench.routine
    assert isinstance(claimed, ClaimAttempted)
    assert (claimed.outcome, claimed.engine_id, claimed.epoch) == ("acquired", "a", 1)
    assert isinstance(ended, TurnEnded)
    assert (ended.workflow_id, ended.type, ended.turn, ended.status) == ("w", "permit", 0, "committed")
    assert ended.woken_after is None
    assert ended.took >= timedelta(0)


def test_a_claim_that_somebody_else_has_is_a_lost_race(bench: Bench) -> None:
    message = bench.store.workflows.start("w", "permit", "null")
    bench.run(park, message)
    bench.routine.clear()
    bench.run(park, message)
    (claimed,) = bench.routine
    assert isinstance(claimed, ClaimAttempted)
    assert (claimed.outcome, claimed.epoch) == ("lost_race", 0)


def wakes(bench: Bench) -> list[timedelta | None]:
    return [event.woken_after for event in bench.routine if isinstance(event, TurnEnded)]


def test_a_wake_is_timed_from_the_first_awaited_signal_to_the_begin_and_once(bench: Bench) -> None:
    def raises_once(turn: Turn) -> None:
        if bench.calls == 2:
            raise ValueError
        turn.take("event")
        turn.wait("event")

    runner = bench.runner(raises_once)
    runner.run(bench.store.workflows.start("w", "permit", "null"), task_id="t1", engine_id="a")
    bench.store.signals.send("w", "other", "1", key=None)
    bench.clock.advance(timedelta(seconds=1))
    for payload in "12":
        bench.store.signals.send("w", "event", payload, key=None)
        bench.clock.advance(timedelta(seconds=2))
    runner.run(bench.message(), task_id="t2", engine_id="a")
    bench.clock.advance(timedelta(minutes=1))
    runner.run(bench.message(), task_id="t3", engine_id="a")
    assert wakes(bench) == [None, timedelta(seconds=4), None]


def test_a_signal_that_came_before_anybody_waited_is_timed_from_the_wait_on(bench: Bench) -> None:
    def handler(turn: Turn) -> None:
        if turn.number == 0:
            bench.store.signals.send("w", "event", "1", key=None)
            bench.clock.advance(timedelta(seconds=5))
        turn.take("event")
        turn.wait("event")

    runner = bench.runner(handler)
    runner.run(bench.store.workflows.start("w", "permit", "null"), task_id="t1", engine_id="a")
    bench.clock.advance(timedelta(seconds=1))
    runner.run(bench.message(), task_id="t2", engine_id="a")
    assert wakes(bench) == [None, timedelta(seconds=1)]
