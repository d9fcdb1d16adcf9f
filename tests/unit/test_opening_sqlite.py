"""A new SQLite file that several processes open at the same moment, as the workers of a first start do."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from weft_tasks.errors import StoreUnavailable
from weft_tasks.store.database import Database

OPENERS, FILES = 4, 60


def test_all_who_open_a_new_file_at_once_can_write_to_it(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    together, outcomes = fork.Barrier(OPENERS), fork.Queue()
    openers = [fork.Process(target=_open_all, args=(tmp_path, together, outcomes)) for _ in range(OPENERS)]
    for opener in openers:
        opener.start()
    found = [outcomes.get(timeout=60) for _ in openers]
    for opener in openers:
        opener.join(60)
    assert found == [["wal"] * FILES] * OPENERS


def _open_all(folder: Path, together: Any, outcomes: Any) -> None:
    outcomes.put([_opened(f"sqlite:///{folder}/{number}.sqlite3", together) for number in range(FILES)])


def _opened(url: str, together: Any) -> str:
    database = Database(url)
    assert database.engine
    together.wait(60)
    try:
        with database.transaction() as connection:
            return str(connection.execute(text("PRAGMA journal_mode")).scalar_one())
    except StoreUnavailable as error:
        return str(error)
    finally:
        database.dispose()


def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "letter.sqlite3"
    path.write_text("Dear store, " * 200)
    with pytest.raises(StoreUnavailable, match="not a database"), Database(f"sqlite:///{path}").transaction():
        pass
