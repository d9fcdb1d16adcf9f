"""Ticks for hosts without a beat: something that calls back at an interval until it is cancelled."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol

from weft_tasks.lines import write

logger: Final = logging.getLogger("weft_tasks.passes")


class Ticks(Protocol):
    def cancel(self) -> None:
        """No tick begins after this; one that has begun goes on. May be called again."""
        ...


class Scheduler(Protocol):
    def every(self, interval: timedelta, callback: Callable[[], None], /) -> Ticks:
        """Calls `callback` at the interval, on any thread, from after this call has returned.

        A callback that is still running should not hold up the next tick: it is the callee who skips and counts.
        """
        ...


class ThreadScheduler:
    """Ticks from daemon threads: one that waits per schedule, and a short-lived one for each tick.

    The first tick comes after a random part of the interval (`jitter`, 0 to 1), so that neither four passes nor
    many hosts that start together tick together for ever.
    """

    def __init__(self, *, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter

    def every(self, interval: timedelta, callback: Callable[[], None], /) -> Ticks:
        ticks = _ThreadTicks(interval, callback)
        ticks.start(interval * self._jitter())
        return ticks


class _ThreadTicks:
    def __init__(self, interval: timedelta, callback: Callable[[], None]) -> None:
        self._interval, self._callback = interval, callback
        self._cancelled = threading.Event()

    def start(self, first: timedelta) -> None:
        threading.Thread(target=self._tick_until_cancelled, args=(first,), name="weft-ticks", daemon=True).start()

    def cancel(self) -> None:
        self._cancelled.set()

    def _tick_until_cancelled(self, wait: timedelta) -> None:
        while not self._cancelled.wait(wait.total_seconds()):
            self._tick()
            wait = self._interval

    def _tick(self) -> None:
        try:
            threading.Thread(target=self._callback, name="weft-tick", daemon=True).start()
        except RuntimeError:  # The process gets no more threads now. Later ticks may.
            write(logger, logging.ERROR, "weft.pass.no-thread", note="a tick was left out", exc_info=True)
