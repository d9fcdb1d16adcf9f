"""Clusters of real processes for `celery_setup`: a Redis of its own for each test, and workers as the module says.

A module that wants other workers overrides `worker_processes`. Started, ready and stopped are they here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pytest_celery import CeleryBackendCluster, CeleryBrokerCluster, CeleryWorkerCluster

from weft_tasks.testing.celery_commands import WorkerProcess, celery_worker
from weft_tasks.testing.cluster import backend_cluster, broker_cluster, connection_env, worker_cluster
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import tail

HERE = Path(__file__).parent


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
    for worker in worker_processes:
        sys.stdout.write(f"-- {worker.name}\n{tail(worker.log_text())}\n")
