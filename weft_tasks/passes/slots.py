"""Who runs what inside one process: one slot per pass for its ticks, and a call that overlapping callers share."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Generic, Literal, TypeAlias, TypeVar

from weft_tasks.results import PassKind

T = TypeVar("T")
Slot: TypeAlias = PassKind | Literal["run-once"]


class Slots:
    """Which slots are in use, by which threads. A tick takes its slot or is skipped; an explicit run just enters."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._in_use: list[tuple[Slot, int]] = []
        self._skipped: Counter[PassKind] = Counter()
        self._takes_ticks = False

    def take_ticks(self, takes_ticks: bool) -> None:
        """A tick that comes while none are taken, because it was on its way when they were cancelled, does nothing."""
        with self._changed:
            self._takes_ticks = takes_ticks

    def tick(self, kind: PassKind, run: Callable[[], object]) -> None:
        """Runs the pass, unless its slot is in use: then the tick is skipped and counted."""
        with self._changed:
            if not self._takes_ticks:
                return
            if any(slot == kind for slot, _ in self._in_use):
                self._skipped[kind] += 1
                return
            entry = self._enter(kind)
        try:
            run()
        finally:
            self._leave(entry)

    @contextmanager
    def entered(self, slot: Slot) -> Iterator[None]:
        """The slot is in use meanwhile, whoever else may be in it."""
        entry = self._enter(slot)
        try:
            yield
        finally:
            self._leave(entry)

    def skipped(self) -> Mapping[PassKind, int]:
        with self._changed:
            return dict(self._skipped)

    def wait_until_free(self, timeout: timedelta | None) -> bool:
        """Whether every slot is free, now or within `timeout`. A thread that is in a slot itself does not wait."""
        with self._changed:
            if any(thread == threading.get_ident() for _, thread in self._in_use):
                return False
            return self._changed.wait_for(
                lambda: not self._in_use, None if timeout is None else timeout.total_seconds()
            )

    def _enter(self, slot: Slot) -> tuple[Slot, int]:
        entry = (slot, threading.get_ident())
        with self._changed:
            self._in_use.append(entry)
        return entry

    def _leave(self, entry: tuple[Slot, int]) -> None:
        with self._changed:
            self._in_use.remove(entry)
            self._changed.notify_all()


class SharedCall(Generic[T]):
    """Calls one after the other, never two at once: who calls while a call runs waits for it and gets its result."""

    def __init__(self, name: str, call: Callable[[], T]) -> None:
        self._name, self._call = name, call
        self._lock = threading.Lock()
        self._running: Future[T] | None = None
        self._caller: int | None = None

    def __call__(self) -> T:
        """Raises what the call raises, in every caller; RuntimeError from inside the call, which would await itself."""
        with self._lock:
            running = self._running
            if running is None:
                mine = self._running = Future()
                self._caller = threading.get_ident()
            elif self._caller == threading.get_ident():
                raise RuntimeError(f"{self._name} was called from inside its own run, which it would wait for")
        return self._carry_out(mine) if running is None else running.result()

    def _carry_out(self, mine: Future[T]) -> T:
        try:
            result = self._call()
        except BaseException as error:
            self._forget()
            mine.set_exception(error)
            raise
        self._forget()
        mine.set_result(result)
        return result

    def _forget(self) -> None:
        with self._lock:
            self._running = self._caller = None
