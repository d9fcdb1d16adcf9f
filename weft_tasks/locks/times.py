"""The durations of a lock, which have to fit together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from weft_tasks.errors import SettingsError

_PATIENCE = timedelta(seconds=1)
_SHORTEST_TTL = timedelta(milliseconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightTimes:
    """How long a lock lives; the rest follows. Raises SettingsError if the two cannot work together."""

    lock_ttl: timedelta
    """A key lives this long after its last extension, so also after `kill -9` of its holder."""

    pass_deadline: timedelta
    """The longest life of a lock: extensions never carry a key past it."""

    def __post_init__(self) -> None:
        if self.lock_ttl < _SHORTEST_TTL:
            raise SettingsError(f"weft_lock_ttl ({self.lock_ttl}) must be at least {_SHORTEST_TTL}")
        if self.lock_ttl > self.pass_deadline:
            raise SettingsError(
                f"weft_lock_ttl ({self.lock_ttl}) must be at most weft_pass_deadline ({self.pass_deadline})"
            )

    @property
    def extend_every(self) -> timedelta:
        """A third of the lifetime: one extension may fail, and the key lives until the next."""
        return self.lock_ttl / 3

    @property
    def answer_within(self) -> timedelta:
        """Time for the server to connect, and again to answer: then the answer is unknown, before the next is due."""
        return min(_PATIENCE, self.extend_every)
