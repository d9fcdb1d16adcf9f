"""The bed that the tests of the workflow API run on: the real store, on SQLite and on PostgreSQL in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.testing.bed import WorkflowBed


@pytest.fixture
def bed(store_and_clock: tuple[Store, ManualClock]) -> Iterator[WorkflowBed]:
    """Two engines over an empty store with the default settings; the test registers its types."""
    with WorkflowBed(store=store_and_clock) as made:
        yield made


@pytest.fixture
def sqlite_bed(fresh_store: Callable[[str], tuple[Store, ManualClock]]) -> Iterator[WorkflowBed]:
    """The same on SQLite alone, for what is decided before any store is asked."""
    with WorkflowBed(store=fresh_store("sqlite")) as made:
        yield made
