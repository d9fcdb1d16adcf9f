"""The history tells when a workflow without a holder was placed by the reclaim pass: the end of a hand-over (O6)."""

from __future__ import annotations

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
