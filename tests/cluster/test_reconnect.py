"""An engine that registered anew consumes its new queue also after its connection was lost (O3, O12)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from deployment import Deployment

from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.waiting import wait_until


def test_an_engine_that_registered_anew_consumes_its_new_queue_after_redis_came_back(
    deployment: Deployment, start: Callable[..., None], local_redis: LocalRedis
) -> None:
    worker = deployment.worker("e1", queues=["weft.turns", "weft.maintenance"])
    start(worker)
    old = deployment.engine("e1").id
    deployment.execute("DELETE FROM weft_engines WHERE id = :id", id=old)
    wait_until(lambda: [e for e in deployment.engines("e1") if e.id != old], what="the engine to register anew")
    deployment.park("parked")
    local_redis.kill()
    worker.wait_for_log("Connection to broker lost")
    local_redis.start()
    wait_until(lambda: worker.log_text().count("Connected to redis") == 2, what="the worker to connect again")
    deployment.weft.signal("parked", "event", "closed")
    deployment.wait_for("parked", timeout=timedelta(seconds=5))
