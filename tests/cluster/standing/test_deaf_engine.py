"""An engine that beats but takes no turns: its due workflows move, its parked ones stay (O12)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deployment import BEATS_PER_TTL, INTERVAL, SLACK, Deployment
from pytest_celery import CeleryTestSetup

from weft_tasks.testing.waiting import wait_until

DEAF_AFTER = 5
"""(T + G)/R dispatches in a row without an answer."""
LONGEST = (DEAF_AFTER + 1) * 2 * INTERVAL + SLACK
"""One dispatch per reclaim pass that finds it overdue: up to two intervals each."""


@contextmanager
def deafened(deployment: Deployment, *nodes: str) -> Iterator[None]:
    """Engines that no longer consume their own queues, and are told to again at the end."""
    queues = {node: deployment.queue_of(node) for node in nodes}
    for node, queue in queues.items():
        tell(deployment, node, "cancel_consumer", queue)
    try:
        yield
    finally:
        for node, queue in queues.items():
            tell(deployment, node, "add_consumer", queue)


def tell(deployment: Deployment, node: str, verb: str, queue: str) -> None:
    control = deployment.weft.app.control
    with deployment.weft.app.connection_for_write() as connection:
        call = getattr(control, verb)
        assert call(queue, destination=[f"{node}@local"], reply=True, timeout=10, connection=connection)


def test_due_workflows_of_a_deaf_engine_move_its_parked_ones_stay_and_a_turn_clears_the_mark(
    setup: CeleryTestSetup, deployment: Deployment
) -> None:
    due, also_due, parked = deployment.park_on("e1", "deaf", 3)
    before = deployment.claims(due, also_due, parked)
    with deafened(deployment, "e1"):
        for id in (due, also_due):
            deployment.weft.signal(id, "event", "closed")
        for id in (due, also_due):
            deployment.wait_for(id, timeout=LONGEST)
        assert deployment.engine("e1").is_deaf
        taken = deployment.engine("e2").id
        for id in (due, also_due):
            assert deployment.committed_turns(id) == [(0, before[id][1]), (1, before[id][1] + 1)]
            last = "SELECT engine_id FROM weft_turns WHERE workflow_id = :id AND turn = 1"
            assert deployment.query(last, id=id) == [(taken,)]
        assert deployment.claims(parked) == {parked: before[parked]}
    deployment.weft.signal(parked, "event", "closed")
    deployment.wait_for(parked)
    assert deployment.weft.describe(parked).epoch == before[parked][1]
    assert not deployment.engine("e1").is_deaf


def test_nothing_moves_while_all_engines_are_deaf(setup: CeleryTestSetup, deployment: Deployment) -> None:
    ids = deployment.park_on("e1", "all-deaf", 2) + deployment.park_on("e2", "all-deaf-too", 2)
    before = deployment.claims(*ids)
    with deafened(deployment, "e1", "e2"):
        for node in ("e1", "e2"):
            deployment.weft.store.engines.mark_deaf(deployment.engine(node).id)
        for id in ids:
            deployment.weft.signal(id, "event", "closed")
        unanswered = "SELECT MIN(unanswered) FROM weft_workflows WHERE id LIKE 'all-deaf%' AND due"
        wait_until(lambda: deployment.query(unanswered)[0][0] >= 1, what="dispatches that nobody answers")
        deployment.wait_for_beats("e1", "e2", beats=BEATS_PER_TTL)
        assert deployment.claims(*ids) == before
    deployment.wait_for_all(ids, timeout=LONGEST)
    assert [deployment.weft.describe(id).epoch for id in ids] == [before[id][1] for id in ids]
    assert not any(deployment.engine(node).is_deaf for node in ("e1", "e2"))


def test_an_engine_that_hears_again_takes_new_work_although_it_holds_none(
    setup: CeleryTestSetup, deployment: Deployment
) -> None:
    """Nothing is offered to a deaf engine; without a question of its own it would stay out for ever."""
    deployment.weft.store.engines.mark_deaf(deployment.engine("e1").id)
    deployment.wait_for_new_work_on("e1", "hears-again")
    assert not deployment.engine("e1").is_deaf
