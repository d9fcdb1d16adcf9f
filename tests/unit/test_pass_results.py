"""Reasons in one line, and what a combined result says of its parts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pass_fakes import ManualClock

from weft_tasks.passes.clock import Deadline, SystemClock
from weft_tasks.results import PassFailed, PassKind, PassResult, PassStatus, RunOnceResult, reason_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError("two\n  lines"), "ValueError: two lines"),
        (TimeoutError(), "TimeoutError"),
        (Unprintable(), "Unprintable"),
        (ValueError("x" * 300), f"ValueError: {'x' * 187}…"),
    ],
)
def test_a_reason_is_the_error_on_one_short_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
    assert len(reason) <= 200


def test_a_combined_result_names_the_passes_that_failed_as_a_whole() -> None:
    times: Any = {"started_at": NOW, "finished_at": NOW}
    result = RunOnceResult(
        **times,
        renewal=PassFailed(kind=PassKind.RENEWAL, error="OSError", **times),
        reclaim=PassResult(kind=PassKind.RECLAIM, status=PassStatus.DISCOVERY_FAILED, **times),
        update_poll=PassResult(kind=PassKind.UPDATE_POLL, status=PassStatus.DEADLINE_REACHED, unreached=1, **times),
    )

    assert result.failed == (PassKind.RENEWAL, PassKind.RECLAIM)
    assert [part.kind for part in result.parts] == [PassKind.RENEWAL, PassKind.RECLAIM, PassKind.UPDATE_POLL]


def test_a_deadline_is_reached_at_its_moment_and_not_before() -> None:
    clock = ManualClock()
    deadline = clock.deadline()

    assert not deadline.is_reached()
    clock.advance()
    assert deadline.is_reached()
    assert deadline.remaining().total_seconds() == 0


def test_the_system_clock_shows_aware_utc_and_measures_forward() -> None:
    clock = SystemClock()
    earlier = clock.monotonic()

    assert clock.now().tzinfo is UTC
    assert clock.monotonic() >= earlier
    assert isinstance(Deadline(clock, 0.0), Deadline)
