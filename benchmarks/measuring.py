"""Rounds, ratios and reports: what every benchmark has in common.

The machine is never quiet, so no absolute time decides. The two sides of a row run in turn within one round, in
changing order, and a ratio is the median of the rounds' own ratios. A first round is thrown away.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

REPORTS = Path("var/benchmarks")
Bound = Literal["at most", "at least", "exactly"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: what we took, what the reference took in the same run, and whether the goal is met.

    `value` is what is compared with `goal`: a ratio where there is a reference, else the figure itself. None: the
    reference could not be had, and `note` says why.
    """

    name: str
    what: str
    reference: str
    value: float | None
    unit: str
    bound: Bound
    goal: float
    ours: float | None = None
    theirs: float | None = None
    measured_in: str = ""
    note: str = ""
    spread: tuple[float, ...] = ()
    """The rounds' own values, in order."""

    @property
    def passed(self) -> bool | None:
        """None if it was not measured."""
        if self.value is None:
            return None
        if self.bound == "exactly":
            return self.value == self.goal
        return self.value <= self.goal if self.bound == "at most" else self.value >= self.goal

    def line(self) -> str:
        verdict = {True: "pass", False: "FAIL", None: "not measured"}[self.passed]
        value = "-" if self.value is None else f"{self.value:.4g} {self.unit}".strip()
        sides = "" if self.ours is None else f" (ours {self.ours:.4g}"
        sides += "" if self.theirs is None else f", reference {self.theirs:.4g}"
        sides += f" {self.measured_in})" if sides else ""
        note = f"; {self.note}" if self.note else ""
        return f"{verdict}: {self.name}: {value}, goal {self.bound} {self.goal:g}{sides}{note}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one benchmark found."""

    name: str
    rows: Sequence[Row]
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "command": f"python -m benchmarks.{self.name}",
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "rows": [{**asdict(row), "passed": row.passed} for row in self.rows],
            "details": dict(self.details),
        }


def machine() -> dict[str, Any]:
    """Where this was measured."""
    model = "unknown"
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return {
        "cpus": os.cpu_count(),
        "processor": model,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def interleave(
    sides: Mapping[str, Callable[[], float | None]], *, rounds: int, before: Callable[[], None] = lambda: None
) -> dict[str, list[float]]:
    """The seconds of each side in each round. A side may return its own seconds, or None: then the call is timed."""
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in random.sample(list(sides), len(sides)):
            before()
            begun = time.perf_counter()
            own = sides[name]()
            seconds = time.perf_counter() - begun if own is None else own
            if number:
                spent[name].append(seconds)
    return spent


def ratios(spent: Mapping[str, Sequence[float]], one: str, other: str) -> tuple[float, ...]:
    """`one` in terms of `other`, round by round."""
    return tuple(round(a / b, 4) for a, b in zip(spent[one], spent[other], strict=True))


def ms(seconds: Sequence[float]) -> float:
    """The median in milliseconds."""
    return round(1000 * statistics.median(seconds), 3)


def compared(
    spent: Mapping[str, Sequence[float]],
    *,
    name: str,
    what: str,
    reference: str,
    bound: Bound,
    goal: float,
    **more: Any,
) -> Row:
    """The row of a side `ours` against a side `reference`. `at most`: our time in terms of theirs; `at least`: how many
    times faster we are."""
    one, other = ("ours", "reference") if bound == "at most" else ("reference", "ours")
    rounds = ratios(spent, one, other)
    return Row(
        name=name,
        what=what,
        reference=reference,
        value=round(statistics.median(rounds), 3),
        unit="x",
        bound=bound,
        goal=goal,
        ours=ms(spent["ours"]),
        theirs=ms(spent["reference"]),
        measured_in="ms",
        spread=rounds,
        **more,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """By linear interpolation. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def main(name: str, measure: Callable[[argparse.Namespace], Report], parser: argparse.ArgumentParser) -> None:
    """Measure, print the JSON and a line for each row, keep JSON and picture; exit with 1 if a goal is missed."""
    parser.add_argument("--reports", type=Path, default=REPORTS, metavar="FOLDER", help="where to keep what was found")
    arguments = parser.parse_args()
    report = measure(arguments)
    keep(report, arguments.reports)
    print(json.dumps(report.as_json(), indent=2))
    for row in report.rows:
        print(row.line())
    sys.exit(0 if all(row.passed is not False for row in report.rows) else 1)


def keep(report: Report, folder: Path) -> None:
    """NAME.json and NAME.svg. Without matplotlib, which only `pip install '.[bench]'` brings, there is no picture."""
    found = report.as_json()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{report.name}.json").write_text(json.dumps(found, indent=2) + "\n")
    if importlib.util.find_spec("matplotlib") is None:
        print("no picture: matplotlib is not installed (pip install '.[bench]')", file=sys.stderr)
        return
    from benchmarks.picture import draw_report

    draw_report(found, folder / f"{report.name}.svg")


def parser_of(text: str | None, *, rounds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser
