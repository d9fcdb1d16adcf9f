"""All benchmarks one after the other, the table of what they found, and what becomes of it.

python -m benchmarks.table run [NAME …]     runs them (all without names); each writes var/benchmarks/NAME.json
python -m benchmarks.table show             prints the table of what is there
python -m benchmarks.table check            compares with benchmarks/baseline.json; exit status 1 if a bound is broken
python -m benchmarks.table guard            runs the short ones, reduced, into var/benchmarks/guard, and compares these
python -m benchmarks.table docs             writes docs/performance.md and its pictures, docs/images/performance*
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.measuring import REPORTS

NAMES = (
    "renewal",
    "renewal_each",
    "renewal_writes",
    "renewal_sqlite",
    "polls",
    "reclaim",
    "memory",
    "start_time",
    "single_flight",
    "turn_overhead",
    "signal_latency",
    "throughput",
    "idle_fleet",
    "recovery",
)
SHORT: Mapping[str, Sequence[str]] = {
    "renewal": ("--sizes", "1000,10000", "--rounds", "5"),
    "renewal_writes": ("--no-settings",),
    "renewal_sqlite": ("--rounds", "5"),
    "polls": ("--sizes", "1000,10000", "--rounds", "9"),
    "start_time": ("--rounds", "5"),
    "single_flight": ("--pairs", "300", "--rounds", "5"),
    "turn_overhead": ("--turns", "20"),
}
"""What the guard runs, with which words: paired ratios, counts and sizes, which hold on a busy machine too."""
LONGEST_S = 400
GUARDED = REPORTS / "guard"
FULL = "only in a full run"
BASELINE = Path(__file__).with_name("baseline.json")
PAGE = Path("docs/performance.md")
PICTURE = PAGE.parent / "images" / "performance.svg"
PICTURES = PAGE.parent / "images" / "performance"
"""One for each benchmark."""
INTRODUCTION = Path(__file__).with_name("performance_introduction.md")


def run(names: Sequence[str], words: Mapping[str, Sequence[str]] = MappingProxyType({})) -> bool:
    """Whether each of them ran to its end; a missed goal is for the table to say. `words` follow a benchmark's name."""
    done = True
    for name in names or NAMES:
        print(f"{name} …", flush=True)
        try:
            found = subprocess.run(
                [sys.executable, "-m", f"benchmarks.{name}", *words.get(name, ())],
                capture_output=True,
                text=True,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"  not done after {LONGEST_S} s")
            done = False
            continue
        lines = found.stdout.splitlines()
        verdicts = [line for line in lines if line.startswith(("pass:", "FAIL:", "not measured:"))]
        print("\n".join(f"  {line}" for line in verdicts or found.stderr.splitlines()[-3:]), flush=True)
        done = done and bool(verdicts)
    return done


def guard() -> bool:
    """Whether the short benchmarks ran, just now, and are within their bounds."""
    shutil.rmtree(GUARDED, ignore_errors=True)
    kept = ("--reports", str(GUARDED))
    ran = run(tuple(SHORT), {name: (*words, *kept) for name, words in SHORT.items()})
    return check(GUARDED, SHORT) and ran


def reports(folder: Path | None = None) -> Iterator[dict[str, Any]]:
    for name in NAMES:
        path = (folder or REPORTS) / f"{name}.json"
        if path.exists():
            yield json.loads(path.read_text())


def show() -> None:
    rows = [row for report in reports() for row in report["rows"]]
    for row in rows:
        print(f"{_verdict(row):12} {row['name']:24} {_value(row):>18}  goal {_goal(row)}")
    met = sum(row["passed"] is True for row in rows)
    print(f"{met} of {len(rows)} goals met")


def check(folder: Path | None = None, short: Mapping[str, Sequence[str]] | None = None) -> bool:
    """Whether what was measured is within its bounds. They are generous: they find what has become several times
    slower, not what a busy machine does.

    A row that has a bound and is not in its benchmark's report breaks it; a benchmark that was not run is named, and
    breaks nothing. `short`: the words of a reduced run, which has not all rows.
    """
    baseline: dict[str, dict[str, dict[str, Any]]] = json.loads(BASELINE.read_text())
    found = {report["name"]: {row["name"]: row for row in report["rows"]} for report in reports(folder)}
    broken = []
    for name, bounds in baseline.items():
        command = shlex.join(["python", "-m", f"benchmarks.{name}", *(short or {}).get(name, ())])
        for row_name, bound in bounds.items():
            if name in found and not (short and bound.get(FULL)):
                said = _breach(found[name].get(row_name), bound)
                broken += [f"{row_name}: {said} (`{command}`)"] if said else []
    not_run = [name for name in baseline if name not in found and (short is None or name in short)]
    if not_run:
        print(f"not measured: {', '.join(not_run)}")
    print("\n".join(broken) or f"within the bounds of {BASELINE.name}")
    return not broken


def _breach(row: Mapping[str, Any] | None, bound: Mapping[str, Any]) -> str | None:
    """What is wrong with a row, if something is."""
    ((kind, limit),) = ((kind, bound[kind]) for kind in ("at most", "at least") if kind in bound)
    if row is None or row["value"] is None:
        return f"not measured, and must be {kind} {limit:g}"
    holds = row["value"] <= limit if kind == "at most" else row["value"] >= limit
    return None if holds else f"{_value(row)}, and must be {kind} {limit:g}"


def write_docs() -> None:
    """The page and its pictures, from the reports of the last run."""
    from benchmarks.picture import draw_goals, draw_report

    found = list(reports())
    machine = found[0]["machine"]
    lines = [
        INTRODUCTION.read_text().rstrip(),
        "",
        "## Measured",
        "",
        f"On {machine['processor']}, {machine['cpus']} cores, {machine['system']}, Python {machine['python']}, while"
        " other work ran on the machine (load "
        + ", ".join(f"{report['machine']['load_average']:g}" for report in found)
        + " at the ends of the benchmarks): only ratios that were measured in pairs mean something elsewhere.",
        "",
        "![How far each figure is from its goal](images/performance.svg)",
    ]
    for report in found:
        picture = PICTURES / f"{report['name']}.svg"
        draw_report(report, picture)
        lines += [
            "",
            f"`{report['command']}`",
            "",
            f"![{report['name']}: figures, rounds and goals]({picture.relative_to(PAGE.parent)})",
        ]
        lines += ["", "| what | reference | ours | theirs | measured | goal | |"]
        lines += ["|---|---|---|---|---|---|---|", *map(_cells, report["rows"])]
    missing = [f"`{name}`" for name in NAMES if name not in {report["name"] for report in found}]
    if missing:
        lines += ["", f"Not measured in this run: {', '.join(missing)}."]
    PAGE.write_text("\n".join(lines) + "\n")
    draw_goals([row for report in found for row in report["rows"]], PICTURE)
    print(f"{PAGE}, {PICTURE} and {PICTURES}/")


def _cells(row: dict[str, Any]) -> str:
    sides = [f"{row[side]:.4g} {row['measured_in']}" if row[side] is not None else "" for side in ("ours", "theirs")]
    note = f"; {row['note']}" if row["note"] else ""
    cells = (row["what"] + note, row["reference"], *sides, _value(row), _goal(row), _verdict(row))
    return f"| {' | '.join(cells)} |"


def _verdict(row: dict[str, Any]) -> str:
    return {True: "met", False: "**missed**", None: "not measured"}[row["passed"]]


def _value(row: dict[str, Any]) -> str:
    return "-" if row["value"] is None else f"{row['value']:.4g} {row['unit']}".strip()


def _goal(row: dict[str, Any]) -> str:
    return f"{row['bound']} {row['goal']:g} {row['unit']}".strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show", "check", "guard", "docs"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if arguments.what == "run":
        done = run(arguments.names)
        show()
        return 0 if done else 1
    if arguments.what == "check":
        return 0 if check() else 1
    if arguments.what == "guard":
        return 0 if guard() else 1
    if not any(reports()):
        parser.error("nothing has been measured here yet: run `python -m benchmarks.table run`")
    if arguments.what == "docs":
        write_docs()
    else:
        show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
