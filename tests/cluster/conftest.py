"""Clusters of real processes for `celery_setup`: a Redis of its own for each test, and workers as the module says.

A module that wants other workers overrides `worker_processes`. Started, ready and stopped are they here. Modules about
the suite make its processes with `deployment`; a test that starts and kills many takes it alone.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from deployment import Deployment, show_logs
from pytest_celery import CeleryBackendCluster, CeleryBrokerCluster, CeleryTestSetup, CeleryWorkerCluster

from weft_tasks.store.database import Database
from weft_tasks.store.schema import migrate
from weft_tasks.testing.celery_commands import WorkerProcess, celery_worker
from weft_tasks.testing.cluster import backend_cluster, broker_cluster, connection_env, worker_cluster
from weft_tasks.testing.databases import Databases
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess

HERE = Path(__file__).parent
TEMPLATE = "weft_template"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts into the background so, and every process of a test would ignore Ctrl-C as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def local_redis() -> Iterator[LocalRedis]:
    with LocalRedis() as server:
        yield server


@pytest.fixture
def celery_broker_cluster(local_redis: LocalRedis) -> CeleryBrokerCluster:
    return broker_cluster(local_redis)


@pytest.fixture
def celery_backend_cluster(local_redis: LocalRedis) -> CeleryBackendCluster:
    return backend_cluster(local_redis)


@pytest.fixture
def process_env(
    celery_broker_cluster: CeleryBrokerCluster, celery_backend_cluster: CeleryBackendCluster
) -> dict[str, str]:
    """What workers and beat are told through the environment; a module may add settings."""
    return connection_env(celery_broker_cluster, celery_backend_cluster)


@pytest.fixture
def worker_processes(process_env: dict[str, str], tmp_path: Path) -> Sequence[WorkerProcess]:
    """The workers of the test, not started yet."""
    return [
        celery_worker(
            "plain_app:app",
            node=f"{name}@local",
            log_folder=tmp_path,
            env=process_env,
            import_paths=[HERE],
            # Mingle spends a second of every start on waiting for neighbours.
            extra=["--without-mingle", "--without-gossip"],
        )
        for name in ("e1", "e2")
    ]


@pytest.fixture
def celery_worker_cluster(worker_processes: Sequence[WorkerProcess]) -> Iterator[CeleryWorkerCluster]:
    """The cluster, and the end of each worker's log, which pytest shows when the test failed."""
    with worker_cluster(*worker_processes) as cluster:
        yield cluster
    show_logs(*worker_processes)


# -- the suite


@pytest.fixture(scope="session")
def new_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """By the name of a backend, the URL of another migrated database there."""
    made: set[str] = set()

    def url_of(backend: str) -> str:
        if backend == "sqlite":
            return _migrated(f"sqlite:///{tmp_path_factory.mktemp('store') / 'weft.sqlite3'}")
        server: Databases = request.getfixturevalue("postgres_server")
        if not made:
            made.add(_migrated(server.create_database(TEMPLATE)))
        return server.create_database(template=TEMPLATE)

    return url_of


def _migrated(url: str) -> str:
    database = Database(url)
    migrate(database)
    database.dispose()
    return url


@pytest.fixture
def database_url(new_database: Callable[[str], str]) -> str:
    return new_database("postgresql")


@pytest.fixture
def deployment(process_env: dict[str, str], database_url: str, tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(env={**process_env, "DATABASE_URL": database_url}, folder=tmp_path)
    yield deployment
    deployment.open_gates()


@pytest.fixture
def start(deployment: Deployment) -> Iterator[Callable[..., None]]:
    """Start processes side by side and wait until they are ready; killed at the end, with their logs to be seen."""
    with ExitStack() as stack:

        def start_all(*processes: LocalProcess) -> None:
            for process in processes:
                stack.callback(show_logs, process)
                stack.callback(process.kill)
                process.start()
            for process in processes:
                process.wait_until_ready()

        yield start_all


@pytest.fixture
def setup(celery_setup: CeleryTestSetup) -> CeleryTestSetup:
    """`celery_setup` with every node answering."""
    assert celery_setup.ready(ping=False, control=True, docker=True)
    return celery_setup
