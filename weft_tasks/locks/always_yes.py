"""A lock that always says yes: for race tests, which must pass with it (O1), and for hosts that want no lock server."""

from __future__ import annotations

from weft_tasks.locks.single_flight import Acquisition, FlightOutcome, FlightState, Holding


class AlwaysYes:
    """A SingleFlight without any exclusion: everybody acquires every name at once."""

    def acquire(self, name: str, token: str) -> Acquisition:
        return Acquisition(outcome=FlightOutcome.ACQUIRED, flight=_OpenFlight())

    def holder(self, name: str) -> Holding | None:
        """Always None: nothing is ever held."""
        return None


class _OpenFlight:
    """Held until it is released, and never lost."""

    def __init__(self) -> None:
        self.state = FlightState.HELD
        self.reason: str | None = None

    @property
    def is_ours(self) -> bool:
        return self.state is FlightState.HELD

    def release(self) -> FlightState:
        self.state = FlightState.RELEASED
        return self.state
