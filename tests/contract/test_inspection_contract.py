"""Everything about one workflow, on both stores."""

from __future__ import annotations

from datetime import timedelta

import pytest
from beds import MS, START, StoreBed, T, parked

from weft_tasks.errors import WorkflowNotFound
from weft_tasks.model import EngineStatus, NewWorkflow
from weft_tasks.store.inspection import Inspection


@pytest.fixture
def bed(store_bed: StoreBed) -> StoreBed:
    """Engine a holds w, which has run one turn and waits for `paid`."""
    store_bed.engine("a")
    store_bed.held()
    store_bed.begin()
    store_bed.advance(timedelta(seconds=3))
    store_bed.park("w", "paid")
    return store_bed


def inspect(bed: StoreBed, workflow_id: str = "w", limit: int = 20) -> Inspection:
    return bed.store.inspections.inspect(workflow_id, limit)


def test_the_owner_is_shown_with_its_node_heartbeat_and_claim(bed: StoreBed) -> None:
    owner = inspect(bed).owner
    assert owner is not None
    assert (owner.engine_id, owner.node, owner.status) == ("a", "a@host", EngineStatus.LIVE)
    assert (owner.claimed_at, owner.expires_at) == (START, START + T)
    assert owner.silence_ms == 3000


def test_an_owner_whose_row_is_gone_is_still_named(bed: StoreBed) -> None:
    bed.remove_engine("a")
    owner = inspect(bed).owner
    assert owner is not None
    assert (owner.engine_id, owner.node, owner.status, owner.silence_ms) == ("a", None, None, None)


def test_a_released_workflow_has_no_owner_and_the_history_says_who_gave_it_up(bed: StoreBed) -> None:
    bed.claims.release_idle("a")
    found = inspect(bed)
    assert found.owner is None
    assert [(entry.event, entry.engine_id) for entry in found.history] == [("released", "a")]


def test_turns_are_shown_with_who_ran_them_for_how_long_and_under_which_epoch(bed: StoreBed) -> None:
    (turn,) = inspect(bed).turns
    assert (turn.turn, turn.attempt, turn.engine_id, turn.node, turn.epoch) == (0, 1, "a", "a@host", 1)
    assert turn.committed_at - turn.began_at == timedelta(seconds=3)
    assert turn.outcome == "parked"


def test_the_node_of_an_engine_long_gone_is_known_from_the_history(bed: StoreBed) -> None:
    bed.engine("b")
    bed.engines.stop("a")
    message = bed.message()
    bed.claims.take_over("w", message.run_id, "a", message.epoch, "b")
    bed.remove_engine("a")
    assert [turn.node for turn in inspect(bed).turns] == ["a@host"]


def test_the_attempt_that_runs_is_shown(bed: StoreBed) -> None:
    bed.begin_again("w")
    attempt = inspect(bed).attempt
    assert (attempt.is_open, attempt.begun, attempt.tries) == (True, 1, 0)
    assert attempt.began_at == START + timedelta(seconds=3)


def test_a_handler_that_raised_is_shown_with_its_tries_and_the_time_of_the_next(bed: StoreBed) -> None:
    bed.begin_again("w")
    bed.store.turns.retry_later(bed.begun["w"], '{"type": "E", "message": "no"}', timedelta(seconds=2))
    attempt = inspect(bed).attempt
    assert (attempt.is_open, attempt.tries) == (False, 1)
    assert attempt.not_before == START + timedelta(seconds=5)


def test_what_no_turn_has_taken_yet_is_shown_in_the_order_of_its_arrival(bed: StoreBed) -> None:
    bed.store.signals.send("w", "note", "null", key="k1")
    bed.store.updates.send("w", "change", "null", key="k2")
    bed.store.signals.send("w", "note", "null", key=None)
    shown = [(item.kind, item.number, item.name, item.key) for item in inspect(bed).pending]
    assert shown == [("signal", 1, "note", "k1"), ("update", 2, "change", "k2"), ("signal", 3, "note", None)]


def test_of_each_kind_the_latest_are_shown_and_of_what_waits_the_first(bed: StoreBed) -> None:
    for _ in range(3):
        bed.begin_again("w")
        bed.commit("w", parked("paid"))
        bed.signal("w", "other")
    bed.store.lifecycle.suspend("w")
    bed.store.lifecycle.resume("w")
    bed.store.lifecycle.suspend("w")
    found = inspect(bed, limit=2)
    assert [turn.turn for turn in found.turns] == [2, 3]
    assert [item.number for item in found.pending] == [1, 2]
    assert [entry.event for entry in found.history] == ["resume", "suspend"]


def test_the_time_at_which_it_ends_by_itself_is_shown(bed: StoreBed) -> None:
    hour = timedelta(hours=1)
    bed.store.workflows.start_new(NewWorkflow(id="v", type="permit", input_json="null", timeout=hour))
    found = inspect(bed, "v")
    assert found.ends_by == found.now + hour
    assert inspect(bed).ends_by is None


def test_the_history_of_an_id_goes_back_to_its_earlier_runs_and_the_turns_do_not(bed: StoreBed) -> None:
    bed.store.lifecycle.terminate("w", "enough")
    bed.advance(MS)
    bed.store.workflows.start_new(NewWorkflow(id="w", type="permit", input_json="null"), restarts=True)
    found = inspect(bed)
    assert found.turns == ()
    assert [(entry.event, entry.run_id == found.info.run_id) for entry in found.history] == [("terminated", False)]


def test_a_workflow_that_nobody_started_is_not_found(bed: StoreBed) -> None:
    with pytest.raises(WorkflowNotFound):
        inspect(bed, "nobody")
