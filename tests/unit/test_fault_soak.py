"""What the soak calls flat: a figure that grows in its last third is found, one that comes and goes is not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from faults.soak import SHORTEST_S, Sampler


def grown(values: list[float], name: str = "engine-1 MB", lasted_s: float = SHORTEST_S) -> list[str]:
    sampler = Sampler(cast("Any", None))
    sampler.samples[name] = values
    return [broken for finding in sampler.flatness(lasted_s) for broken in finding.broken]


def test_a_process_that_grows_all_the_time_is_found() -> None:
    assert grown([float(n) for n in range(100, 400, 5)]) == ["engine-1 MB: 247.5 became 347.5"]


@pytest.mark.parametrize(
    "values", [[100.0] * 30, [100.0, 140.0] * 15, [50.0] * 10 + [100.0] * 20, [100.0] * 20 + [112.0] * 10]
)
def test_what_comes_and_goes_or_grows_at_the_beginning_alone_is_flat(values: list[float]) -> None:
    assert grown(values) == []


def test_a_soak_that_is_too_short_for_a_purge_says_nothing_about_rows() -> None:
    assert grown([1.0, 1000.0, 2000.0] * 10, "weft_turns rows", lasted_s=SHORTEST_S - 1) == []


def test_rows_that_are_never_purged_are_found() -> None:
    assert grown([float(n) for n in range(0, 3000, 50)], "weft_turns rows") != []
