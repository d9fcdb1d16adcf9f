"""The cost model: what `python -m benchmarks.scaling.calibrate` measured, kept in costs.json with its machine.

Costs are processor time and bytes of write-ahead log for each row, not time on the clock: a busy machine makes
everything late, but hardly more expensive. What passes take on the clock follows from the cores that there are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

MEASURED = Path(__file__).with_name("costs.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """For one row: seconds of processor time of the process that asks and of the store, and bytes of log."""

    client_s: float
    server_s: float
    log_bytes: float = 0.0

    def __mul__(self, rows: float) -> Work:
        return Work(client_s=self.client_s * rows, server_s=self.server_s * rows, log_bytes=self.log_bytes * rows)

    def __add__(self, other: Work) -> Work:
        return Work(
            client_s=self.client_s + other.client_s,
            server_s=self.server_s + other.server_s,
            log_bytes=self.log_bytes + other.log_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the parts of passes cost."""

    renewal: Work
    """A claim renewed, listing included."""
    waiting: Work
    """A workflow among those that the reclaim pass's list chooses from."""
    listed: Work
    """One that it chose: read, and a target planned for it."""
    counted: Work
    """A claim counted, when the loads of the engines are read for a plan."""
    move: Work
    """A workflow moved."""
    release: Work
    """A claim released by a clean stop."""
    heartbeat: Work
    idle: Work
    """The four passes of a shard without anything to do."""

    @classmethod
    def of(cls, measured: dict[str, Any]) -> Self:
        return cls(**{field.name: Work(**measured["each"][field.name]) for field in fields(cls)})


def read_costs() -> Costs:
    return Costs.of(json.loads(MEASURED.read_text(encoding="utf-8")))
