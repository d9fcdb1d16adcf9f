"""Reading the store for a scrape, within a time: a store that hangs must not hang whoever scrapes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft_tasks.errors import WeftError
from weft_tasks.store import Store
from weft_tasks.store.counters import Series
from weft_tasks.store.gauges import FleetGauges
from weft_tasks.store.overview import Homeless
from weft_tasks.store.pass_marks import PassMark


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReading:
    """What the store has for one scrape."""

    gauges: FleetGauges
    counters: Mapping[Series, float]
    passes: Mapping[str, PassMark]
    homeless: Sequence[Homeless]
    overdue_debts: int


class FleetReader:
    """One reading at a time; those who ask meanwhile get the same one. While one hangs, no other begins."""

    def __init__(self, store: Store, patience: float) -> None:
        self._store = store
        self._patience = patience
        self._lock = threading.Lock()
        self._running: _Try | None = None

    def read(self) -> FleetReading | str:
        """The reading, or why there is none."""
        with self._lock:
            if self._running is None or self._running.is_done.is_set():
                self._running = _Try(self._store)
                threading.Thread(target=self._running.run, name="weft-reading", daemon=True).start()
            running = self._running
        if not running.is_done.wait(self._patience):
            return f"the store did not answer within {self._patience:g} s"
        return running.outcome


class _Try:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_done = threading.Event()
        self.outcome: FleetReading | str = ""

    def run(self) -> None:
        try:
            self.outcome = FleetReading(
                gauges=self._store.gauges.read(),
                counters=self._store.counters.read(),
                passes=self._store.pass_marks.read_all(),
                homeless=self._store.overviews.homeless(),
                overdue_debts=self._store.overviews.overdue_debts(),
            )
        except WeftError as error:
            self.outcome = str(error)
        except Exception as error:
            self.outcome = f"{type(error).__name__}: {error}"
        finally:
            self.is_done.set()
