"""The databases of the race tests: one arena for each backend, kept for the whole run and renewed for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from weft_tasks.store.database import Database
from weft_tasks.store.schema import migrate
from weft_tasks.testing.databases import Databases
from weft_tasks.testing.servers import Redis, postgres_from_environment, redis_from_environment

from .arena import Arena

IN_STEPS = "postgresql-in-steps"
RACE_BACKENDS = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def race_postgres() -> Iterator[Databases]:
    """A PostgreSQL in which databases can be created."""
    with postgres_from_environment(durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def race_redis() -> Iterator[Redis]:
    with redis_from_environment() as server:
        yield server


@pytest.fixture(scope="session")
def race_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """By the name of a backend, the URL of a new database without a schema."""

    def create(backend: str) -> str:
        if backend == "sqlite":
            return f"sqlite:///{tmp_path_factory.mktemp('race') / 'weft.sqlite3'}"
        server: Databases = request.getfixturevalue("race_postgres")
        return _quick_to_see_deadlocks(server, server.create_database())

    return create


@pytest.fixture(scope="session")
def arena_on(race_url: Callable[[str], str]) -> Iterator[Callable[[str], Arena]]:
    """By the name of a backend, this process's arena there, as it was left."""
    with ExitStack() as closing:

        @cache
        def build(backend: str) -> Arena:
            url = race_url(backend)
            database = Database(url)
            migrate(database)
            database.dispose()
            arena = Arena(url, in_steps=backend == IN_STEPS)
            closing.callback(arena.close)
            return arena

        yield build


@pytest.fixture(params=[*RACE_BACKENDS, IN_STEPS])
def arena(request: pytest.FixtureRequest, arena_on: Callable[[str], Arena]) -> Arena:
    """An arena with an empty store, on each backend in turn, and on PostgreSQL with each verb in its several statements
    as well."""
    built = arena_on(request.param)
    built.renew()
    return built


@pytest.fixture
def postgres_arena(arena_on: Callable[[str], Arena]) -> Arena:
    """For what can happen on PostgreSQL alone."""
    built = arena_on("postgresql")
    built.renew()
    return built


def _quick_to_see_deadlocks(server: Databases, url: str) -> str:
    """A deadlock that a schedule runs into is broken after 50 ms instead of 1 s, if we are allowed to say so."""
    database = Database(server.url())
    try:
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"ALTER DATABASE \"{make_url(url).database}\" SET deadlock_timeout = '50ms'")
    except DBAPIError:
        pass
    finally:
        database.dispose()
    return url
