"""What all four passes have in common: a fresh list, outcomes in input order, errors as outcomes, an honest ending."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from pass_fakes import (
    LIMIT,
    ManualClock,
    ReclaimFake,
    RenewalFake,
    SignalFake,
    UpdateFake,
    context,
    join_pool_threads,
    statuses,
    unreadable,
    waits,
)

from weft_tasks.errors import SettingsError, TooManyHungThreads
from weft_tasks.passes import PassContext, SystemClock, poll_signals, poll_updates, reclaim_claims, renew_claims
from weft_tasks.results import Answer, PassKind, PassResult, PassStatus, ReclaimStatus, TakeoverAttempt

Listing: TypeAlias = Callable[[], Sequence[str]]
Act: TypeAlias = Callable[[str], object]


@dataclass(frozen=True)
class Case:
    """One pass, reduced to what it has in common with the others: ids in, an act on each, a result."""

    kind: PassKind
    run: Callable[[Listing, Act, PassContext], PassResult[Any]]
    done: str
    failed: str

    def __repr__(self) -> str:
        return self.kind.value


def _renewal(listing: Listing, act: Act, ctx: PassContext) -> PassResult[Any]:
    def renew(reference: str) -> Answer:
        act(reference)
        return Answer.WON

    return renew_claims(RenewalFake(listing, renew), ctx)


def _reclaim(listing: Listing, act: Act, ctx: PassContext) -> PassResult[Any]:
    def take_over(reference: str) -> TakeoverAttempt:
        act(reference)
        return TakeoverAttempt(status=ReclaimStatus.RECLAIMED)

    return reclaim_claims(ReclaimFake(listing, take_over), ctx)


def _signal_poll(listing: Listing, act: Act, ctx: PassContext) -> PassResult[Any]:
    def wake(wait: Any) -> Answer:
        act(wait.workflow_id)
        return Answer.WON

    return poll_signals(SignalFake(lambda: waits(*listing()), wake), ctx)


def _update_poll(listing: Listing, act: Act, ctx: PassContext) -> PassResult[Any]:
    def drain(reference: str) -> Answer:
        act(reference)
        return Answer.WON

    return poll_updates(UpdateFake(listing, drain), ctx)


CASES = [
    Case(PassKind.RENEWAL, _renewal, "renewed", "failed"),
    Case(PassKind.RECLAIM, _reclaim, "reclaimed", "error"),
    Case(PassKind.SIGNAL_POLL, _signal_poll, "woken", "wake-failed"),
    Case(PassKind.UPDATE_POLL, _update_poll, "drained", "drain-failed"),
]
each_pass = pytest.mark.parametrize("case", CASES, ids=repr)


def ids(count: int) -> list[str]:
    return [f"wf-{number}" for number in range(count)]


def nothing_more(_workflow_id: str) -> None: ...


@each_pass
def test_outcomes_are_in_input_order_with_counts_and_times(case: Case) -> None:
    clock, ended_first = ManualClock(), threading.Event()

    def act(workflow_id: str) -> None:
        if workflow_id == "wf-0":
            assert ended_first.wait(10)
        if workflow_id == "wf-1":
            clock.advance(timedelta(milliseconds=3))
            ended_first.set()

    result = case.run(lambda: ids(40), act, context(clock))

    assert statuses(result) == [(workflow_id, case.done, None) for workflow_id in ids(40)]
    assert (result.kind, result.status, result.unreached) == (case.kind, PassStatus.COMPLETED, 0)
    assert result.counts == {case.done: 40}
    assert result.duration == timedelta(milliseconds=3)


@each_pass
def test_the_work_list_is_read_fresh_by_every_pass(case: Case) -> None:
    lists = iter([ids(2), ids(3)])
    ctx = context()

    assert [len(case.run(lambda: next(lists), nothing_more, ctx).outcomes) for _ in range(2)] == [2, 3]


@each_pass
def test_a_list_that_the_target_goes_on_changing_does_not_disturb_the_pass(case: Case) -> None:
    listed = ids(20)

    result = case.run(lambda: listed, lambda workflow_id: listed.remove(workflow_id), context(width=1))

    assert [outcome.workflow_id for outcome in result.outcomes] == ids(20)


@each_pass
def test_an_empty_work_list_is_a_completed_pass(case: Case) -> None:
    result = case.run(list, nothing_more, context())

    assert (result.status, result.outcomes, dict(result.counts)) == (PassStatus.COMPLETED, (), {})


@each_pass
@pytest.mark.parametrize("count", [1, 3])
def test_the_error_of_an_item_is_its_outcome_on_one_line(case: Case, count: int) -> None:
    def act(workflow_id: str) -> None:
        if workflow_id == "wf-0":
            raise OSError("connection\nreset")

    result = case.run(lambda: ids(count), act, context())

    assert statuses(result)[0] == ("wf-0", case.failed, "OSError: connection reset")
    assert [outcome.status for outcome in result.outcomes[1:]] == [case.done] * (count - 1)
    assert result.status is PassStatus.COMPLETED


@each_pass
def test_a_hung_item_is_reported_unreached_and_the_others_are_done(case: Case) -> None:
    clock, release, others = ManualClock(), threading.Event(), threading.Semaphore(0)

    def act(workflow_id: str) -> None:
        if workflow_id == "wf-5":
            for _ in range(15):
                assert others.acquire(timeout=10)
            join_pool_threads(case.kind)
            clock.advance()
            release.wait()
        others.release()

    result = case.run(lambda: ids(16), act, context(clock))
    release.set()

    assert (result.status, result.unreached) == (PassStatus.DEADLINE_REACHED, 1)
    assert [outcome.workflow_id for outcome in result.outcomes] == [i for i in ids(16) if i != "wf-5"]


@each_pass
def test_the_reading_of_the_work_list_counts_against_the_deadline(case: Case) -> None:
    clock, done = ManualClock(), list[str]()

    def slow_listing() -> Sequence[str]:
        clock.advance()
        return ids(3)

    result = case.run(slow_listing, done.append, context(clock))

    assert (result.status, result.unreached, done) == (PassStatus.DEADLINE_REACHED, 3, [])


@each_pass
def test_items_at_the_head_that_always_fail_do_not_keep_the_others_waiting(case: Case) -> None:
    failing = ids(10)

    def act(workflow_id: str) -> None:
        if workflow_id in failing:
            raise OSError("always")

    result = case.run(lambda: ids(60), act, context())

    assert result.counts == {case.failed: 10, case.done: 50}


@each_pass
def test_stuck_threads_do_not_pile_up_and_later_passes_are_not_delayed_by_them(case: Case) -> None:
    clock, release, stuck = ManualClock(), threading.Event(), list[threading.Thread]()
    ctx = context(clock)

    def act(workflow_id: str) -> None:
        if workflow_id == "wf-7":
            stuck.append(threading.current_thread())
            clock.advance()
            release.wait()

    case.run(lambda: ids(16), act, ctx)
    join_pool_threads(case.kind, but=stuck)
    results = [case.run(lambda: ids(16), act, ctx) for _ in range(50)]
    hung = ctx.pools[case.kind].hung_threads
    release.set()

    assert (len(stuck), hung) == (1, 1)
    assert {result.status for result in results} == {PassStatus.COMPLETED}
    assert all(result.counts == {case.done: 15, case.failed: 1} for result in results)
    assert statuses(results[-1])[7][2] == "TimeoutError: the call an earlier pass made for it still hangs"


@each_pass
def test_too_many_hung_threads_refuse_the_pass_but_no_other_pass(case: Case) -> None:
    clock, release, hanging = ManualClock(), threading.Event(), threading.Barrier(2)
    ctx = context(clock, width=2)

    def act(_workflow_id: str) -> None:
        if hanging.wait(10) == 0:
            clock.advance()
        release.wait()

    for number in range(2):
        case.run(lambda number=number: [f"a-{number}", f"b-{number}"], act, ctx)  # type: ignore[misc]
    with pytest.raises(TooManyHungThreads):
        case.run(lambda: ids(2), nothing_more, ctx)
    others = [other.run(lambda: ids(2), nothing_more, ctx) for other in CASES if other is not case]
    release.set()

    assert [result.status for result in others] == [PassStatus.COMPLETED] * 3


@each_pass
def test_a_work_list_that_cannot_be_read_fails_the_pass(case: Case) -> None:
    if case.kind is PassKind.RENEWAL:
        with pytest.raises(OSError, match="the store is away"):
            case.run(unreadable, nothing_more, context())
        return

    result = case.run(unreadable, nothing_more, context())

    assert (result.status, result.outcomes) == (PassStatus.DISCOVERY_FAILED, ())
    assert result.error == "OSError: the store is away"


def test_a_reference_without_a_workflow_id_is_an_error_of_the_list() -> None:
    result = poll_updates(UpdateFake(lambda: ["wf-0", object()]), context())

    assert result.status is PassStatus.DISCOVERY_FAILED
    assert result.error is not None
    assert "workflow_id" in result.error


def test_the_target_gets_back_the_very_reference_it_listed() -> None:
    @dataclass(frozen=True)
    class Claim:
        workflow_id: str
        epoch: int

    listed, renewed = [Claim("wf-0", 3)], []

    def renew(reference: Claim) -> Answer:
        renewed.append(reference)
        return Answer.WON

    result = renew_claims(RenewalFake(lambda: listed, renew), context())

    assert renewed[0] is listed[0]
    assert statuses(result) == [("wf-0", "renewed", None)]


@pytest.mark.parametrize("deadline", [timedelta(0), -LIMIT])
def test_a_pass_without_time_does_not_construct(deadline: timedelta) -> None:
    with pytest.raises(SettingsError, match="deadline"):
        PassContext(clock=SystemClock(), deadline=deadline)
