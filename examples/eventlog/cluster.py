"""The processes of the demo: servers, three engines, one worker for maintenance, beat. Each is an ordinary command."""

from __future__ import annotations

import os
import shlex
import sys
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

from weft_tasks.testing.celery_commands import WorkerProcess, celery_beat, celery_worker
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess

APP = "examples.eventlog.app"
STOP_PATIENCE = timedelta(seconds=5)
ENGINES = ("engine-1", "engine-2", "engine-3")
QUIET = ("--without-gossip", "--without-mingle")
"""Workers need not know each other; each would spend a second of its start on that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Where broker and database are. `prefix` keeps our workflows apart in a database that is not ours alone."""

    broker_url: str
    database_url: str
    prefix: str

    @property
    def environment(self) -> Mapping[str, str]:
        return {"BROKER_URL": self.broker_url, "DATABASE_URL": self.database_url}


@contextmanager
def servers(database: str, folder: Path) -> Iterator[Servers]:
    """The servers that BROKER_URL and DATABASE_URL name, else our own for as long as the context lasts."""
    with ExitStack() as stack:
        broker_url = os.environ.get("BROKER_URL") or stack.enter_context(LocalRedis()).url()
        given = os.environ.get("DATABASE_URL")
        if given:
            database_url, prefix = given, f"demo-{uuid.uuid4().hex[:6]}/"
        elif database == "postgres":
            database_url, prefix = stack.enter_context(LocalPostgres()).create_database("weft"), ""
        else:
            database_url, prefix = f"sqlite:///{folder / 'weft.sqlite3'}", ""
        yield Servers(broker_url=broker_url, database_url=database_url, prefix=prefix)


class Cluster:
    """Three engines and what else runs. As a context manager everything is ready at entry, and stopped
    at exit."""

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self._logs, self._environment = logs, environment
        self.engines = tuple(self._worker(name, "weft.turns") for name in ENGINES)
        self.maintenance = self._worker("maintenance", "weft.maintenance")
        self.beat = celery_beat(APP, log_folder=logs, env=environment)

    @property
    def processes(self) -> tuple[LocalProcess, ...]:
        return (*self.engines, self.maintenance, self.beat)

    @property
    def commands(self) -> tuple[str, ...]:
        """What is run, as one would type it."""
        return tuple("celery " + shlex.join(process.argv[3:]) for process in self.processes)

    def client(self, log: Path, *, receipts: Path, prefix: str, seconds: float) -> LocalProcess:
        """The client that replays the log, not started yet."""
        argv = [sys.executable, "-m", "examples.eventlog.replay", str(log), "--receipts", str(receipts)]
        return LocalProcess(
            [*argv, "--prefix", prefix, "--seconds", f"{seconds:g}"],
            name="client",
            log_path=self._logs / "client.log",
            env=self._environment,
        )

    def __enter__(self) -> Self:
        try:
            for process in self.processes:
                process.start()
            for process in self.processes:
                process.wait_until_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop()

    def _stop(self) -> None:
        """Side by side: a worker takes seconds to stop."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda process: process.stop(STOP_PATIENCE), self.processes))

    def _worker(self, name: str, queue: str) -> WorkerProcess:
        return celery_worker(
            APP,
            node=f"{name}@%h",
            queues=[queue],
            concurrency=2,
            log_folder=self._logs,
            env=self._environment,
            extra=QUIET,
        )
