"""An engine whose row was deleted or stopped by hand registers anew, under a new id, and goes on (O3)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from deployment import INTERVAL, SLACK, Deployment
from pytest_celery import CeleryTestSetup

from weft_tasks.celery_host.names import ENGINE_QUEUE_PREFIX
from weft_tasks.celery_host.queues import engine_queue
from weft_tasks.model import EngineStatus
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.waiting import wait_until


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM weft_engines WHERE id = :id", "UPDATE weft_engines SET status = 'stopped' WHERE id = :id"],
    ids=["deleted", "stopped"],
)
def test_an_engine_without_its_row_registers_anew_ends_its_turns_and_consumes_its_new_queue(
    setup: CeleryTestSetup, deployment: Deployment, request: pytest.FixtureRequest, statement: str
) -> None:
    way = request.node.callspec.id
    old = deployment.engine("e1").id
    held = deployment.park_on("e1", f"row-{way}", 2)
    gate = deployment.gate(f"row-{way}-long")
    deployment.start_on("e1", "gate", gate.path.name, str(gate.path))
    gate.wait_for()
    before = deployment.claims(*held)

    deployment.execute(statement, id=old)
    (new,) = wait_until(
        lambda: [engine.id for engine in deployment.engines("e1") if engine.status is EngineStatus.LIVE],
        what="a new id",
        timeout=INTERVAL + SLACK,
    )
    assert new != old
    wait_until(lambda: not deployment.held_by(old), what="the old claims to move", timeout=2 * INTERVAL + SLACK)
    assert {epoch for _holder, epoch in deployment.claims(*held).values()} == {
        epoch + 1 for _holder, epoch in before.values()
    }
    # Its turn was ended, and begins again under another epoch.
    gate.wait_for(2, timeout=2 * INTERVAL + SLACK)
    gate.open()
    deployment.wait_for(gate.path.name)

    parked = deployment.park_on("e1", f"row-{way}-after", 2)
    assert deployment.held_by(new) >= set(parked)
    for id in parked:
        deployment.weft.signal(id, "event", "closed")
    for id in parked:
        # Its message comes through the new queue: no tick is needed.
        deployment.wait_for(id, timeout=timedelta(seconds=3))


def test_what_an_engine_long_gone_left_behind_is_cleaned_up(
    setup: CeleryTestSetup, deployment: Deployment, local_redis: LocalRedis
) -> None:
    engines = deployment.weft.store.engines
    engines.register("long-gone", node="gone@local", host="elsewhere", pid=1, types=["once"], slots=1)
    queue = f"{ENGINE_QUEUE_PREFIX}long-gone"
    deployment.call("weft.run_turn", kwargs={}, queue=engine_queue("long-gone", deployment.weft.settings))
    with local_redis.client() as client:
        assert client.exists(queue)
        long_ago = "UPDATE weft_engines SET heartbeat_at = 1, heartbeat_witnessed = -100000 WHERE id = 'long-gone'"
        deployment.execute(long_ago)
        wait_until(lambda: not deployment.engines("gone"), what="its row to go", timeout=INTERVAL + SLACK)
        wait_until(lambda: not client.exists(queue), what="its queue to go", timeout=SLACK)
        assert not any(queue.encode() in binding for binding in client.smembers("_kombu.binding.weft.engine"))
    assert not deployment.query("SELECT 1 FROM weft_engine_types WHERE engine_id = 'long-gone'")
