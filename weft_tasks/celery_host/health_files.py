"""The files by which a supervisor sees how an engine is, with `find` and without starting Python.

Their age says it, not what is in them: nothing in them names a process, whose number another may have by now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from weft_tasks.errors import SettingsError
from weft_tasks.lines import Field, write

logger = logging.getLogger("weft_tasks.engine")

ALIVE = "alive"
"""Touched before each heartbeat is tried: its thread runs, whatever the store does."""
READY = "ready"
"""Touched after each heartbeat that the store has taken; removed by one that it has not, and by a drain."""


class HealthFiles:
    """The two files of one engine, in a folder that no other engine writes to; nothing without a folder."""

    def __init__(self, folder: str | None) -> None:
        """Makes the folder, and removes what an engine before this one left. Raises SettingsError if it cannot."""
        self._folder = None if folder is None else Path(folder)
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._remove(READY, ALIVE)
            (self._folder / ALIVE).touch()
            self._remove(ALIVE)
        except OSError as error:
            raise SettingsError(f"weft_health_folder ({folder}) cannot be written to: {error.strerror}") from error

    def beat_begins(self) -> None:
        self._change(lambda folder: (folder / ALIVE).touch())

    def beat_succeeded(self) -> None:
        self._change(lambda folder: (folder / READY).touch())

    def is_not_ready(self) -> None:
        self._change(lambda _folder: self._remove(READY))

    def has_stopped(self) -> None:
        self._change(lambda _folder: self._remove(READY, ALIVE))

    def _remove(self, *names: str) -> None:
        for name in names:
            if self._folder is not None:
                (self._folder / name).unlink(missing_ok=True)

    def _change(self, change: Callable[[Path], None]) -> None:
        """A file that cannot be written must not keep the heart from beating."""
        if self._folder is None:
            return
        try:
            change(self._folder)
        except OSError as error:
            fields: dict[str, Field] = {"folder": str(self._folder), "error": error.strerror}
            write(logger, logging.WARNING, "weft.health.failed", fields)
