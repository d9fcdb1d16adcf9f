"""The shop of the tests of commands, on each backend in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from shop import InlineMailbox, Shop, build, order_types


@pytest.fixture
def database_url(backend: str, fresh_store: Any, migrated_url: Callable[[str], str]) -> str:
    """An empty, migrated database on each backend in turn."""
    fresh_store(backend)
    return migrated_url(backend)


@pytest.fixture
def shop(database_url: str) -> Iterator[Shop]:
    """The shop with one engine, which runs turns as they fall due."""
    weft = build(database_url)
    order_types(weft)
    vars(weft)["dispatcher"] = InlineMailbox(weft)
    shop = Shop(weft=weft)
    shop.add_engine()
    yield shop
    weft.store.database.dispose()
