"""Start, signal and complete, on every pool and both databases, with one beat for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from deployment import Deployment
from pytest_celery import CeleryTestSetup

from weft_tasks.testing.celery_commands import WorkerProcess

POOLS = ("prefork", "threads", "solo")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(new_database: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    return new_database(request.param)


@pytest.fixture
def worker_processes(deployment: Deployment) -> Sequence[WorkerProcess]:
    return [deployment.worker(pool, pool=pool) for pool in POOLS]


def test_workflows_start_take_their_signals_in_order_and_complete_on_every_pool(
    setup: CeleryTestSetup, deployment: Deployment, start: Callable[..., None]
) -> None:
    start(deployment.beat())
    on_pool = {pool: deployment.park_on(pool, pool, 2) for pool in POOLS}
    ids = [id for held in on_pool.values() for id in held]
    for id in ids:
        receipts = [deployment.weft.signal(id, "event", f"T{n:02}") for n in range(5)]
        assert [receipt.number for receipt in receipts] == [1, 2, 3, 4, 5]
        again = deployment.weft.signal(id, "event", "closed", key="the end")
        assert deployment.weft.signal(id, "event", "closed", key="the end").number == again.number
    for pool, held in on_pool.items():
        engine_id = deployment.engine(pool).id
        for id in held:
            info = deployment.wait_for(id)
            assert info.result == ["T00", "T01", "T02", "T03", "T04", "closed"]
            assert info.epoch == 1
            committed = "SELECT DISTINCT engine_id FROM weft_turns WHERE workflow_id = :id"
            assert deployment.query(committed, id=id) == [(engine_id,)]
    assert deployment.claims(*ids) == {}
