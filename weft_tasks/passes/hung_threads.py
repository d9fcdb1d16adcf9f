"""The threads that earlier runs of a pool left behind, each still inside a call that has not come back.

A thread cannot be stopped from outside. What can be done is to count them, to keep later runs away from what hangs, and
to refuse once there are too many.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Mapping

from weft_tasks.errors import TooManyHungThreads


class HungThreads:
    """The left-over threads of one pool, with the keys of the items each has in hand. One that ends is forgotten."""

    def __init__(self, pool: str, limit: int) -> None:
        self._pool, self._limit = pool, limit
        self._lock = threading.Lock()
        self._keys: dict[threading.Thread, frozenset[Hashable]] = {}

    def add(self, left_over: Mapping[threading.Thread, frozenset[Hashable]]) -> None:
        with self._lock:
            self._keys.update(left_over)

    def count(self) -> int:
        return len(self._still_alive())

    def hanging(self) -> Hanging:
        """What hangs now. Raises TooManyHungThreads if the threads are as many as the limit."""
        keys = self._still_alive()
        if len(keys) >= self._limit:
            raise TooManyHungThreads(self._pool, len(keys), self._limit)
        return Hanging(keys)

    def _still_alive(self) -> tuple[frozenset[Hashable], ...]:
        with self._lock:
            self._keys = {thread: keys for thread, keys in self._keys.items() if thread.is_alive()}
            return tuple(self._keys.values())


class Hanging:
    """The items that hung when a run began: some in a call of their own, the others in a slice with neighbours."""

    def __init__(self, calls: Iterable[frozenset[Hashable]]) -> None:
        calls = tuple(calls)
        self._all: frozenset[Hashable] = frozenset().union(*calls)
        self._alone: frozenset[Hashable] = frozenset().union(*(keys for keys in calls if len(keys) == 1))

    def refuse_item(self, key: Hashable) -> None:
        """Raises TimeoutError if a call for this very item hangs: another one would hang beside it."""
        if key in self._alone:
            raise TimeoutError("the call an earlier pass made for it still hangs")

    def refuse_slice(self, keys: Iterable[Hashable]) -> None:
        """Raises TimeoutError if one of these items hangs: it would take the whole slice with it again."""
        if self._all and not self._all.isdisjoint(keys):
            raise TimeoutError("an item of it still hangs in a call of an earlier pass")
