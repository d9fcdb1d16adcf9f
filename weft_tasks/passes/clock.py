"""The clock that passes are given, and the only file of them that asks the process for the time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Time as a pass sees it. It decides how long a pass may take, never who owns a claim (O2)."""

    def now(self) -> datetime:
        """The time to show to people: aware, UTC. It may be set, so nothing is measured with it."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment, never set back: for measuring."""
        ...


class SystemClock:
    """The clocks of this process."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on a clock's monotonic scale. From then on a pass begins nothing more."""

    clock: Clock
    at: float

    @classmethod
    def after(cls, clock: Clock, limit: timedelta) -> Deadline:
        return cls(clock, clock.monotonic() + limit.total_seconds())

    def is_reached(self) -> bool:
        return self.clock.monotonic() >= self.at

    def remaining(self) -> timedelta:
        return timedelta(seconds=max(0.0, self.at - self.clock.monotonic()))
