"""Stores to measure on: a PostgreSQL of their own with durable commits, or an SQLite file, with parked workflows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url, text

from weft_tasks.settings import Settings
from weft_tasks.store import Store, schema
from weft_tasks.testing.databases import libpq_url
from weft_tasks.testing.local_postgres import LocalPostgres

TYPE = "parked"
POSTGRES = {"shared_buffers": "256MB", "max_wal_size": "4GB", "checkpoint_timeout": "30min", "autovacuum": "off"}
"""Autovacuum and checkpoints would fall on one side of a pair. What they matter for is measured with them on."""

_PARKED = """
INSERT INTO weft_workflows (
    id, type, version, bucket, run_id, status, engine_id, epoch, turn, attempt, due, dispatches, unanswered,
    attempt_open, begun, tries, inbox, waits, waiting_since_at, cancelling, input, state, created_at, updated_at
)
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count)
SELECT
    'workflow-' || (10000000 + i), :type, 1, i % 1024, 'run-' || (10000000 + i), 'running', 'n' || (i % :engines),
    1, 1, 1, :no, 0, 0, :no, 0, 0, 0, '[["go", null]]', 0, :no, '{}', '{}', 0, 0
FROM n
"""
_HELD = "UPDATE weft_workflows SET engine_id = :engine WHERE engine_id = 'n' || :number"
_CLAIMED = """
INSERT INTO weft_claims (workflow_id, engine_id, bucket, epoch, claimed_at, expires_at)
SELECT id, engine_id, bucket, epoch, 0, 0 FROM weft_workflows ORDER BY id
"""


@contextmanager
def postgres(**settings: str) -> Iterator[LocalPostgres]:
    with LocalPostgres(durable=True, settings={**POSTGRES, **settings}) as server:
        yield server


@contextmanager
def sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        yield f"sqlite:///{Path(folder) / 'weft.sqlite3'}"


def open_store(url: str, **settings: Any) -> Store:
    """A migrated store whose statements may take as long as they do: a benchmark says how long, it does not give up."""
    wanted = {"statement_timeout": timedelta(seconds=9), "claim_ttl": timedelta(seconds=60), **settings}
    store = Store.open(Settings(database_url=url, **wanted))
    schema.migrate(store.database)
    return store


def fill(store: Store, count: int, *, engines: int = 3) -> list[str]:
    """Empty the store and park `count` workflows on as many live engines; returns the engines' ids."""
    ids = [f"engine-{number}" for number in range(engines)]
    with store.database.transaction() as connection:
        for table in ("workflows", "claims", "signals", "updates", "history", "engines", "engine_types"):
            connection.execute(text(f"DELETE FROM weft_{table}"))
    for number, engine_id in enumerate(ids):
        store.engines.register(engine_id, node=f"e{number}", host="here", pid=1, types=[TYPE], slots=8)
    park(store, ids, count, type_name=TYPE)
    return ids


def park(store: Store, engine_ids: Sequence[str], count: int, *, type_name: str) -> None:
    """Rows as parked workflows leave them, the engines holding them in turn."""
    values = {"count": count, "type": type_name, "engines": len(engine_ids), "no": False}
    with store.database.transaction() as connection:
        if not store.database.is_sqlite:
            connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text(_PARKED), values)
        for number, engine_id in enumerate(engine_ids):
            connection.execute(text(_HELD), {"number": str(number), "engine": engine_id})
        connection.execute(text(_CLAIMED))
    tidy(store)


def tidy(store: Store) -> None:
    """What autovacuum would have done by now."""
    if store.database.is_sqlite:
        with store.database.transaction() as connection:
            connection.execute(text("ANALYZE"))
        return
    with plain_connection(store) as connection:
        connection.execute("VACUUM (ANALYZE)")


@contextmanager
def plain_connection(store: Store) -> Iterator[psycopg.Connection[Any]]:
    """The driver's own, for the reference side."""
    url = store.database.engine.url.render_as_string(hide_password=False)
    with psycopg.connect(libpq_url(str(make_url(url))), autocommit=True) as connection:
        yield connection
