"""The report of a run: `report.json`, and the same as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Self

from examples.eventlog.faults import Faults
from examples.eventlog.ledger import Progress
from examples.eventlog.verify import Findings
from weft_tasks.settings import Settings
from weft_tasks.store.clock import milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Counts that must be equal or 0 first, then what was measured. Durations as their names say."""

    workflows: int
    events: int
    completed: int
    mismatched: int
    lost_signals: int
    duplicate_commits: int
    engines_killed: int
    engines_drained: int
    engines_frozen: int
    takeovers: int
    stale_commits_refused: int
    recovery_ms_p50: int
    recovery_ms_max: int
    recovery_bound_ms: int
    """T + G + R; one reclaim pass comes on top."""
    recovered_by: Mapping[str, int]
    """How many of the killed engine's workflows each other node got: the least loaded got the most."""
    claims_after_recovery: Mapping[str, int]
    """What each of them held then."""
    drain_handover_ms_max: int
    renew_interval_ms: int
    wall_s: float

    @classmethod
    def of(cls, findings: Findings, faults: Faults, progress: Progress, settings: Settings, *, wall_s: float) -> Self:
        recovery = faults.killed.moved_ms or (0,)
        return cls(
            **asdict(findings),
            engines_killed=1,
            engines_drained=1,
            engines_frozen=1,
            takeovers=progress.takeovers,
            stale_commits_refused=progress.refused,
            recovery_ms_p50=round(median(recovery)),
            recovery_ms_max=max(recovery),
            recovery_bound_ms=milliseconds(settings.silence_limit + settings.renew_interval),
            recovered_by=dict(sorted(faults.killed.moved_to.items())),
            claims_after_recovery=dict(faults.killed.loads),
            drain_handover_ms_max=max(faults.drained.moved_ms, default=0),
            renew_interval_ms=milliseconds(settings.renew_interval),
            wall_s=round(wall_s, 1),
        )

    @property
    def is_clean(self) -> bool:
        return self.completed == self.workflows and not (self.mismatched or self.lost_signals or self.duplicate_commits)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    def __str__(self) -> str:
        return "\n".join(f"  {name:<24} {value}" for name, value in asdict(self).items())
