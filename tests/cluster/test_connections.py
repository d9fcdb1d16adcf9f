"""How many connections to PostgreSQL each process keeps: the figures of docs/operating.md, by which one sizes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psutil
from deployment import Deployment
from sqlalchemy import make_url

from weft_tasks.testing.waiting import wait_until

POOL_WIDTH = 6
POOL_SIZE = 8
WORKFLOWS = 40


def test_each_process_keeps_as_many_connections_as_the_page_says(
    deployment: Deployment, start: Callable[..., None]
) -> None:
    settings = {"weft_pool_width": POOL_WIDTH, "weft_database_pool_size": POOL_SIZE}
    deployment = Deployment(env=deployment.env, folder=deployment.folder, celery=settings)
    engines = [deployment.worker(f"e{n}", concurrency=2, extra=["-Q", "celery,weft.turns"]) for n in (1, 2)]
    maintenance = deployment.worker("m", concurrency=2, extra=["-Q", "weft.maintenance"])
    start(*engines, maintenance, deployment.beat())
    ids = [f"w-{n}" for n in range(WORKFLOWS)]
    deployment.park(*ids)

    # Nobody is told of these: the passes find them, many at a time. Then they find the workflows of a dead engine.
    deployment.execute("UPDATE weft_workflows SET due = true, dispatched_witnessed = 0")
    deployment.wait_until_parked(*ids)
    engines[1].kill()
    survivor = deployment.engine("e1").id
    wait_until(
        lambda: deployment.held_by(survivor) == set(ids), what="the takeover of all", timeout=timedelta(seconds=30)
    )

    port = make_url(deployment.env["DATABASE_URL"]).port or 5432
    assert max(_connections(child, port) for child in engines[0].child_pids()) in (1, 2), "a turn's, and the counts'"
    assert 1 < max(_connections(child, port) for child in maintenance.child_pids()) <= POOL_WIDTH
    assert max(_connections(process.pid, port) for process in (engines[0], maintenance)) <= 1


def _connections(pid: int, port: int) -> int:
    connections = psutil.Process(pid).net_connections(kind="tcp")
    return sum(1 for connection in connections if connection.raddr and connection.raddr.port == port)
