"""One cluster on each database for all tests of this folder: two engines that may kill themselves, one for maintenance,
and beat.

What died is started again at once, as a supervisor would, while the other engine goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from deployment import show_logs
from worst import LONG, WorstDeployment

from weft_tasks.testing.cluster import backend_cluster, broker_cluster, connection_env
from weft_tasks.testing.local_redis import LocalRedis

DATABASES = ("postgresql", "sqlite")


@pytest.fixture(scope="session", params=DATABASES)
def worst_cluster(
    request: pytest.FixtureRequest, new_database: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorstDeployment]:
    with ExitStack() as stack:
        redis = stack.enter_context(LocalRedis())
        env = connection_env(broker_cluster(redis), backend_cluster(redis))
        folder = tmp_path_factory.mktemp("worst")
        deployment = WorstDeployment(env={**env, "DATABASE_URL": new_database(request.param)}, folder=folder)
        deployment.workers.update({node: deployment.worker(node) for node in ("e1", "e2")})
        deployment.workers["m1"] = deployment.worker("m1", queues=["weft.maintenance", "elsewhere"])
        beat = deployment.beat()
        for process in (*deployment.workers.values(), beat):
            stack.callback(process.kill)
            process.start()
        for process in (*deployment.workers.values(), beat):
            process.wait_until_ready(LONG)
        yield deployment


@pytest.fixture
def cluster(worst_cluster: WorstDeployment) -> Iterator[WorstDeployment]:
    """At least one engine is ready; another may be on its way up after the last test's kill."""
    worst_cluster.revive()
    yield worst_cluster
    worst_cluster.open_gates()
    show_logs(*worst_cluster.workers.values())


@pytest.fixture
def well_cluster(cluster: WorstDeployment) -> WorstDeployment:
    """Both engines are there."""
    cluster.wait_until_well()
    return cluster
