"""The passes' lists cost what is due, ready or late, not what is parked: counted in SQLite's own instructions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from beds import R, StoreBed
from sqlalchemy import event

from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock

LISTS: dict[str, Callable[[Store], Any]] = {
    "reclaim candidates": lambda store: store.workflows.list_reclaim_candidates(),
    "ready waits": lambda store: store.signals.list_ready(),
    "pending updates": lambda store: store.updates.list_held_with_pending(),
    "overdue ends": lambda store: store.lifecycle.list_overdue_ends(),
    "overdue debts": lambda store: store.outbox.list_overdue(),
    "engines taking work": lambda store: store.workflows.list_engines_taking_work(),
}


def instructions(store: Store, read: Callable[[Store], Any]) -> int:
    """How many steps SQLite's machine takes for it, in hundreds."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    def attach(connection: Any, *_: Any) -> None:
        connection.set_progress_handler(count, 100)

    def detach(connection: Any, *_: Any) -> None:
        connection.set_progress_handler(None, 0)

    pool = store.database.engine.pool
    event.listen(pool, "checkout", attach)
    event.listen(pool, "checkin", detach)
    try:
        read(store)
    finally:
        event.remove(pool, "checkout", attach)
        event.remove(pool, "checkin", detach)
    return steps


@pytest.mark.parametrize("name", LISTS)
def test_a_list_costs_the_same_with_thirty_times_as_many_parked_workflows(
    fresh_store: Callable[[str], tuple[Store, ManualClock]], name: str
) -> None:
    costs = []
    for parked in (100, 3000):
        bed = StoreBed(*fresh_store("sqlite"))
        bed.engine("a")
        bed.engine("b")
        bed.many_held("a", parked)
        for n in range(10):
            bed.store.signals.send(f"w{n:05}", "note", "null", key=None)
            bed.held(f"due{n}", "b")
        bed.live_through(R + timedelta(seconds=1), "a", "b")
        costs.append(instructions(bed.store, LISTS[name]))
    few, many = costs
    if name == "engines taking work":
        # It counts the claims of each engine, which is one step along an index for each.
        assert many < few + 3000
    else:
        assert many <= few + few // 5 + 5
