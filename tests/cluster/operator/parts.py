"""What an operator can stop: two engines, a worker for maintenance, beat, Redis and PostgreSQL."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from deployment import Deployment

from weft_tasks.store.database import Database
from weft_tasks.store.schema import migrate
from weft_tasks.testing.cluster import backend_cluster, broker_cluster, connection_env
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.local_redis import LocalRedis


class Parts:
    """A deployment as docs/operating.md has it, and each part of it."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.redis = stack.enter_context(LocalRedis())
        self.postgres = stack.enter_context(LocalPostgres(durable=False))
        url = self.postgres.create_database()
        database = Database(url)
        migrate(database)
        database.dispose()
        env = connection_env(broker_cluster(self.redis), backend_cluster(self.redis))
        self.deployment = Deployment(env={**env, "DATABASE_URL": url}, folder=folder)
        engines = ["celery", "weft.turns"]
        self.engine = self.deployment.worker("e1", concurrency=1, queues=engines)
        self.other_engine = self.deployment.worker("e2", concurrency=1, queues=engines)
        self.maintenance = self.deployment.worker("m1", concurrency=2, queues=["weft.maintenance"])
        self.beat = self.deployment.beat()
        self.processes = (self.engine, self.other_engine, self.maintenance, self.beat)
        for process in self.processes:
            stack.callback(process.kill)
            process.start()
        for process in self.processes:
            process.wait_until_ready()
