"""The plots of docs/scaling.md, and the tables that stand between marks in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.picture import new_figure, save
from benchmarks.scaling.check import CHECKED
from benchmarks.scaling.costs import MEASURED

COLOURS = ("#2a7f62", "#2f6690", "#b5402c", "#8a6d3b", "#5b4b8a")
MARKS = "<!-- {name}: written by python -m benchmarks.scaling --docs -->"
END = "<!-- end -->"
INTERVAL_S = 5
COSTS_SHOWN = {
    "renewal": "a claim renewed",
    "waiting": "a workflow that waits, for the reclaim pass's list to choose from",
    "listed": "one that is chosen, read, and planned for",
    "move": "a workflow moved",
    "counted": "a claim counted for the plan",
    "release": "a claim released by a clean stop",
    "heartbeat": "a heartbeat, with its connection",
    "idle": "the four passes of a shard with nothing to do",
}


def write(report: Mapping[str, Any], page: Path, pictures: Path) -> None:
    """Draw, and put the report's tables into the page."""
    _draw_passes(report, pictures / "passes.svg")
    _draw_load(report, pictures / "load.svg")
    _draw_recovery(report, pictures / "recovery.svg")
    text = page.read_text(encoding="utf-8")
    tables = {
        "recovery": _recovery(report["runs"]),
        "load": _load(report["runs"]),
        "passes": _passes(report["renewals"]),
        "costs": _costs(json.loads(MEASURED.read_text(encoding="utf-8"))),
        "checked": _checked(json.loads(CHECKED.read_text(encoding="utf-8"))),
    }
    for name, lines in tables.items():
        text = between(text, name, lines)
    page.write_text(text, encoding="utf-8")


def between(text: str, name: str, lines: Sequence[str]) -> str:
    """The page with other lines between the marks of this name. Raises ValueError if it has no such marks."""
    mark = MARKS.format(name=name)
    pattern = re.compile(rf"{re.escape(mark)}\n.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the page has no marks for {name}")
    body = "\n".join(lines)
    return pattern.sub(lambda _found: f"{mark}\n\n{body}\n\n{END}", text)


# -- tables


def _recovery(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        "| what happens | shards | workflows that had to move | half within | 99 % within | all within |",
        "|---|---|---|---|---|---|",
    ]
    for run in runs:
        waits = run["recovery_s"]
        rows.append(
            f"| {run['what']} | {run['shards']} | {run['recovered']:,} "
            f"| {waits['p50']:g} s | {waits['p99']:g} s | {waits['max']:g} s |"
        )
    return rows


def _load(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        "| what happens | shards | cores busy, mean and most | log in MB/s | statements/s | longest renewal pass "
        "| longest reclaim pass | cut off, not read |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        pairs = [f"{run[name][0]:,g}, {run[name][1]:,g}" for name in ("cores_busy", "log_mb_s", "statements_s")]
        renewal, reclaim = run["renewal"], run["reclaim"]
        rows.append(
            f"| {run['what']} | {run['shards']} | {' | '.join(pairs)} | {renewal['longest_s']:g} s "
            f"| {reclaim['longest_s']:g} s | {renewal['cut'] + reclaim['cut']}, {reclaim['unread']} |"
        )
    return rows


def _passes(renewals: Sequence[Mapping[str, Any]]) -> list[str]:
    shards = sorted({each["shards"] for each in renewals})
    seconds = {(each["claims"], each["shards"]): each["seconds"] for each in renewals}
    rows = ["| claims | " + " | ".join(map(_shards, shards)) + " |"]
    rows.append("|---" * (len(shards) + 1) + "|")
    return rows + [
        f"| {claims:,} | " + " | ".join(f"{seconds[claims, count]:g} s" for count in shards) + " |"
        for claims in sorted({each["claims"] for each in renewals})
    ]


def _costs(measured: Mapping[str, Any]) -> list[str]:
    machine = measured["machine"]
    rows = [
        f"On {machine['processor']}, {machine['cpus']} cores, Python {machine['python']}, over {measured['claims']:,} "
        f"claims, with other work on the machine; 16 hearts at once came to {measured['heartbeats_a_second']} "
        "heartbeats a second there.",
        "",
        "| for | our process, µs | PostgreSQL, µs | log, bytes |",
        "|---|---|---|---|",
    ]
    for name, what in COSTS_SHOWN.items():
        each = measured["each"][name]
        rows.append(
            f"| {what} | {1e6 * each['client_s']:,.1f} | {1e6 * each['server_s']:,.1f} | {each['log_bytes']:,.0f} |"
        )
    return rows


def _checked(checked: Mapping[str, Any]) -> list[str]:
    machine = checked["machine"]
    in_time = "within" if checked["listed_within_default_statement_timeout"] else "not within"
    return [
        f"On {machine['processor']}, {machine['cpus']} cores for both sides, load {machine['load_average']:g} at the "
        f"end. The list over all came {in_time} the default statement timeout.",
        "",
        "| pass | processor time | model | on the clock | model | log | model |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row['what']} | {row['processor_s']:g} s | {row['processor_model_s']:g} s | {row['clock_s']:g} s "
            f"| {row['clock_model_s']:g} s | {row['log_mb']:g} MB | {row['log_model_mb']:g} MB |"
            for row in checked["rows"]
        ),
    ]


# -- plots


def _draw_passes(report: Mapping[str, Any], path: Path) -> None:
    figure, (by_claims, by_cores) = new_figure(2, height=6.5)
    shards = sorted({each["shards"] for each in report["renewals"]})
    for colour, count in zip(COLOURS, shards, strict=False):
        for axes, rows, name in (
            (by_claims, report["renewals"], "claims"),
            (by_cores, report["renewals_by_cores"], "cores"),
        ):
            points = [(each[name], each["seconds"]) for each in rows if each["shards"] == count]
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, color=colour, label=_shards(count))
    for axes, name in ((by_claims, "claims"), (by_cores, f"cores of the store, {report['workflows']:,} claims")):
        axes.axhline(INTERVAL_S, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(name)
        axes.set_ylabel("seconds of a renewal pass")
    cores = sorted({each["cores"] for each in report["renewals_by_cores"]})
    by_cores.set_xticks(cores, [str(few) for few in cores], minor=False)
    by_cores.minorticks_off()
    by_claims.set_title(
        f"line: the renew interval, {INTERVAL_S} s; a store of {report['store_cores']:g} cores", fontsize=9
    )
    by_claims.legend(fontsize=8, frameon=False)
    save(figure, path)


def _draw_load(report: Mapping[str, Any], path: Path) -> None:
    most = max(run["shards"] for run in report["runs"])
    runs = [run for run in report["runs"] if run["shards"] == most]
    figure, strips = new_figure(2 * len(runs), height=2.2 * len(runs) + 3)
    for number, run in enumerate(runs):
        for axes, curve, colour, label in (
            (strips[2 * number], run["cores_curve"], COLOURS[0], "cores busy"),
            (strips[2 * number + 1], run["log_curve"], COLOURS[1], "log, MB/s"),
        ):
            shown = curve[:300]
            axes.plot(range(len(shown)), shown, color=colour, linewidth=0.8)
            axes.set_ylabel(label, fontsize=8)
            axes.set_ylim(bottom=0)
            axes.tick_params(labelsize=8)
        strips[2 * number].set_title(f"{run['what']}, {run['shards']} shards", loc="left", fontsize=9)
    strips[-1].set_xlabel("seconds")
    save(figure, path)


def _draw_recovery(report: Mapping[str, Any], path: Path) -> None:
    names = list(dict.fromkeys(run["name"] for run in report["runs"]))
    figure, strips = new_figure(len(names), height=1.9 * len(names))
    for axes, name in zip(strips, names, strict=True):
        runs = [run for run in report["runs"] if run["name"] == name and run["waits_curve"]]
        for colour, run in zip(COLOURS, runs, strict=False):
            shares = [100 * n / (len(run["waits_curve"]) - 1) for n in range(len(run["waits_curve"]))]
            axes.plot(run["waits_curve"], shares, color=colour, label=_shards(run["shards"]))
            axes.set_title(run["what"], loc="left", fontsize=9)
        axes.set_xlim(left=0)
        axes.set_ylabel("% have an owner", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.legend(fontsize=8, frameon=False, loc="lower right")
    strips[-1].set_xlabel("seconds without a living owner")
    save(figure, path)


def _shards(count: int) -> str:
    return "1 shard" if count == 1 else f"{count} shards"
