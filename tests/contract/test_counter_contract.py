"""The counters of the fleet: every process adds to the same rows, and what is not known to be written is said."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from breaking import failing_before

from weft_tasks.errors import StoreUnavailable
from weft_tasks.store import Store
from weft_tasks.store.counters import Series

WON: Series = ("weft_attempts", (("outcome", "won"),))
LOST: Series = ("weft_attempts", (("outcome", "lost"),))
SECONDS: Series = ("weft_seconds", ())


def test_a_new_store_has_counted_nothing(store: Store) -> None:
    assert store.counters.read() == {}


def test_what_is_added_adds_up(store: Store) -> None:
    assert store.counters.add({WON: 2, SECONDS: 0.25})
    assert store.counters.add({WON: 1, LOST: 1, SECONDS: 0.5})
    assert store.counters.read() == {WON: 3, LOST: 1, SECONDS: 0.75}


def test_nothing_counted_is_no_statement(store: Store) -> None:
    with failing_before(store, 1):
        assert store.counters.add({})


def test_many_processes_add_to_the_same_rows_in_any_order_and_lose_nothing(store: Store) -> None:
    both = ({WON: 1.0, LOST: 1.0}, {LOST: 1.0, WON: 1.0})
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda n: store.counters.add(both[n % 2]), range(80)))
    assert store.counters.read() == {WON: 80, LOST: 80}


def test_what_a_silent_store_has_certainly_not_is_an_error_and_can_be_added_again(store: Store) -> None:
    with failing_before(store, 1), pytest.raises(StoreUnavailable):
        store.counters.add({WON: 1})
    assert store.counters.add({WON: 1})
    assert store.counters.read() == {WON: 1}


@pytest.mark.parametrize("arrives", [True, False])
def test_a_commit_that_was_not_answered_is_said_to_be_unknown(
    store: Store, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be there already: added again, it would count twice."""
    dialect = store.database.engine.dialect
    commit = dialect.do_commit

    def lose_the_answer(connection: Any) -> None:
        if arrives:
            commit(connection)
        raise dialect.loaded_dbapi.OperationalError("a test lost the answer")

    with monkeypatch.context() as patch:
        patch.setattr(dialect, "do_commit", lose_the_answer)
        assert not store.counters.add({WON: 1})
    assert store.counters.read() == ({WON: 1} if arrives else {})
