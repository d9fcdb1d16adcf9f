"""pytest-celery's clusters with local processes for nodes, so that `celery_setup` runs without Docker.

A conftest overrides three fixtures; see `tests/cluster/conftest.py` for the whole of it:

    celery_broker_cluster    ->  broker_cluster(redis)
    celery_backend_cluster   ->  backend_cluster(redis)
    celery_worker_cluster    ->  with worker_cluster(celery_worker("app:app", …), …) as cluster: yield cluster

pytest-celery insists on its own types: nodes here, and in `containers.py` what it takes for their containers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pytest_celery import (
    CeleryBackendCluster,
    CeleryBrokerCluster,
    CeleryTestBackend,
    CeleryTestBroker,
    CeleryTestWorker,
    CeleryWorkerCluster,
)

from weft_tasks.testing.celery_commands import WorkerProcess
from weft_tasks.testing.containers import RedisContainer, WorkerContainer
from weft_tasks.testing.local_redis import LocalRedis

BROKER_DATABASE = 0
BACKEND_DATABASE = 1


def broker_cluster(redis: LocalRedis) -> CeleryBrokerCluster:
    """A broker cluster of one running Redis, which stays the caller's to stop."""
    return CeleryBrokerCluster(BrokerNode(RedisContainer(redis, BROKER_DATABASE)))


def backend_cluster(redis: LocalRedis) -> CeleryBackendCluster:
    """A result backend cluster of one running Redis; it may be the broker's, the database is another one."""
    return CeleryBackendCluster(BackendNode(RedisContainer(redis, BACKEND_DATABASE)))


def connection_env(broker: CeleryBrokerCluster, backend: CeleryBackendCluster) -> dict[str, str]:
    """What tells a process where broker and backend are. Celery itself obeys the first and the last."""
    broker_url, backend_url = broker[0].config()["url"], backend[0].config()["url"]
    return {"CELERY_BROKER_URL": broker_url, "BROKER_URL": broker_url, "CELERY_RESULT_BACKEND": backend_url}


@contextmanager
def worker_cluster(*workers: WorkerProcess) -> Iterator[CeleryWorkerCluster]:
    """Start the workers side by side, and wait until all are ready.

    At the end they are killed: a warm shutdown takes two seconds, and a test that wants one calls `terminate`.
    """
    with ExitStack() as stack:
        for worker in workers:
            stack.callback(worker.kill)
            worker.start()
        for worker in workers:
            worker.wait_until_ready()
        yield CeleryWorkerCluster(*(WorkerNode(WorkerContainer(worker)) for worker in workers))


class WorkerNode(CeleryTestWorker):  # type: ignore[misc]
    """A worker of `celery_setup.worker_cluster`. `kill()` and `restart()` are pytest-celery's, and reach the pool."""

    def __init__(self, container: WorkerContainer) -> None:
        super().__init__(container, app=None)

    @property
    def process(self) -> WorkerProcess:
        """The whole choice of ways to die."""
        process: WorkerProcess = self.container.process
        return process

    def hostname(self) -> str:
        return self.process.node

    def freeze(self) -> None:
        """SIGSTOP the worker and its pool."""
        self.process.freeze()

    def thaw(self) -> None:
        self.process.thaw()

    def terminate(self) -> None:
        """SIGTERM: a warm shutdown begins. Does not wait."""
        self.process.terminate()

    def kill_main_only(self) -> None:
        self.process.kill_main_only()


class RedisNode:
    """What a broker and a backend have beyond pytest-celery's nodes."""

    container: RedisContainer

    @property
    def redis(self) -> LocalRedis:
        return self.container.redis

    def freeze(self) -> None:
        self.redis.pause()

    def thaw(self) -> None:
        self.redis.resume()

    def terminate(self) -> None:
        self.redis.process.terminate()


class BrokerNode(RedisNode, CeleryTestBroker):  # type: ignore[misc]
    """The broker of `celery_setup`. `restart()` keeps the data, `redis.restart(empty=True)` does not."""


class BackendNode(RedisNode, CeleryTestBackend):  # type: ignore[misc]
    """The result backend of `celery_setup`."""
