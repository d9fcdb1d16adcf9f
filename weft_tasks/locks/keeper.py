"""One daemon thread per process that extends the locks which are held for long."""

from __future__ import annotations

import math
import threading
import time
from typing import Protocol

from weft_tasks.passes.clock import Clock

THREAD_NAME = "weft-lock-keeper"


class Kept(Protocol):
    """What a keeper extends."""

    def next_extension_at(self) -> float:
        """Monotonic time of the next extension; infinity when there is none to come."""

    def extend(self) -> None:
        """Extend once. Must not raise, and may block for as long as its server is waited for."""


class Keeper:
    """Extends each kept flight when it is due. Of one process only: a forked child has no such thread.

    All flights of a keeper have the same time between extensions, so a new one is never due before an older one, and
    nobody needs to wake the thread. A pass that ends within that time costs an entry in a set: the thread is shared,
    sleeps until the earliest extension that was ever due, and ends when it wakes up to nothing.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.RLock()
        self._kept: set[Kept] = set()
        self._thread: threading.Thread | None = None

    def keep(self, flight: Kept) -> None:
        """Extend this flight from now on, until it is let go or has no extension left."""
        with self._guard:
            self._kept.add(flight)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()

    def let_go(self, flight: Kept) -> None:
        """No more extensions begin for this flight; one that is under way may still end after this returns."""
        with self._guard:
            self._kept.discard(flight)

    def extend_due(self) -> None:
        """Extend every flight whose time has come. The thread's step, and a test's tick on demand."""
        with self._guard:
            now = self._clock.monotonic()
            due = [flight for flight in self._kept if flight.next_extension_at() <= now]
        for flight in due:  # outside the guard: a silent server must not hold up those who acquire and release
            flight.extend()

    def _run(self) -> None:
        while (pause := self._until_next()) is not None:
            time.sleep(pause)
            self.extend_due()

    def _until_next(self) -> float | None:
        """Seconds to the next extension; None if none is left, and then the thread is no longer the keeper's."""
        with self._guard:
            next_at = min((flight.next_extension_at() for flight in self._kept), default=math.inf)
            if next_at == math.inf:
                self._thread = None  # in the same hold of the guard, so that the next flight starts a new thread
                return None
            return max(0.0, next_at - self._clock.monotonic())
