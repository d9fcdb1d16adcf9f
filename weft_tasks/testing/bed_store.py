"""The stores of beds: real ones, each on a SQLite file that need not survive anything."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import event

from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.store.database import Database
from weft_tasks.store.schema import migrate

TIME_OF_A_NEW_BED = ManualClock().moment


class BedStores:
    """Empty stores, each lent to one bed at a time.

    One file is migrated, and copied for every loan. A store that comes back is lent again, over a fresh copy: the
    statements that it has compiled are what a bed spends most of its time on.
    """

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="weft-beds-")
        self._idle: dict[Settings, list[tuple[Store, ManualClock, Path]]] = {}
        self._made = 0

    def close(self) -> None:
        """Delete every file."""
        self._folder.cleanup()

    @contextmanager
    def lend(self, settings: Settings) -> Iterator[tuple[Store, ManualClock]]:
        """An empty store under these settings, but for the database's URL, and its clock, for the context."""
        idle = self._idle.setdefault(settings, [])
        store, clock, file = idle.pop() if idle else self._make(settings)
        shutil.copyfile(self._template, file)
        try:
            yield store, clock
        finally:
            store.database.dispose()
            for name in (file, f"{file}-wal", f"{file}-shm"):
                with suppress(FileNotFoundError):
                    Path(name).unlink()
            clock.advance(TIME_OF_A_NEW_BED - clock.moment)
            idle.append((store, clock, file))

    @cached_property
    def _template(self) -> Path:
        file = Path(self._folder.name) / "template.sqlite3"
        database = Database(f"sqlite:///{file}")
        migrate(database)
        database.dispose()
        return file

    def _make(self, settings: Settings) -> tuple[Store, ManualClock, Path]:
        self._made += 1
        file, clock = Path(self._folder.name) / f"bed-{self._made}.sqlite3", ManualClock()
        store = Store.open(replace(settings, database_url=f"sqlite:///{file}"), clock=clock)
        event.listen(store.database.engine, "connect", _do_not_wait_for_the_disk)
        return store, clock, file


@contextmanager
def one_store(settings: Settings) -> Iterator[tuple[Store, ManualClock]]:
    """A store for a bed that nobody else lends one."""
    stores = BedStores()
    try:
        with stores.lend(settings) as lent:
            yield lent
    finally:
        stores.close()


def _do_not_wait_for_the_disk(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous = OFF")
