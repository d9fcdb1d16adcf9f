"""One cluster for all tests of this folder, on PostgreSQL: two prefork engines, a worker for maintenance, and beat.

`celery_setup` stands on it. Each test leaves it well; after one that did not, the next starts another. Ids of workflows
are a test's own: nothing is cleaned up between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from deployment import Deployment, show_logs
from pytest_celery import CeleryBackendCluster, CeleryBrokerCluster, CeleryTestSetup, CeleryWorkerCluster
from stand import Standing

from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess


@pytest.fixture(scope="session")
def raise_standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Standing]]:
    """The cluster that stands, or another if it is not well."""
    standing: list[Standing] = []
    with ExitStack() as stack:

        def raised() -> Standing:
            if not (standing and standing[-1].is_well()):
                stack.close()
                standing.append(Standing(stack, tmp_path_factory.mktemp("standing")))
            return standing[-1]

        yield raised


@pytest.fixture
def standing(raise_standing: Callable[[], Standing]) -> Iterator[Standing]:
    standing = raise_standing()
    yield standing
    standing.deployment.open_gates()
    show_logs(*standing.processes)


@pytest.fixture
def local_redis(standing: Standing) -> LocalRedis:
    return standing.redis


@pytest.fixture
def local_postgres(standing: Standing) -> LocalPostgres:
    return standing.postgres


@pytest.fixture
def beat(standing: Standing) -> LocalProcess:
    return standing.beat


@pytest.fixture
def celery_broker_cluster(standing: Standing) -> CeleryBrokerCluster:
    return standing.broker


@pytest.fixture
def celery_backend_cluster(standing: Standing) -> CeleryBackendCluster:
    return standing.backend


@pytest.fixture
def celery_worker_cluster(standing: Standing) -> CeleryWorkerCluster:
    return standing.workers


@pytest.fixture
def deployment(standing: Standing) -> Deployment:
    return standing.deployment


@pytest.fixture
def setup(celery_setup: CeleryTestSetup) -> CeleryTestSetup:
    """`celery_setup`, whose nodes were just seen to work."""
    assert celery_setup.ready(ping=False, control=False, docker=True)
    return celery_setup
