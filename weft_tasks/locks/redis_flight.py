"""A lock held in Redis: what is known about it, how it is extended, how it ends."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from redis.exceptions import LockNotOwnedError
from redis.lock import Lock

from weft_tasks.locks.server import NO_ANSWER, reason_of
from weft_tasks.locks.single_flight import FlightState
from weft_tasks.locks.times import FlightTimes
from weft_tasks.passes.clock import Clock

_TAKEN_AWAY = "the key is gone or carries another's token"
_SHORTEST_EXTENSION = 0.001  # Redis counts milliseconds, and an expiry of 0 would delete the key.


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightSeconds:
    """FlightTimes for a monotonic clock, worked out once for all flights."""

    ttl: float
    pause: float
    deadline: float

    @classmethod
    def of(cls, times: FlightTimes) -> FlightSeconds:
        return cls(
            ttl=times.lock_ttl.total_seconds(),
            pause=times.extend_every.total_seconds(),
            deadline=times.pass_deadline.total_seconds(),
        )


class RedisFlight:
    """A Flight over redis-py's Lock. Every step on the server is one script that compares the token first.

    Times are monotonic seconds of this process, counted from before each question was sent. The server counts from
    later on, so a key that nobody deletes never ends before this object says that it may have.
    """

    _state = FlightState.HELD
    _reason: str | None = None
    _has_ended = False

    def __init__(
        self,
        lock: Lock,
        *,
        times: FlightSeconds,
        acquired_at: float,
        clock: Clock,
        let_go: Callable[[RedisFlight], None],
    ) -> None:
        self._lock = lock
        self._clock = clock
        self._let_go = let_go
        self._times = times
        self._deadline = acquired_at + times.deadline
        self._held_until = acquired_at + times.ttl
        self._extend_at = acquired_at + times.pause
        self._pid = os.getpid()
        self._turn = threading.Lock()  # An extension and the release take turns; nobody else waits for it.

    @property
    def state(self) -> FlightState:
        return self._look()[0]

    @property
    def is_ours(self) -> bool:
        return self.state is FlightState.HELD

    @property
    def reason(self) -> str | None:
        return self._look()[1]

    def release(self) -> FlightState:
        if self._is_inherited():
            return FlightState.LOST
        self._let_go(self)
        with self._turn:
            if not self._has_ended:
                self._end_on_server()
            return self._state

    def next_extension_at(self) -> float:
        """Infinity once the flight has ended or its key already lives up to the deadline."""
        is_needed = not self._has_ended and self._held_until < self._deadline and self._extend_at < self._deadline
        return self._extend_at if is_needed else math.inf

    def extend(self) -> None:
        """Give the key a whole lifetime again, or what is left until the deadline. The keeper's step; never raises."""
        if self._is_inherited():
            return
        with self._turn:
            now = self._clock.monotonic()
            life = min(self._times.ttl, self._deadline - now)
            if self._has_ended or life < _SHORTEST_EXTENSION:
                return
            self._extend_at = now + self._times.pause
            try:
                self._lock.extend(life, replace_ttl=True)
            except LockNotOwnedError:
                self._end(FlightState.LOST, _TAKEN_AWAY)
            except Exception as error:  # not only NO_ANSWER: a defect would end the thread that keeps all flights
                self._state, self._reason = FlightState.UNKNOWN, reason_of(error)
            else:
                self._held_until = now + life
                self._state, self._reason = FlightState.HELD, None

    def _end_on_server(self) -> None:
        try:
            self._lock.release()
        except LockNotOwnedError:
            self._end(FlightState.LOST, _TAKEN_AWAY)
        except NO_ANSWER as error:
            self._end(FlightState.UNKNOWN, reason_of(error))
        else:
            self._end(FlightState.RELEASED, None)

    def _end(self, state: FlightState, reason: str | None) -> None:
        self._state, self._reason, self._has_ended = state, reason, True

    def _look(self) -> tuple[FlightState, str | None]:
        if self._is_inherited():
            return FlightState.LOST, f"taken by process {self._pid}; this is its child {os.getpid()}"
        if self._has_ended:
            return self._state, self._reason
        now = self._clock.monotonic()
        if now >= self._deadline:
            return FlightState.LOST, "the pass has outlived its deadline, and no lock lives longer"
        if now >= self._held_until:
            return FlightState.UNKNOWN, self._reason or "the key was not extended in time"
        return self._state, self._reason

    def _is_inherited(self) -> bool:
        """A fork copies the token, but the lock stays the parent's; its locks may be copied in a locked state."""
        return self._pid != os.getpid()
