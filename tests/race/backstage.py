"""Backstage: what the arena asks of the database and does to it, on a connection of its own that no actor sees.

Rows are read and put back in one round trip, because it happens around every schedule; and the database is asked who
waits for whose lock, which no actor can say of itself while it waits.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Protocol

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from weft_tasks.store.tables import metadata
from weft_tasks.testing.databases import libpq_url

from .actor import Actor
from .footprint import BEGINS_WRITING
from .rows import Rows

TABLES = tuple(table.name for table in metadata.sorted_tables)
_EPOCHS = "SELECT id, epoch FROM weft_workflows"


class Backstage(Protocol):
    """The same on each backend."""

    def blocked(self, moving: Sequence[Actor], everybody: Sequence[Actor]) -> set[str]:
        """The names of those among `moving` that wait for a lock of another actor."""

    def read(self) -> Rows:
        """All that is committed."""

    def epochs(self) -> dict[str, int]:
        """The committed epoch of each workflow."""

    def put_back(self, rows: Rows, tables: Iterable[str] = TABLES) -> None:
        """Make the rows of these tables the ones that `rows` has."""

    def locked(self, table: str, column: str) -> set[str]:
        """The rows that another transaction has locked or changed, by a column."""

    def execute(self, statement: str) -> None: ...

    def close(self) -> None: ...


class PostgresBackstage:
    """Asks PostgreSQL's lock manager, and moves rows as JSON."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.ClientCursor(psycopg.connect(libpq_url(url), autocommit=True))
        # What an earlier play left locked fails the next one instead of hanging it.
        self._connection.execute("SET lock_timeout = '5s'")
        parts = [f"'{table}', (SELECT coalesce(json_agg(t), '[]') FROM {table} t)" for table in TABLES]
        self._read = f"SELECT json_build_object({', '.join(parts)})"

    def blocked(self, moving: Sequence[Actor], everybody: Sequence[Actor]) -> set[str]:
        name_of = {actor.backend_pid: actor.name for actor in moving if actor.backend_pid is not None}
        others = [actor.backend_pid for actor in everybody if actor.backend_pid is not None]
        rows = self._connection.execute(
            "SELECT pid FROM unnest(%s::int[]) AS pid WHERE pg_blocking_pids(pid) && %s::int[]", [list(name_of), others]
        )
        return {name_of[pid] for (pid,) in rows}

    def read(self) -> Rows:
        row = self._connection.execute(self._read).fetchone()
        assert row is not None
        return Rows({name: tuple(rows) for name, rows in row[0].items()})

    def epochs(self) -> dict[str, int]:
        return dict(self._connection.execute(_EPOCHS).fetchall())

    def put_back(self, rows: Rows, tables: Iterable[str] = TABLES) -> None:
        statements = [
            sql.SQL("DELETE FROM {0}; INSERT INTO {0} SELECT * FROM json_populate_recordset(NULL::{0}, {1})").format(
                sql.Identifier(table), sql.Literal(json.dumps(rows.tables[table]))
            )
            for table in tables
        ]
        if statements:
            # Several statements in one string are one transaction.
            self._connection.execute(sql.SQL("; ").join(statements))

    def locked(self, table: str, column: str) -> set[str]:
        everything = self._connection.execute(f"SELECT {column} FROM {table}").fetchall()
        free = self._connection.execute(f"SELECT {column} FROM {table} FOR UPDATE SKIP LOCKED").fetchall()
        return {value for (value,) in everything} - {value for (value,) in free}

    def execute(self, statement: str) -> None:
        self._connection.execute(statement)

    def close(self) -> None:
        self._connection.connection.close()


class SQLiteBackstage:
    """A file has one writer: whoever begins to write meanwhile gets SQLITE_BUSY, and asks again and again."""

    def __init__(self, url: str) -> None:
        self._connection = sqlite3.connect(str(make_url(url).database), isolation_level=None, timeout=5)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA synchronous = OFF")

    def blocked(self, moving: Sequence[Actor], everybody: Sequence[Actor]) -> set[str]:
        return {
            actor.name
            for actor in moving
            if actor.step == BEGINS_WRITING and any(other.has_write_lock for other in everybody if other is not actor)
        }

    def read(self) -> Rows:
        self._connection.execute("BEGIN")
        tables = {
            table: tuple(dict(row) for row in self._connection.execute(f"SELECT * FROM {table}")) for table in TABLES
        }
        self._connection.execute("COMMIT")
        return Rows(tables)

    def epochs(self) -> dict[str, int]:
        return {row["id"]: row["epoch"] for row in self._connection.execute(_EPOCHS)}

    def put_back(self, rows: Rows, tables: Iterable[str] = TABLES) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for table in tables:
            self._connection.execute(f"DELETE FROM {table}")
            for row in rows.tables[table]:
                columns, values = ", ".join(row), ", ".join("?" * len(row))
                self._connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({values})", tuple(row.values()))
        self._connection.execute("COMMIT")

    def locked(self, table: str, column: str) -> set[str]:
        raise NotImplementedError("SQLite locks no rows")

    def execute(self, statement: str) -> None:
        self._connection.execute(statement)

    def close(self) -> None:
        self._connection.close()
