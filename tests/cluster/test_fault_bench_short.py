"""A few cases of the fault bench in one world; `make faults` has all of them."""

from __future__ import annotations

from faults.__main__ import run_cases
from faults.cases import ALL
from faults.report import text_of

SHORT = ("engine-killed-and-started-at-once",)


def test_nothing_is_lost_and_nothing_happens_twice() -> None:
    runs = run_cases([ALL[name] for name in SHORT], "postgres", seed=1)
    assert [run["name"] for run in runs] == list(SHORT)
    assert all(run["holds"] for run in runs), "\n\n".join(map(text_of, runs))
