"""The suite inside a host's own process: four slots, skipped ticks, shared runs, and a stop that lets a pass finish."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any

import pytest
from pass_fakes import (
    Heard,
    ManualClock,
    ManualScheduler,
    ReclaimFake,
    RenewalFake,
    SignalFake,
    UpdateFake,
    unreadable,
)

from weft_tasks.errors import SettingsError
from weft_tasks.passes import ClaimRenewalTask, Targets
from weft_tasks.passes.slots import SharedCall
from weft_tasks.results import PassFailed, PassKind, PassResult, PassStatus, RunOnceResult

INTERVAL = timedelta(seconds=5)


class Gate:
    """A work list that is read only when the test opens it."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Semaphore(0), threading.Event()

    def __call__(self) -> Sequence[str]:
        self.reached.release()
        assert self.opened.wait(10)
        return ["wf-0"]

    def wait_reached(self) -> None:
        assert self.reached.acquire(timeout=10)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def scheduler() -> ManualScheduler:
    return ManualScheduler()


@pytest.fixture
def heard() -> Heard:
    return Heard()


def all_targets(**more: Any) -> Targets:
    targets = {"renewal": RenewalFake(), "reclaim": ReclaimFake(), "signals": SignalFake(), "updates": UpdateFake()}
    return Targets(**{**targets, **more})


def task(targets: Targets, scheduler: ManualScheduler, sink: Callable[[Any], None], **more: Any) -> ClaimRenewalTask:
    return ClaimRenewalTask(targets, ManualClock(), INTERVAL, scheduler=scheduler, on_pass_complete=sink, **more)


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


# -- ticks -----------------------------------------------------------------------------------------------------------


def test_each_target_gets_its_own_ticks_at_the_interval(scheduler: ManualScheduler, heard: Heard) -> None:
    task(all_targets(reclaim=None), scheduler, heard).start()

    for place in range(3):
        scheduler.tick(place)

    assert [schedule.interval for schedule in scheduler.active] == [INTERVAL] * 3
    assert heard.kinds == [PassKind.RENEWAL, PassKind.SIGNAL_POLL, PassKind.UPDATE_POLL]


def test_a_tick_that_meets_its_own_running_pass_is_skipped_and_counted(
    scheduler: ManualScheduler, heard: Heard, gate: Gate
) -> None:
    suite = task(all_targets(renewal=RenewalFake(gate)), scheduler, heard)
    suite.start()
    running = in_thread(scheduler.tick)
    gate.wait_reached()

    scheduler.tick()
    scheduler.tick()
    gate.opened.set()
    running.join(10)
    scheduler.tick()

    assert heard.kinds == [PassKind.RENEWAL, PassKind.RENEWAL]
    assert suite.skipped_ticks == {PassKind.RENEWAL: 2}


def test_a_slow_pass_delays_no_other_pass(scheduler: ManualScheduler, heard: Heard, gate: Gate) -> None:
    suite = task(all_targets(renewal=RenewalFake(gate)), scheduler, heard)
    suite.start()
    in_thread(scheduler.tick)
    gate.wait_reached()

    for place in (1, 2, 3):
        scheduler.tick(place)

    assert heard.kinds == [PassKind.RECLAIM, PassKind.SIGNAL_POLL, PassKind.UPDATE_POLL]
    assert suite.skipped_ticks == {}


def test_a_tick_that_meets_its_pass_in_run_once_is_skipped(
    scheduler: ManualScheduler, heard: Heard, gate: Gate
) -> None:
    suite = task(all_targets(renewal=RenewalFake(gate)), scheduler, heard)
    suite.start()
    in_thread(suite.run_once)
    gate.wait_reached()

    scheduler.tick(0)
    scheduler.tick(1)

    assert suite.skipped_ticks == {PassKind.RENEWAL: 1}
    assert heard.kinds == [PassKind.RECLAIM]


def test_neither_a_pass_nor_a_sink_that_raises_ends_the_ticks(scheduler: ManualScheduler) -> None:
    heard: list[Any] = []

    def broken(report: Any) -> None:
        heard.append(report)
        raise ValueError("the sink is broken")

    suite = task(Targets(renewal=RenewalFake(unreadable)), scheduler, broken)
    suite.start()
    scheduler.tick()
    scheduler.tick()

    assert [type(report) for report in heard] == [PassFailed, PassFailed]
    assert suite.skipped_ticks == {}


def test_a_pass_may_take_three_intervals_unless_told_otherwise(scheduler: ManualScheduler, heard: Heard) -> None:
    clock = ManualClock()

    def slow() -> Sequence[str]:
        clock.advance(timedelta(seconds=14))
        return ["wf-0"]

    for more in ({}, {"deadline": timedelta(seconds=14)}):
        ClaimRenewalTask(
            Targets(renewal=RenewalFake(slow)), clock, INTERVAL, scheduler=scheduler, on_pass_complete=heard, **more
        ).run_once()

    assert [report.status for report in heard.reports] == [PassStatus.COMPLETED, PassStatus.DEADLINE_REACHED]


def test_ticks_without_an_interval_do_not_construct(scheduler: ManualScheduler, heard: Heard) -> None:
    with pytest.raises(SettingsError, match="interval above zero"):
        ClaimRenewalTask(Targets(), ManualClock(), timedelta(0))


# -- start and stop --------------------------------------------------------------------------------------------------


def test_start_and_stop_may_be_repeated_and_follow_each_other(scheduler: ManualScheduler, heard: Heard) -> None:
    suite = task(all_targets(), scheduler, heard)

    assert suite.stop() is True
    suite.start()
    suite.start()
    assert len(scheduler.active) == 4
    assert suite.stop() is True
    assert suite.stop() is True
    assert scheduler.active == []
    suite.start()
    assert len(scheduler.active) == 4


def test_a_tick_that_was_on_its_way_when_the_suite_stopped_does_nothing(
    scheduler: ManualScheduler, heard: Heard
) -> None:
    suite = task(all_targets(), scheduler, heard)
    suite.start()
    late = scheduler.active[0]

    suite.stop()
    late.callback()

    assert (heard.reports, suite.skipped_ticks) == ([], {})


def test_a_start_that_fails_halfway_leaves_no_ticks_behind(heard: Heard) -> None:
    class Failing(ManualScheduler):
        def every(self, interval: timedelta, callback: Callable[[], None], /) -> Any:
            if len(self.schedules) == 2:
                raise RuntimeError("no more timers")
            return super().every(interval, callback)

    scheduler = Failing()
    suite = task(all_targets(), scheduler, heard)

    with pytest.raises(RuntimeError, match="no more timers"):
        suite.start()

    assert scheduler.active == []


def test_stop_lets_a_running_pass_finish(scheduler: ManualScheduler, heard: Heard, gate: Gate) -> None:
    suite = task(all_targets(renewal=RenewalFake(gate)), scheduler, heard)
    suite.start()
    in_thread(scheduler.tick)
    gate.wait_reached()

    assert suite.stop(timeout=timedelta(0)) is False
    gate.opened.set()
    assert suite.stop() is True

    assert [(report.kind, report.counts) for report in heard.reports] == [(PassKind.RENEWAL, {"renewed": 1})]


def test_stop_lets_a_running_run_once_finish_all_its_parts(
    scheduler: ManualScheduler, heard: Heard, gate: Gate
) -> None:
    suite = task(all_targets(renewal=RenewalFake(gate)), scheduler, heard)
    in_thread(suite.run_once)
    gate.wait_reached()

    assert suite.stop(timeout=timedelta(0)) is False
    gate.opened.set()
    assert suite.stop() is True

    assert heard.kinds == list(PassKind)


def test_a_run_once_counts_as_running_between_its_parts_too(scheduler: ManualScheduler, heard: Heard) -> None:
    answers: list[bool] = []

    class StoppingClock(ManualClock):
        def now(self) -> datetime:
            in_thread(lambda: answers.append(suite.stop(timeout=timedelta(0)))).join(10)
            return super().now()

    suite = ClaimRenewalTask(Targets(), StoppingClock(), INTERVAL, scheduler=scheduler, on_pass_complete=heard)
    suite.run_once()

    assert answers == [False, False]


def test_a_stop_from_inside_a_pass_does_not_wait_for_itself(scheduler: ManualScheduler) -> None:
    stopped: list[bool] = []
    suite = task(all_targets(), scheduler, lambda _: stopped.append(suite.stop()))
    suite.start()

    scheduler.tick()

    assert (stopped, scheduler.active) == ([False], [])


# -- run_once --------------------------------------------------------------------------------------------------------


def test_run_once_needs_no_start(scheduler: ManualScheduler, heard: Heard) -> None:
    result = task(all_targets(), scheduler, heard).run_once()

    assert isinstance(result, RunOnceResult)
    assert list(result.parts) == heard.reports
    assert heard.kinds == list(PassKind)


def test_run_once_waits_for_no_tick(scheduler: ManualScheduler, heard: Heard, gate: Gate) -> None:
    lists: Iterator[Callable[[], Sequence[str]]] = iter([gate, lambda: ["wf-1"]])
    suite = task(Targets(renewal=RenewalFake(lambda: next(lists)())), scheduler, heard)
    suite.start()
    in_thread(scheduler.tick)
    gate.wait_reached()

    renewal = suite.run_once().renewal

    assert isinstance(renewal, PassResult)
    assert [outcome.workflow_id for outcome in renewal.outcomes] == ["wf-1"]


class WatchedFuture(Future[Any]):
    """Tells when somebody waits for it."""

    awaited = threading.Semaphore(0)

    def result(self, timeout: float | None = None) -> Any:
        self.awaited.release()
        return super().result(timeout)


def test_overlapping_run_once_calls_share_one_run(
    scheduler: ManualScheduler, heard: Heard, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft_tasks.passes.slots.Future", WatchedFuture)
    suite, results = task(all_targets(renewal=RenewalFake(gate)), scheduler, heard), list[RunOnceResult]()
    callers = [in_thread(lambda: results.append(suite.run_once()))]
    gate.wait_reached()
    callers += [in_thread(lambda: results.append(suite.run_once())) for _ in range(2)]
    for _ in range(2):
        assert WatchedFuture.awaited.acquire(timeout=10)

    gate.opened.set()
    for caller in callers:
        caller.join(10)

    assert len(results) == 3
    assert results[0] is results[1] is results[2]
    assert heard.kinds == list(PassKind)


def test_run_once_calls_that_follow_each_other_run_each_for_itself(scheduler: ManualScheduler, heard: Heard) -> None:
    suite = task(all_targets(), scheduler, heard)

    assert suite.run_once() is not suite.run_once()
    assert heard.kinds == [*PassKind, *PassKind]


def test_run_once_from_inside_itself_is_refused_rather_than_awaited(scheduler: ManualScheduler) -> None:
    refused: list[str] = []

    def again(_: Any) -> None:
        with pytest.raises(RuntimeError) as refusal:
            suite.run_once()
        refused.append(str(refusal.value))

    suite = task(Targets(renewal=RenewalFake()), scheduler, again)
    suite.run_once()

    assert refused == ["run_once was called from inside its own run, which it would wait for"]


def test_a_shared_call_that_raises_raises_in_every_caller(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    monkeypatch.setattr("weft_tasks.passes.slots.Future", WatchedFuture)
    caught: list[BaseException] = []

    def exit_when_opened() -> None:
        gate()
        raise SystemExit("the host ends")

    shared = SharedCall("shared", exit_when_opened)

    def call() -> None:
        try:
            shared()
        except SystemExit as error:
            caught.append(error)

    callers = [in_thread(call)]
    gate.wait_reached()
    callers.append(in_thread(call))
    assert WatchedFuture.awaited.acquire(timeout=10)
    gate.opened.set()
    for caller in callers:
        caller.join(10)

    call()

    assert [str(error) for error in caught] == ["the host ends"] * 3
    assert caught[0] is caught[1] is not caught[2]
