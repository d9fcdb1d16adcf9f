"""Which ticks are worth a task event of their own: those that had something to do, or could not do it."""

from __future__ import annotations

import pytest

from weft_tasks.celery_host.tick_events import is_idle

NOTHING = {"pass": "renewal", "status": "completed", "seconds": 0.01, "counts": {}}


@pytest.mark.parametrize(
    "report",
    [
        NOTHING,
        NOTHING | {"counts": {"renewed": 12}},
        NOTHING | {"pass": "signal-poll", "counts": {"not-buffered": 3}},
        NOTHING
        | {"pass": "reclaim", "counts": {"not-eligible": 1}, "waiting": {"no engine for 'permit' version 2": 1}},
        {"pass": "renewal", "skipped": "recent", "began_ago_s": 0.4},
    ],
)
def test_a_tick_that_found_nothing_to_do_is_idle(report: dict[str, object]) -> None:
    assert is_idle(repr(report))


@pytest.mark.parametrize(
    "report",
    [
        NOTHING | {"counts": {"renewed": 12, "failed": 1}},
        NOTHING | {"pass": "reclaim", "counts": {"reclaimed": 1}},
        NOTHING | {"status": "deadline-reached", "unreached": 4},
        NOTHING | {"split_slices": {"count": 1, "reason": "a statement took too long"}},
        NOTHING | {"lock": "unknown: no answer"},
        {"pass": "renewal", "status": "failed", "seconds": 0.01, "error": "the store did not answer"},
        {"pass": "renewal", "skipped": "running", "holder": "maintenance-1@a", "pid": 7},
        {"pass": "reclaim", "skipped": "lock-unknown", "reason": "no answer"},
    ],
)
def test_a_tick_that_did_something_or_could_not_is_not_idle(report: dict[str, object]) -> None:
    assert not is_idle(repr(report))


def test_a_result_that_celery_has_cut_is_not_idle() -> None:
    assert not is_idle(repr(NOTHING | {"failed": [{"workflow": "w" * 2000}]})[:1000] + "...")
