"""A store that was restored from a backup: what docs/operating.md says to run on it fences off everybody who may still
come with what they knew before, and its workflows go on with new engines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from beds import StoreBed
from sqlalchemy import insert, select, text

from weft_tasks.model import WorkflowStatus
from weft_tasks.passes import PassContext, SystemClock, reclaim_claims
from weft_tasks.results import ReclaimStatus
from weft_tasks.store import Store
from weft_tasks.store.tables import metadata
from weft_tasks.store.turns import BegunTurn, TurnOutcome

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
MARK = f"<!-- run by tests/contract/{Path(__file__).name} -->"
PARKED = TurnOutcome(status=WorkflowStatus.RUNNING, state_json="{}", waits=(("event", None),))

Backup = dict[str, list[dict[str, Any]]]


def test_nobody_from_before_the_restore_commits_and_the_workflow_goes_on(store_bed: StoreBed) -> None:
    before, after = a_future_that_is_lost(store_bed)
    fence(store_bed.store)

    assert [store_bed.store.turns.commit(begun, PARKED).status for begun in (before, after)] == ["lost", "lost"]
    # Whoever was live in the backup and is still there learns that its time is over.
    assert {engine.id: engine.status for engine in store_bed.store.engines.list()}["a"] == "stopped"

    store_bed.engine("c")
    result = reclaim_claims(store_bed.targets().reclaim, PassContext(clock=SystemClock()))
    assert [outcome.status for outcome in result.outcomes] == [ReclaimStatus.RECLAIMED]
    row = store_bed.row("w")
    assert row.engine_id == "c"
    assert row.epoch > after.epoch
    store_bed.begin("w")
    store_bed.end("w")


def test_a_new_workflow_starts_above_every_epoch_from_before(store_bed: StoreBed) -> None:
    _, after = a_future_that_is_lost(store_bed)
    fence(store_bed.store)
    assert store_bed.start("new").epoch > after.epoch


def test_without_it_an_engine_from_before_would_commit(store_bed: StoreBed) -> None:
    before, _ = a_future_that_is_lost(store_bed)
    assert store_bed.store.turns.commit(before, PARKED).status == "won"


def a_future_that_is_lost(bed: StoreBed) -> tuple[BegunTurn, BegunTurn]:
    """Engine a is in a turn when the backup is made. Then b takes over, and is in a turn when the store is restored."""
    bed.engine("a")
    bed.engine("b")
    bed.held("w", by="a")
    bed.begin("w", "task-a")
    before = bed.begun["w"]
    backup = copied(bed.store)

    bed.store.claims.release_all("a")
    bed.acquired(bed.message("w"), by="b")
    bed.begin("w", "task-b")
    after = bed.begun["w"]
    assert after.epoch > before.epoch
    restore(bed.store, backup)
    return before, after


def copied(store: Store) -> Backup:
    with store.database.reading() as connection:
        return {
            table.name: [dict(row._mapping) for row in connection.execute(select(table))]
            for table in metadata.sorted_tables
        }


def restore(store: Store, backup: Backup) -> None:
    with store.database.transaction() as connection:
        for table in metadata.sorted_tables:
            connection.execute(table.delete())
            if backup[table.name]:
                connection.execute(insert(table), backup[table.name])


def fence(store: Store) -> None:
    """The block of the page."""
    [block] = re.findall(rf"^{re.escape(MARK)}\n```sql\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    statements = [statement for part in block.split(";") if (statement := part.strip())]
    assert (statements[0], statements[-1]) == ("BEGIN", "COMMIT")
    with store.database.transaction() as connection:
        for statement in statements[1:-1]:
            connection.execute(text(statement))


@pytest.fixture(autouse=True)
def _the_page_is_there() -> None:
    assert MARK in PAGE.read_text("utf-8")
