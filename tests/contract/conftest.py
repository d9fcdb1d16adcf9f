"""The beds that the contract tests run on."""

from __future__ import annotations

import pytest
from beds import Bed, FakeBed, StoreBed

from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock


@pytest.fixture(params=("fake", "sqlite", "postgresql"))
def bed(request: pytest.FixtureRequest) -> Bed:
    """Claims on the fake and on both backends in turn."""
    if request.param == "fake":
        return FakeBed()
    return StoreBed(*request.getfixturevalue("fresh_store")(request.param))


@pytest.fixture
def store_bed(store: Store, clock: ManualClock) -> StoreBed:
    """The real store on each backend in turn."""
    return StoreBed(store, clock)
