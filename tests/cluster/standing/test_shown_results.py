"""What ticks and run_once leave in the result backend."""

from __future__ import annotations

import json

from deployment import Deployment
from pytest_celery import CeleryTestSetup
from task_events import TaskEvents

from weft_tasks.celery_host.names import RUN_ONCE
from weft_tasks.results import PassKind
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.waiting import wait_until

BACKEND = 1


def test_ticks_and_turns_leave_no_results_and_run_once_leaves_one_that_celery_shows(
    setup: CeleryTestSetup, deployment: Deployment, local_redis: LocalRedis
) -> None:
    with local_redis.client(BACKEND) as client, TaskEvents(deployment.weft.app) as events:
        before = set(client.scan_iter("celery-task-meta-*"))
        wait_until(lambda: all(len(events.of_pass(kind)) >= 3 for kind in PassKind), what="three ticks of each pass")
        deployment.weft.start("once", "leaves-nothing")
        deployment.wait_for("leaves-nothing")
        called = deployment.call(RUN_ONCE)
        assert called.get(timeout=20)["failed"] == []
        left = set(client.scan_iter("celery-task-meta-*")) - before
        assert left == {f"celery-task-meta-{called.id}".encode()}
        assert client.ttl(next(iter(left))) > 0
    shown = deployment.command("result", called.id)
    shown.start()
    assert shown.wait() == 0
    assert "'run_once'" in shown.log_text()
    assert json.dumps(called.get()["seconds"]) in shown.log_text()
