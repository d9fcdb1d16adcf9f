"""A database as a file of SQL: as `sqlite3 .dump` and `pg_dump` write it, with the schema as it was."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import make_url

from weft_tasks.testing.programs import find_postgres_bin

Rows = dict[str, list[dict[str, Any]]]


def dump(url: str) -> str:
    """Schema and data of the database."""
    if path := _sqlite_path(url):
        with closing(sqlite3.connect(path)) as connection:
            return "\n".join(connection.iterdump()) + "\n"
    words = ["--inserts", "--no-owner", "--no-privileges", "--no-comments", _libpq(url)]
    dumped = subprocess.run(
        [find_postgres_bin() / "pg_dump", *words], env=_environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    # Commands of psql, of which newer versions make a secret anew each time.
    return "".join(line for line in dumped.stdout.splitlines(keepends=True) if not line.startswith("\\"))


def load(url: str, sql: str) -> None:
    """Into an empty database."""
    if path := _sqlite_path(url):
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(sql)
        return
    psql = [find_postgres_bin() / "psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", _libpq(url)]
    subprocess.run(psql, env=_environment(), input=sql, stdout=subprocess.PIPE, text=True, check=True)


def rows_of(url: str) -> Rows:
    """Every row of our tables but that of the version, by column."""
    engine = create_engine(url)
    with engine.connect() as connection:
        tables = [name for name in inspect(connection).get_table_names() if name != "weft_schema_version"]
        rows = {
            table: [dict(row) for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()]
            for table in tables
        }
    engine.dispose()
    return {table: sorted(found, key=repr) for table, found in rows.items()}


def _sqlite_path(url: str) -> Path | None:
    parsed = make_url(url)
    return Path(str(parsed.database)) if parsed.get_backend_name() == "sqlite" else None


def _libpq(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}
