"""Servers and ordinary `celery` processes for the benchmarks that need real workers, stopped at their end."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from benchmarks.stores import POSTGRES
from weft_tasks.testing.celery_commands import WorkerProcess, celery_beat, celery_worker
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess

APP = "benchmarks.app"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What runs: the servers, the engines, and the environment in which further processes find them."""

    folder: Path
    environment: Mapping[str, str]
    postgres: LocalPostgres
    redis: redis.Redis
    engines: tuple[WorkerProcess, ...]
    maintenance: WorkerProcess | None
    beat: LocalProcess | None
    weft: Any

    @property
    def processes(self) -> tuple[LocalProcess, ...]:
        return tuple(each for each in (*self.engines, self.maintenance, self.beat) if each is not None)


@contextmanager
def cluster(
    *, engines: int = 1, concurrency: int = 2, passes: bool = True, postgres: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Engines, and with `passes` a maintenance worker and beat, on a durable PostgreSQL and a Redis of their own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-bench-")))
        broker = stack.enter_context(LocalRedis())
        database = stack.enter_context(LocalPostgres(durable=True, settings={**POSTGRES, **(postgres or {})}))
        environment = {"BROKER_URL": broker.url(), "DATABASE_URL": database.create_database()}
        os.environ.update(environment)
        from benchmarks.app import weft  # Reads the environment.

        weft.migrate()

        def worker(name: str, *queues: str) -> WorkerProcess:
            process = celery_worker(
                APP,
                node=f"{name}@%h",
                queues=queues,
                concurrency=concurrency,
                log_folder=folder,
                env={**os.environ, **environment},
                extra=["--without-gossip", "--without-mingle", "--loglevel", "INFO"],
            )
            stack.callback(process.stop)
            process.start()
            return process

        started = tuple(worker(f"engine-{number}", "celery", "weft.turns") for number in range(engines))
        maintenance = worker("maintenance", "weft.maintenance") if passes else None
        beat = None
        if passes:
            beat = celery_beat(APP, log_folder=folder, env={**os.environ, **environment})
            stack.callback(beat.stop)
            beat.start()
        found = Cluster(
            folder=folder,
            environment=environment,
            postgres=database,
            redis=redis.Redis.from_url(broker.url()),
            engines=started,
            maintenance=maintenance,
            beat=beat,
            weft=weft,
        )
        for process in found.processes:
            process.wait_until_ready()
        yield found
        weft.store.database.dispose()
