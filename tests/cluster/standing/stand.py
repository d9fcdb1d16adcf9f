"""A cluster that stands for many tests."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from deployment import Deployment

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
