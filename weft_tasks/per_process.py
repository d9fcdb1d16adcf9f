"""Things of which every process needs its own: threads, connections, counts that are not yet written."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class PerProcess(Generic[Made]):
    """One thing for each process, made when it is first asked for: a fork starts with nothing of its parent's.

    Takes no lock, which a fork could inherit taken. Two threads that ask first at the same time may both make one, of
    which one is dropped unused: making it must do nothing that has to be undone.
    """

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._made: dict[int, Made] = {}

    def get(self) -> Made:
        pid = os.getpid()
        found = self._made.get(pid)
        return self._made.setdefault(pid, self._make()) if found is None else found
