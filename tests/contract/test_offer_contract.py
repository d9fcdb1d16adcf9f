"""An offer is acquired and begun at once on PostgreSQL under the conditions of both, or nothing is written (O5, O9)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from beds import DEFAULTS, MS, START, G, StoreBed, T
from sqlalchemy import update

from weft_tasks.model import NewWorkflow, TurnMessage
from weft_tasks.store.tables import workflows
from weft_tasks.store.turns import BegunTurn


@pytest.fixture
def bed(store_bed: StoreBed) -> StoreBed:
    store_bed.engine("a")
    return store_bed


def take(bed: StoreBed, offer: TurnMessage, by: str = "a") -> BegunTurn | None:
    return bed.store.turns.acquire_and_begin(offer, by, "task")


def test_it_leaves_what_an_acquire_and_a_begin_leave(bed: StoreBed) -> None:
    def columns(workflow_id: str) -> dict[str, object]:
        with bed.store.database.reading() as connection:
            row = connection.execute(workflows.select().where(workflows.c.id == workflow_id)).one()._mapping
        return {key: value for key, value in row.items() if key not in ("id", "run_id", "bucket")}

    offers = {workflow_id: bed.start(workflow_id) for workflow_id in ("w", "in-steps")}
    bed.advance(timedelta(seconds=1))
    bed.acquired(offers["in-steps"], "a")
    in_steps = bed.store.turns.begin(bed.message("in-steps"), "task")
    assert isinstance(in_steps, BegunTurn)

    begun = take(bed, offers["w"])

    if bed.store.database.is_sqlite:
        assert begun is None
        return
    assert begun == replace(in_steps, workflow_id="w", run_id=offers["w"].run_id)
    assert columns("w") == columns("in-steps")
    assert bed.claim("w") == bed.claim("in-steps")


def a_signal(bed: StoreBed) -> None:
    bed.store.signals.send("w", "go", json.dumps(1), key=None)


def test_it_gives_the_turn_what_was_sent_before(bed: StoreBed) -> None:
    offer = bed.start()
    a_signal(bed)
    begun = take(bed, offer)
    if begun is not None:
        assert ([signal.payload for signal in begun.signals], begun.horizon) == ([1], 1)
        assert begun.began_at == START


def begun_to_the_limit(bed: StoreBed) -> None:
    with bed.store.database.transaction() as connection:
        connection.execute(update(workflows).values(begun=DEFAULTS.begun_turn_limit))


OBSTACLES: dict[str, Callable[[StoreBed], object]] = {
    "the engine drains": lambda bed: bed.store.engines.drain("a"),
    "the engine stopped": lambda bed: bed.store.engines.stop("a"),
    "the engine has no row": lambda bed: bed.remove_engine("a"),
    "the heartbeat is too old": lambda bed: bed.advance(G + MS),
    "it is held": lambda bed: bed.acquired(bed.message(), "a"),
    "it has ended": lambda bed: bed.store.lifecycle.terminate("w", "enough"),
    "it is suspended": lambda bed: bed.store.lifecycle.suspend("w"),
    "it has begun too often": begun_to_the_limit,
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_stands_in_the_way_of_either_leaves_all_as_it_was(bed: StoreBed, obstacle: str) -> None:
    offer = bed.start()
    OBSTACLES[obstacle](bed)
    row, claim = bed.row(), bed.claim()
    assert take(bed, offer) is None
    assert (bed.row(), bed.claim()) == (row, claim)


def test_an_offer_before_its_time_or_for_another_run_or_epoch_is_not_taken(bed: StoreBed) -> None:
    late = bed.store.workflows.start_new(NewWorkflow(id="late", type="permit", input_json="{}", delay=T))
    offer = bed.start()
    for wrong in (late, replace(offer, run_id="0" * 32), replace(offer, epoch=1), replace(offer, workflow_id="late")):
        assert take(bed, wrong) is None
    assert bed.claim() is bed.claim("late") is None


def test_an_engine_that_does_not_know_the_type_takes_nothing(bed: StoreBed) -> None:
    offer = bed.start(type_name="another")
    assert take(bed, offer) is None
    assert bed.row().engine_id is None
