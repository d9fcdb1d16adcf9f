"""The servers of a test: the ones that the environment names, else local ones. The one place that decides."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import make_url

from weft_tasks.testing.databases import Databases
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.local_redis import LocalRedis

__all__ = [
    "GivenPostgres",
    "GivenRedis",
    "LocalPostgres",
    "LocalRedis",
    "Redis",
    "postgres_from_environment",
    "redis_from_environment",
]

BROKER_VARIABLE = "BROKER_URL"
DATABASE_VARIABLE = "DATABASE_URL"


class Redis(Protocol):
    """A Redis server, whoever runs it."""

    def url(self, database: int = 0) -> str: ...


class GivenRedis:
    """A Redis that somebody else runs: it can be used, not killed or restarted."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)

    def url(self, database: int = 0) -> str:
        return self._url.set(database=str(database)).render_as_string(hide_password=False)


class GivenPostgres(Databases):
    """A PostgreSQL that somebody else runs, by the URL of a database whose user may create others."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql+psycopg")
        self._created: list[str] = []

    def url(self, dbname: str | None = None) -> str:
        url = self._url if dbname is None else self._url.set(database=dbname)
        return url.render_as_string(hide_password=False)

    def create_database(self, name: str | None = None, *, template: str = "template1") -> str:
        created = super().create_database(name, template=template)
        self._created.append(str(make_url(created).database))
        return created

    def drop_created(self) -> None:
        """Drop the databases created through this object; the server is not ours to leave things in."""
        while self._created:
            self.drop_database(self._created.pop())


@contextmanager
def redis_from_environment(environ: Mapping[str, str] = os.environ) -> Iterator[LocalRedis | GivenRedis]:
    """The Redis of BROKER_URL if that is one, else a local one for as long as the context lasts."""
    url = environ.get(BROKER_VARIABLE, "")
    if url.startswith(("redis://", "rediss://")):
        yield GivenRedis(url)
        return
    with LocalRedis() as server:
        yield server


@contextmanager
def postgres_from_environment(
    environ: Mapping[str, str] = os.environ, *, durable: bool = True
) -> Iterator[LocalPostgres | GivenPostgres]:
    """The PostgreSQL of DATABASE_URL if that is one (a SQLite URL is not), else a local one for the context."""
    url = environ.get(DATABASE_VARIABLE, "")
    if not url.startswith("postgres"):
        with LocalPostgres(durable=durable) as server:
            yield server
        return
    given = GivenPostgres(url)
    try:
        yield given
    finally:
        given.drop_created()
