"""One cluster for all tests of this folder, on PostgreSQL: two prefork engines, a worker for maintenance, and beat.

`celery_setup` stands on it. Each test leaves it well; after one that did not, the next starts another. Ids of workflows
are a test's own: nothing is cleaned up between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from deployment import Deployment, show_logs
from pytest_celery import CeleryBackendCluster, CeleryBrokerCluster, CeleryTestSetup, CeleryWorkerCluster

from weft_tasks.store.database import Database
from weft_tasks.store.schema import migrate
from weft_tasks.testing.cluster import backend_cluster, broker_cluster, connection_env, worker_cluster
from weft_tasks.testing.errors import WaitTimedOut
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until


class Standing:
    """A running cluster and what belongs to it."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.redis = stack.enter_context(LocalRedis())
        self.postgres = stack.enter_context(LocalPostgres(durable=False))
        self.broker, self.backend = broker_cluster(self.redis), backend_cluster(self.redis)
        env = connection_env(self.broker, self.backend)
        self.deployment = Deployment(env={**env, "DATABASE_URL": _migrated(self.postgres)}, folder=folder)
        workers = [self.deployment.worker(node) for node in ("e1", "e2")]
        workers.append(self.deployment.worker("m1", queues=["weft.maintenance"]))
        self.beat = self.deployment.beat()
        stack.callback(self.beat.kill)
        self.beat.start()
        self.workers = stack.enter_context(worker_cluster(*workers))
        self.processes: tuple[LocalProcess, ...] = (*workers, self.beat)
        self._checks = 0

    def is_well(self) -> bool:
        """Everything runs, both engines are live, and a workflow completes."""
        self._checks += 1
        id = f"check-{self._checks}"
        try:
            wait_until(self._are_engines_live, what="two live engines")
            self.deployment.weft.start("once", id)
            self.deployment.wait_for(id)
        except WaitTimedOut:
            return False
        return all(process.is_running for process in self.processes)

    def _are_engines_live(self) -> bool:
        engines = [engine for engine in self.deployment.weft.store.engines.list() if engine.status == "live"]
        return len(engines) == 2 and not any(engine.is_deaf or engine.silence_ms > 1000 for engine in engines)


def _migrated(postgres: LocalPostgres) -> str:
    url = postgres.create_database()
    database = Database(url)
    migrate(database)
    database.dispose()
    return url


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
