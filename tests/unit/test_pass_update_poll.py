"""The update poll: whom it drains, whom it leaves, and that it reads no more than it must."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from pass_fakes import ManualClock, UpdateFake, context, nothing, statuses

from weft_tasks.passes import poll_updates
from weft_tasks.results import Answer, PassStatus


@dataclass
class PendingListingFake(UpdateFake):
    pending: Callable[[], Sequence[Any]] = nothing

    def list_workflows_with_pending_updates(self) -> Sequence[Any]:
        return self.pending()


def never(_: Any = None) -> Any:
    pytest.fail("not to be called")


def test_only_workflows_with_pending_updates_are_drained() -> None:
    target = UpdateFake(lambda: ["wf-0", "wf-1"], is_pending=lambda reference: reference == "wf-1")

    assert statuses(poll_updates(target, context())) == [
        ("wf-0", "no-pending-updates", None),
        ("wf-1", "drained", None),
    ]


def test_updates_that_are_gone_are_no_failure_and_an_unknown_drain_is_one() -> None:
    answers = {"wf-0": Answer.LOST, "wf-1": Answer.UNKNOWN}

    assert statuses(poll_updates(UpdateFake(lambda: list(answers), answers.__getitem__), context())) == [
        ("wf-0", "no-pending-updates", "nothing left to drain here"),
        ("wf-1", "drain-failed", "unknown"),
    ]


def test_a_target_that_lists_pending_workflows_has_only_those_read() -> None:
    target = PendingListingFake(listing=never, is_pending=never, pending=lambda: ["wf-7", "wf-9"])

    assert statuses(poll_updates(target, context())) == [("wf-7", "drained", None), ("wf-9", "drained", None)]


def test_a_drain_does_not_begin_after_the_deadline() -> None:
    clock = ManualClock()

    def slow(_: Any) -> bool:
        clock.advance()
        return True

    result = poll_updates(UpdateFake(lambda: ["wf-0"], never, slow), context(clock))

    assert (result.status, result.unreached) == (PassStatus.DEADLINE_REACHED, 1)
