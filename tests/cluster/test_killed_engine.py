"""kill -9: an engine's claims move by themselves, in bounded time, evenly, and their work goes on (O3, O4, O9)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from deployment import GRACE, INTERVAL, SLACK, TTL, Deployment
from pytest_celery import CeleryTestSetup

from weft_tasks.testing.celery_commands import WorkerProcess
from weft_tasks.testing.waiting import wait_until


@pytest.fixture
def worker_processes(deployment: Deployment) -> Sequence[WorkerProcess]:
    return [deployment.worker(node) for node in ("e1", "e2", "e3")]


def test_claims_of_a_killed_engine_move_in_time_and_evenly_and_due_workflows_go_on(
    setup: CeleryTestSetup, deployment: Deployment, start: Callable[..., None]
) -> None:
    start(deployment.beat())
    deployment.park(*(f"w{n}" for n in range(60)))
    killed = deployment.engine("e1").id
    before, held = deployment.claims(), deployment.held_by(killed)
    assert held, "three engines took 60 workflows, and one of them none"
    setup.worker_cluster[0].kill()
    killed_at = time.monotonic()
    due = min(held)
    deployment.weft.signal(due, "event", "closed")

    wait_until(lambda: not deployment.held_by(killed), what="the claims to move")
    took = time.monotonic() - killed_at
    assert (TTL + GRACE - INTERVAL).total_seconds() < took < (TTL + GRACE + INTERVAL + SLACK).total_seconds()
    deployment.wait_for(due, timeout=INTERVAL + SLACK)
    after = deployment.claims()
    assert {id: after[id] for id in before.keys() - held} == {id: before[id] for id in before.keys() - held}
    assert {id: after[id][1] for id in held - {due}} == {id: before[id][1] + 1 for id in held - {due}}
    loads = Counter(engine for engine, _epoch in before.values())
    even = sum(loads.values()) / 2
    # An engine that had more than half already could not be helped.
    most = max(load for engine, load in loads.items() if engine != killed)
    for load in Counter(engine for engine, _epoch in after.values()).values():
        assert abs(load - even) <= max(0.1 * even, most - even)
