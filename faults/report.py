"""The report of runs: what was done, what was accepted, what became of each, the longest recovery, every check."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faults.scene import Scene


def facts_of(name: str, scene: Scene, wall_s: float, expected: str | None = None) -> dict[str, Any]:
    """One run as JSON."""
    facts = scene.facts
    kinds = Counter(line["kind"] for line in facts.receipts) if facts else Counter()
    events = Counter(row.event for row in facts.history) if facts else Counter()
    return {
        "name": name,
        "holds": scene.holds,
        **({} if expected is None else {"expected": expected}),
        "database": scene.world.database,
        "seed": scene.seed,
        "wall_s": round(wall_s, 1),
        "faults": [
            {"what": done.what, "from_s": round(done.began_s, 1), "to_s": round(done.ended_s, 1)} for done in scene.done
        ],
        "accepted": {"starts": kinds["start"], "signals": kinds["signal"], "updates": kinds["update"]},
        "became": {
            "workflows": dict(Counter(row.status for row in facts.workflows.values())) if facts else {},
            "signals consumed": sum(row.consumed_turn is not None for row in facts.signals) if facts else 0,
            "updates answered": kinds["answer"],
            "side effects": len(facts.effects) if facts else 0,
            "turns committed": len(facts.turns) if facts else 0,
        },
        "takeovers": events["taken-over"],
        "commits_refused": events["commit-refused"],
        "longest_recovery_s": round(scene.longest_recovery_s, 1),
        "figures": scene.figures,
        "checks": {
            finding.check: "holds" if finding.holds else list(finding.broken[:10]) for finding in scene.findings
        },
    }


def text_of(run: dict[str, Any]) -> str:
    """One run for people."""
    lines = [
        f"{run['name']}: {'holds' if run['holds'] else 'DOES NOT HOLD'}  "
        f"({run['database']}, seed {run['seed']}, {run['wall_s']} s)"
    ]
    if "expected" in run:
        lines.append(f"  expected  {run['expected']}")
    lines += [
        f"  done      {fault['from_s']:6.1f} s to {fault['to_s']:6.1f} s  {fault['what']}" for fault in run["faults"]
    ]
    lines.append("  accepted  " + ", ".join(f"{count} {what}" for what, count in run["accepted"].items()))
    lines.append("  became    " + ", ".join(f"{what} {count}" for what, count in run["became"].items()))
    lines.append(
        f"  recovery  longest {run['longest_recovery_s']} s; {run['takeovers']} takeovers, "
        f"{run['commits_refused']} commits refused"
    )
    lines += [f"  figure    {what}: {value}" for what, value in run["figures"].items()]
    for check, outcome in run["checks"].items():
        lines.append(f"  {'ok  ' if outcome == 'holds' else 'FAIL'}      {check}")
        if outcome != "holds":
            lines += [f"              {broken}" for broken in outcome]
    return "\n".join(lines)


def write(path: Path, runs: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"holds": all(run["holds"] for run in runs), "runs": list(runs)}, indent=2) + "\n")
    path.with_suffix(".txt").write_text("\n\n".join(map(text_of, runs)) + "\n")
