"""SQLite has one writer at a time and no queue for the others: whoever waits must get its turn all the same."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from weft_tasks.errors import StoreUnavailable
from weft_tasks.store.database import Database, Limits

SECOND = timedelta(seconds=1)
WRITERS = 4
WRITE_S = 0.005
BEATS = 20


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'store.sqlite3'}"
    with Database(url).transaction() as connection:
        connection.execute(text("CREATE TABLE written (by TEXT)"))
    return url


def is_written(database: Database, by: str, seconds: float = 0.0) -> bool:
    """One write that takes so long; False if it did not get its turn."""
    with suppress(StoreUnavailable), database.transaction() as connection:
        connection.execute(text("INSERT INTO written VALUES (:by)"), {"by": by})
        time.sleep(seconds)
        return True
    return False


@contextmanager
def busy_writers(url: str) -> Iterator[None]:
    """The threads of a pass: each writes again as soon as it can, so together they leave no gap."""
    is_over = threading.Event()

    def write() -> None:
        database = Database(url, Limits(lock_wait=SECOND))
        while not is_over.is_set():
            is_written(database, "pass", WRITE_S)
        database.dispose()

    threads = [threading.Thread(target=write) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def test_a_heartbeat_gets_its_turn_among_the_writers_of_a_pass(url: str) -> None:
    """It comes at any moment, which is the middle of somebody's write. A fair share were 20 ms; it may wait 50 times
    that, and when it was left to SQLite's own wait, two out of three did not get their turn."""
    heart = Database(url, Limits(lock_wait=SECOND))
    written = 0
    with busy_writers(url):
        for _ in range(BEATS):
            time.sleep(2 * WRITE_S)
            written += is_written(heart, "heart")
    assert written > 0.7 * BEATS


def test_a_lock_that_is_never_free_makes_the_store_unavailable_after_the_wait(url: str, tmp_path: Path) -> None:
    wait = timedelta(milliseconds=200)
    database = Database(url, Limits(lock_wait=wait))
    holder = sqlite3.connect(tmp_path / "store.sqlite3", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="locked"), database.transaction():
        pass
    assert time.monotonic() - began >= wait.total_seconds()
    holder.execute("ROLLBACK")
    assert is_written(database, "later")


def test_within_the_transaction_sqlite_waits_as_ever(url: str) -> None:
    database = Database(url, Limits(lock_wait=3 * SECOND))
    with database.transaction() as connection:
        assert connection.execute(text("PRAGMA busy_timeout")).scalar_one() == 3000
    with database.reading() as connection:
        assert connection.execute(text("PRAGMA busy_timeout")).scalar_one() == 3000
