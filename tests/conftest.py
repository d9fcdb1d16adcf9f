"""Stores for tests: an empty, migrated one on SQLite and on PostgreSQL for each test, in a few milliseconds.

PostgreSQL is the one that DATABASE_URL names, or a local server of this test process. Each backend has one database
and one `Store` per process, emptied before each test: its compiled statements and connections are worth keeping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest
from sqlalchemy import make_url, text

from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.store.database import Database
from weft_tasks.store.schema import migrate
from weft_tasks.store.tables import metadata
from weft_tasks.testing.databases import Databases
from weft_tasks.testing.servers import postgres_from_environment

BACKENDS = ("sqlite", "postgresql")
FreshStore: TypeAlias = Callable[[str], tuple[Store, ManualClock]]

_FIRST_ROWS = ("weft_store", "weft_clock", "weft_passes")
"""The tables that a new store has rows in."""
_EMPTY = (
    *(f"DELETE FROM {name}" for name in metadata.tables if name not in _FIRST_ROWS),
    "UPDATE weft_store SET epoch_floor = 0",
    "UPDATE weft_clock SET witnessed = 0, advanced_at = 0",
    "UPDATE weft_passes SET began_at = NULL, finished_at = NULL, requested = 0, skipped = 0, runs = 0, "
    "ran_ms = 0, token = NULL",
    "UPDATE weft_passes SET result = NULL",
    "DELETE FROM weft_passes WHERE kind LIKE '%[%'",
)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Databases]:
    """A PostgreSQL in which databases can be created."""
    with postgres_from_environment(durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def migrated_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """By the name of a backend, the URL of this process's migrated database there."""

    @cache
    def url_of(backend: str) -> str:
        if backend == "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'weft.sqlite3'}"
        else:
            url = request.getfixturevalue("postgres_server").create_database()
        database = Database(url)
        migrate(database)
        database.dispose()
        return url

    return url_of


@pytest.fixture(scope="session")
def open_stores(migrated_url: Callable[[str], str]) -> Iterator[FreshStore]:
    """By the name of a backend, this process's store there and its clock."""
    opened: list[Store] = []

    @cache
    def store_on(backend: str) -> tuple[Store, ManualClock]:
        clock = ManualClock()
        opened.append(Store.open(Settings(database_url=migrated_url(backend)), clock=clock))
        return opened[-1], clock

    yield store_on
    for store in opened:
        store.database.dispose()


@pytest.fixture(scope="session")
def fresh_store(open_stores: FreshStore) -> FreshStore:
    """By the name of a backend, its store as if it was new, with the clock that it reads."""

    def empty(backend: str) -> tuple[Store, ManualClock]:
        store, clock = open_stores(backend)
        with store.database.engine.begin() as connection:
            if not store.database.is_sqlite:
                # What an earlier test left locked fails this one instead of hanging it.
                connection.execute(text("SET LOCAL lock_timeout = '5s'"))
            for statement in _EMPTY:
                connection.execute(text(statement))
        clock.advance(ManualClock().moment - clock.moment)
        return store, clock

    return empty


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store_and_clock(backend: str, fresh_store: FreshStore) -> tuple[Store, ManualClock]:
    return fresh_store(backend)


@pytest.fixture
def store(store_and_clock: tuple[Store, ManualClock]) -> Store:
    """An empty store with the default settings (T = 30 s, R = 5 s, G = 10 s), on each backend in turn."""
    return store_and_clock[0]


@pytest.fixture
def clock(store_and_clock: tuple[Store, ManualClock]) -> ManualClock:
    """The clock of `store`: it stands still until a test moves it."""
    return store_and_clock[1]


@pytest.fixture
def empty_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without a schema, on each backend in turn."""
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.sqlite3'}"
        return
    server: Databases = request.getfixturevalue("postgres_server")
    url = server.create_database()
    yield url
    server.drop_database(str(make_url(url).database))
