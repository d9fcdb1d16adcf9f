"""The picture of docs/performance.md: how far each figure is from its goal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

MET, MISSED = "#2a7f62", "#b5402c"
SMALLEST = 0.01


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """One bar for each row: the figure in terms of its goal, so that 1 is the goal and shorter is better."""
    # Only `make bench-docs` needs it.
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    shown = [row for row in rows if row["value"] and row["goal"]]
    shares = [max(SMALLEST, _share(row)) for row in shown]
    figure, axes = plt.subplots(figsize=(8, 0.28 * len(shown) + 1), layout="constrained")
    axes.barh(
        [row["name"] for row in shown], shares, color=[MET if row["passed"] else MISSED for row in shown], height=0.6
    )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("in terms of the goal: left of the line is met")
    axes.invert_yaxis()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _share(row: dict[str, Any]) -> float:
    value, goal = float(row["value"]), float(row["goal"])
    return goal / value if row["bound"] == "at least" else value / goal
