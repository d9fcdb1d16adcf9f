"""The pictures of docs/performance.md: how far each figure is from its goal, and the rounds of each benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MET, MISSED, ROUND = "#2a7f62", "#b5402c", "#1f2933"
SMALLEST = 0.01
ROW_INCHES = 0.9


def draw_goals(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """One bar for each row: the figure in terms of its goal, so that 1 is the goal and shorter is better."""
    shown = [row for row in rows if row["value"] and row["goal"]]
    figure, (axes,) = new_figure(1, height=0.28 * len(shown) + 1)
    shares = [max(SMALLEST, _share(row)) for row in shown]
    axes.barh([row["name"] for row in shown], shares, color=[_colour(row) for row in shown], height=0.6)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("in terms of the goal: left of the line is met")
    axes.invert_yaxis()
    save(figure, path)


def draw_report(report: Mapping[str, Any], path: Path) -> None:
    """A strip for each row of one benchmark, in the row's own unit: its figure as a bar, its rounds as dots, and the
    goal as a line; above it what both sides took."""
    shown = [row for row in report["rows"] if row["value"] is not None]
    figure, strips = new_figure(max(1, len(shown)), height=ROW_INCHES * max(1, len(shown)) + 0.3)
    for row, axes in zip(shown, strips, strict=False):
        _draw_row(axes, row)
    save(figure, path)


def _draw_row(axes: Any, row: Mapping[str, Any]) -> None:
    axes.barh([0], [row["value"]], color=_colour(row), height=0.5)
    rounds = row["spread"]
    # One above the other as they came, so that equal ones are both seen.
    heights = [0.2 - 0.4 * number / max(1, len(rounds) - 1) for number in range(len(rounds))]
    axes.scatter(
        rounds, heights, s=14, color=ROUND, edgecolors="white", linewidths=0.5, zorder=3, gid=f"rounds-{row['name']}"
    )
    axes.axvline(row["goal"], color="black", linewidth=1.2)
    reach = max(row["value"], row["goal"], *rounds)
    axes.set_xlim(min(0, row["value"], *rounds) * 1.1, reach * 1.1 or 1)
    axes.set_ylim(-0.4, 0.4)
    axes.set_yticks([])
    axes.set_title(_title(row), loc="left", fontsize=9)
    axes.tick_params(labelsize=8)


def _title(row: Mapping[str, Any]) -> str:
    """Of a row: what, the figure, the goal, and what both sides took."""
    figure = f"{row['value']:.4g} {row['unit']}".strip()
    goal = f"{row['bound']} {row['goal']:g}"
    sides = ""
    if row["ours"] is not None and row["theirs"] is not None:
        sides = f" ({row['ours']:.4g} against {row['theirs']:.4g} {row['measured_in']})"
    return f"{row['name']}: {figure}{sides}, goal {goal}"


def _share(row: Mapping[str, Any]) -> float:
    value, goal = float(row["value"]), float(row["goal"])
    return goal / value if row["bound"] == "at least" else value / goal


def _colour(row: Mapping[str, Any]) -> str:
    return MET if row["passed"] else MISSED


def new_figure(strips: int, *, height: float) -> tuple[Any, Sequence[Any]]:
    # Only who draws needs it; its text stays text, and the same figures give the same file.
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "weft_tasks", "font.family": "sans-serif"})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(strips, figsize=(8, height), layout="constrained", squeeze=False)
    for each in axes[:, 0]:
        for side in ("top", "right"):
            each.spines[side].set_visible(False)
    return figure, axes[:, 0]


def save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
