"""The signal poll: whom it wakes, whom it leaves, and that it reads no more than it must."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from pass_fakes import ManualClock, SignalFake, context, nothing, statuses, waits

from weft_tasks.passes import SignalWait, poll_signals
from weft_tasks.results import Answer, PassStatus


@dataclass
class ReadyListingFake(SignalFake):
    ready: Callable[[], Sequence[Any]] = nothing

    def list_ready_signal_waits(self) -> Sequence[Any]:
        return self.ready()


def never(_: Any = None) -> Any:
    pytest.fail("not to be called")


def test_only_waits_with_a_buffered_signal_are_woken() -> None:
    target = SignalFake(lambda: waits("wf-0", "wf-1"), is_buffered=lambda wait: wait.workflow_id == "wf-1")

    assert statuses(poll_signals(target, context())) == [("wf-0", "not-buffered", None), ("wf-1", "woken", None)]


def test_a_passed_deadline_wakes_without_a_signal() -> None:
    target = SignalFake(lambda: [SignalWait("wf-0", "event", deadline_passed=True)], is_buffered=lambda _: False)

    assert statuses(poll_signals(target, context())) == [("wf-0", "woken", None)]


def test_each_wait_of_a_workflow_has_its_own_outcome() -> None:
    listed = [SignalWait("wf-0", "paid"), SignalWait("wf-0", "cancelled")]
    target = SignalFake(lambda: listed, is_buffered=lambda wait: wait.name == "cancelled")

    assert statuses(poll_signals(target, context())) == [("wf-0", "not-buffered", None), ("wf-0", "woken", None)]


def test_a_workflow_that_moved_on_needs_no_waking_and_an_unknown_wake_is_a_failure() -> None:
    answers = {"wf-0": Answer.LOST, "wf-1": Answer.UNKNOWN}
    target = SignalFake(lambda: waits(*answers), lambda wait: answers[wait.workflow_id])

    assert statuses(poll_signals(target, context())) == [
        ("wf-0", "not-buffered", "no longer parked on this wait"),
        ("wf-1", "wake-failed", "unknown"),
    ]


def test_a_target_that_lists_ready_waits_has_only_those_read() -> None:
    target = ReadyListingFake(listing=never, is_buffered=never, ready=lambda: waits("wf-7", "wf-9"))

    assert statuses(poll_signals(target, context())) == [("wf-7", "woken", None), ("wf-9", "woken", None)]


def test_a_wake_does_not_begin_after_the_deadline() -> None:
    clock = ManualClock()

    def slow(_: Any) -> bool:
        clock.advance()
        return True

    result = poll_signals(SignalFake(lambda: waits("wf-0"), never, slow), context(clock))

    assert (result.status, result.unreached) == (PassStatus.DEADLINE_REACHED, 1)
