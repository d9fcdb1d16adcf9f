"""Cases of the fault bench, one of each group, and a mixed schedule on each database."""

from __future__ import annotations

import pytest

from faults.__main__ import run_cases, run_seeds
from faults.cases import ALL
from faults.report import text_of

ONE_OF_EACH = (
    "engine-frozen",
    "both-beats-killed",
    "redis-restarted-three-times",
    "connections-terminated",
    "engine-cut-from-database",
    "bad-rows",
)


def test_one_case_of_each_group_holds() -> None:
    runs = run_cases([ALL[name] for name in ONE_OF_EACH], "postgres", seed=1)
    assert [run["name"] for run in runs] == list(ONE_OF_EACH)
    assert all(run["holds"] for run in runs), "\n\n".join(text_of(run) for run in runs if not run["holds"])


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_mixed_schedule_holds(database: str) -> None:
    runs = run_seeds([1], database, seconds=30)
    assert all(run["holds"] for run in runs), "\n\n".join(map(text_of, runs))
