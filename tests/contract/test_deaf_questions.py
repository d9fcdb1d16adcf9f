"""A deaf engine is asked whether it hears again; its answer clears the mark (O12), on both stores."""

from __future__ import annotations

import pytest
from beds import MS, G, R, StoreBed, T

from weft_tasks.model import TurnMessage


@pytest.fixture
def bed(store_bed: StoreBed) -> StoreBed:
    return store_bed


def test_live_engines_that_are_marked_as_deaf_are_asked_and_no_others(bed: StoreBed) -> None:
    for engine_id in ("hears", "deaf", "draining", "stopped", "silent"):
        bed.engine(engine_id)
    for engine_id in ("deaf", "draining", "stopped", "silent"):
        bed.engines.mark_deaf(engine_id)
    bed.engines.drain("draining")
    bed.engines.stop("stopped")
    bed.live_through(T + G + R + MS, "hears", "deaf", "draining")
    assert bed.store.engines.list_deaf() == ("deaf",)


def test_an_answer_clears_the_mark_of_its_engine_alone(bed: StoreBed) -> None:
    for engine_id in ("a", "b"):
        bed.engine(engine_id)
        bed.engines.mark_deaf(engine_id)
    bed.store.turns.note_answer("a")
    assert {engine.id: engine.is_deaf for engine in bed.engines.list()} == {"a": False, "b": True}
    assert [load.engine_id for load in bed.reclaim.list_engines_taking_work()] == ["a"]


def test_a_question_names_no_workflow_and_a_turn_message_is_none(bed: StoreBed) -> None:
    bed.engine("a")
    bed.held()
    assert TurnMessage.question("a").is_question
    assert not bed.message().is_question
