"""The history tells who got or lost a workflow, when and why, in the transaction that changed it, on both stores."""

from __future__ import annotations

from datetime import timedelta

import pytest
from beds import StoreBed, parked

from weft_tasks.model import HeldClaim
from weft_tasks.store import Store
from weft_tasks.store.claims import TakeoverAnswer


def _start_with_engines(store: Store) -> None:
    for engine_id in ("a", "b"):
        store.engines.register(engine_id, node=f"{engine_id}@host", host="host", pid=1, types=("permit",), slots=2)


def test_a_released_workflow_that_is_placed_leaves_an_entry(store: Store) -> None:
    _start_with_engines(store)
    message = store.workflows.start("w", "permit", "null")
    held = store.claims.acquire("w", message.run_id, message.epoch, "a")
    store.claims.release(HeldClaim(workflow_id="w", engine_id="a", epoch=held.epoch))
    placed = store.claims.acquire("w", message.run_id, held.epoch, "b", must_be_due=False)
    assert placed.answer is TakeoverAnswer.WON
    (entry,) = store.history.list(event="placed")
    assert (entry.workflow_id, entry.engine_id, entry.epoch) == ("w", "b", placed.epoch)
    assert entry.detail == {"node": "b@host"}


@pytest.mark.parametrize(("release", "reason"), [("release_idle", "draining"), ("release_all", "stopping")])
def test_a_release_leaves_an_entry_with_its_reason(store: Store, release: str, reason: str) -> None:
    _start_with_engines(store)
    for workflow_id in ("v", "w"):
        message = store.workflows.start(workflow_id, "permit", "null")
        store.claims.acquire(workflow_id, message.run_id, message.epoch, "a")
    assert getattr(store.claims, release)("a") == 2
    entries = store.history.list(event="released")
    assert {(entry.workflow_id, entry.engine_id, entry.epoch) for entry in entries} == {("v", "a", 1), ("w", "a", 1)}
    assert [entry.detail for entry in entries] == [{"reason": reason, "node": "a@host"}] * 2


def test_a_release_of_nothing_leaves_none(store: Store) -> None:
    _start_with_engines(store)
    assert store.claims.release_all("a") == 0
    assert store.history.list() == ()


def test_a_placing_that_lost_leaves_none(store: Store) -> None:
    _start_with_engines(store)
    message = store.workflows.start("w", "permit", "null")
    store.claims.acquire("w", message.run_id, message.epoch, "a")
    assert (
        store.claims.acquire("w", message.run_id, message.epoch, "b", must_be_due=False).answer is TakeoverAnswer.LOST
    )
    assert store.history.list() == ()


def test_a_workflow_acquired_by_its_message_leaves_none(store: Store) -> None:
    _start_with_engines(store)
    message = store.workflows.start("w", "permit", "null")
    assert store.claims.acquire("w", message.run_id, message.epoch, "a").answer is TakeoverAnswer.WON
    assert store.history.list() == ()


@pytest.fixture
def bed(store_bed: StoreBed) -> StoreBed:
    """Engine a holds w and has begun its first turn."""
    store_bed.engine("a")
    store_bed.held()
    store_bed.begin()
    return store_bed


def _told(bed: StoreBed) -> list[tuple[str, str | None, int, dict[str, object]]]:
    entries = bed.store.history.list(workflow_id="w")
    return [(entry.event, entry.engine_id, entry.epoch, entry.detail) for entry in entries]


def test_a_commit_on_a_draining_engine_tells_that_it_released_the_workflow(bed: StoreBed) -> None:
    bed.engines.drain("a")
    bed.commit("w", parked("paid"))
    assert _told(bed) == [("released", "a", 1, {"node": "a@host", "reason": "draining"})]


def test_a_commit_on_a_live_engine_tells_nothing(bed: StoreBed) -> None:
    bed.commit("w", parked("paid"))
    assert _told(bed) == []


def test_a_handler_that_raised_is_told_with_its_error_and_when_it_is_tried_again(bed: StoreBed) -> None:
    error = '{"type": "OSError", "message": "no bank", "traceback": "…"}'
    bed.store.turns.retry_later(bed.begun["w"], error, timedelta(seconds=2))
    bed.advance(timedelta(seconds=2))
    bed.begin()
    bed.store.turns.give_up(bed.begun["w"], error)
    assert _told(bed) == [
        (
            "turn-failed",
            "a",
            1,
            {"turn": 0, "attempt": 1, "error": "OSError: no bank", "again_in_ms": 2000, "node": "a@host"},
        ),
        (
            "turn-failed",
            "a",
            1,
            {"turn": 0, "attempt": 2, "error": "OSError: no bank", "again_in_ms": None, "node": "a@host"},
        ),
    ]


def test_a_handler_that_raised_after_it_lost_its_workflow_is_not_told(bed: StoreBed) -> None:
    bed.store.lifecycle.suspend("w")
    bed.store.turns.retry_later(bed.begun["w"], '{"type": "E", "message": ""}', timedelta(0))
    assert [event for event, *_rest in _told(bed)] == ["suspend"]


def test_a_termination_is_told_with_its_reason_cut_short(bed: StoreBed) -> None:
    bed.store.lifecycle.terminate("w", "x" * 1000)
    assert _told(bed) == [("terminated", "a", 2, {"reason": "x" * 300, "node": "a@host"})]
