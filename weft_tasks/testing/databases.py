"""Fresh databases in a PostgreSQL server, for tests that each want their own."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod

import psycopg
from psycopg import sql
from sqlalchemy import make_url


class Databases(ABC):
    """The databases of one PostgreSQL server, whoever runs it."""

    @abstractmethod
    def url(self, dbname: str | None = None) -> str:
        """SQLAlchemy's URL of a database, by default of the one that always exists."""

    def create_database(self, name: str | None = None, *, template: str = "template1") -> str:
        """Create a database and return its URL. Without a name it gets one that is not in use.

        A `template` with the schema in it makes this a copy of files, much faster than a migration; nobody may be
        connected to the template meanwhile.
        """
        name = name or f"weft_{uuid.uuid4().hex[:12]}"
        self._run(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, and throw out whoever is connected."""
        self._run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _run(self, statement: sql.Composed) -> None:
        """These statements refuse to run inside a transaction."""
        with psycopg.connect(libpq_url(self.url()), autocommit=True) as connection:
            connection.execute(statement)


def libpq_url(url: str) -> str:
    """SQLAlchemy's URL as libpq and psycopg know it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
