"""Python's cycle collector, kept from going over a large pass again and again."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SELDOM: Final = 50_000
"""New objects between two looks of the collector: what else the process leaves behind is still found in time."""


class Collector:
    """The collector of this process, for its passes. They may overlap; the last one puts back what was.

    A pass over 100,000 claims makes several hundred thousand small objects that are in no cycle. By default the
    collector looks at them after every 700, and whenever they have become a quarter more, at all others in the process
    as well: a third of the processor time of such a pass, with nothing found.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passes = 0
        self._usual = gc.get_threshold()

    @contextmanager
    def seldom(self) -> Iterator[None]:
        """Collect seldom until the pass is over."""
        with self._lock:
            if not self._passes:
                self._usual = gc.get_threshold()
                if 0 < self._usual[0] < SELDOM:
                    gc.set_threshold(SELDOM, *self._usual[1:])
            self._passes += 1
        try:
            yield
        finally:
            with self._lock:
                self._passes -= 1
                if not self._passes:
                    gc.set_threshold(*self._usual)
