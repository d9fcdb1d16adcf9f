"""Single-flight in words: ask for a name, get one of three answers, hold a flight while you work.

No lock server is known here. The lock saves work and nothing else; the epoch protects data (O1), so every caller must
also be right with a lock that always says yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from weft_tasks.locks.token import Holder


class FlightOutcome(StrEnum):
    """The answer to `acquire`. Unknown is neither yes nor no (O8)."""

    ACQUIRED = "acquired"
    HELD_BY_ANOTHER = "held-by-another"
    UNKNOWN = "unknown"
    """The lock server did not answer, or refused to write. Nobody is known to hold the lock."""


class FlightState(StrEnum):
    """What is known, right now, about a lock that was acquired."""

    HELD = "held"
    RELEASED = "released"
    LOST = "lost"
    """Not ours any more, or its deadline is over. Never turns to held again."""
    UNKNOWN = "unknown"
    """The last answer is missing or has run out. An extension may still turn it to held or lost."""


class Flight(Protocol):
    """A lock that was acquired, kept alive until it is released or its pass's deadline is over. Never raises."""

    @property
    def state(self) -> FlightState:
        """What is known now. Asks no server, so it costs nothing to look before every item."""

    @property
    def is_ours(self) -> bool:
        """Whether the lock is known to be held. If you cannot tell, you do not hold it."""

    @property
    def reason(self) -> str | None:
        """Why the state is lost or unknown, for people."""

    def release(self) -> FlightState:
        """Let the name go if it is still ours: released, lost or unknown. A second call repeats the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A lock as it is found from outside."""

    holder: Holder
    expires_in: timedelta | None
    """How long the key still lives by the server's clock; None if nobody gave it an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """The answer to `acquire`. As a context manager it releases the flight, if there is one, whatever happened."""

    outcome: FlightOutcome
    flight: Flight | None = None
    """Set exactly when acquired."""
    held_by: Holding | None = None
    """Set when another holds the lock and could be read; the holder may let go before anybody looks."""
    reason: str | None = None
    """What the server said, or did not say, when something is unknown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.flight is not None:
            self.flight.release()


class SingleFlight(Protocol):
    """One holder per name at a time, as far as the lock server can tell. Never waits for another holder."""

    def acquire(self, name: str, token: str) -> Acquisition:
        """Take `name` under a token of `mint_token`, atomically. A server that fails is an outcome, not raised."""

    def holder(self, name: str) -> Holding | None:
        """Who holds `name`, without taking it; None if it is free. LockUnavailable if the server gave no answer."""
