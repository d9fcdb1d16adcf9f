"""From a process's tally into the store: at most once an interval, and no statement when nothing was counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta

from weft_tasks.errors import WeftError
from weft_tasks.lines import write
from weft_tasks.metrics.tally import Tally
from weft_tasks.per_process import PerProcess
from weft_tasks.store.counters import Series

logger = logging.getLogger("weft_tasks.metrics")

Add = Callable[[Mapping[Series, float]], bool]


class Flusher:
    """Writes a tally with `add`, the store's verb, which says whether the rows have it.

    What certainly was not written is kept for the next time. What may have been written is not written again: a count
    that is missed once in a while is better than one that is doubled.
    """

    def __init__(self, tally: Tally, add: Add, interval: timedelta) -> None:
        self._tally = tally
        self._add = add
        self._writer = PerProcess(lambda: _Writer(self.flush, tally.has_any, interval.total_seconds()))

    def flush(self) -> None:
        """Write now what was counted. Never raises for the store."""
        counted = self._tally.take()
        if not counted:
            return
        try:
            if not self._add(counted):
                note = f"{len(counted)} counts may be missing"
                write(logger, logging.INFO, "weft.counters.unknown", note=note)
        except WeftError:
            self._tally.put_back(counted)

    def soon(self) -> None:
        """See to it that what was counted is written within an interval, whatever this process does until then.

        By a thread, which starts with the first count. Not for a process that forks: its children would inherit the
        locks that the thread holds.
        """
        if self._tally.has_any():
            self._writer.get().wake()


class _Writer:
    """The thread of one process."""

    def __init__(self, flush: Callable[[], None], has_any: Callable[[], bool], interval: float) -> None:
        self._flush = flush
        self._has_any = has_any
        self._interval = interval
        self._is_wanted = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        self._is_wanted.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="weft-counters", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._is_wanted.wait()
            self._is_wanted.clear()
            pause.wait(self._interval)
            try:
                self._flush()
            except Exception:
                write(logger, logging.ERROR, "weft.counters.failed", exc_info=True)
            if self._has_any():
                self._is_wanted.set()
