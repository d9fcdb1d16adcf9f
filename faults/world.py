"""The processes under fault: three engines, a worker for maintenance, two beats, Redis, and PostgreSQL or SQLite.

Everything is an ordinary command. Engine 3 reaches its servers through proxies, so that the network between can be cut;
so does everybody, if `all_by_proxy`. `clocks` puts processes under libfaketime.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from sqlalchemy import make_url, text

from faults import app as application
from faults.ledger import VARIABLE, Ledger
from faults.proxy import Proxy
from weft_tasks.errors import StoreUnavailable
from weft_tasks.testing.celery_commands import WorkerProcess, celery_beat, celery_worker
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until

APP = "faults.app"
ENGINES = ("engine-1", "engine-2", "engine-3")
FAR_ENGINE = "engine-3"
MAINTENANCE = "maintenance"
BEATS = ("beat-1", "beat-2")
QUIET = ("--without-gossip", "--without-mingle")
QUEUES = ("celery", "weft.turns")
POSTGRES = {"deadlock_timeout": "100ms"}
"""So that a deadlock is found before a statement's time limit ends it."""
LONG = timedelta(seconds=60)
STOP_PATIENCE = timedelta(seconds=8)


class World:
    """One deployment. As a context manager everything is ready at entry and gone at exit."""

    def __init__(
        self,
        database: str,
        folder: Path,
        *,
        all_by_proxy: bool = False,
        clocks: Mapping[str, Mapping[str, str]] | None = None,
        settings: Mapping[str, Any] | None = None,
        small_disk: bool = False,
        jumping: Sequence[str] = (),
    ) -> None:
        self.database = database
        self.folder = folder
        self.logs = folder / "logs"
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.started_again: list[str] = []
        """Processes that had ended by themselves, as a worker does that finds no database at its start."""
        self._all_by_proxy, self._clocks, self._settings = all_by_proxy, clocks or {}, settings or {}
        self._small_disk = small_disk
        self._jumping = tuple(jumping)
        self._stack = ExitStack()
        self.began = time.time()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.logs.mkdir(parents=True, exist_ok=True)
            self.redis = stack.enter_context(LocalRedis())
            self.to_redis = stack.enter_context(Proxy(self.redis.port))
            self.postgres: LocalPostgres | None = None
            self.to_database: Proxy | None = None
            disk = stack.enter_context(_small_disk(self.folder / "disk")) if self._small_disk else self.folder
            self._database_url = f"sqlite:///{disk / 'weft.sqlite3'}"
            if self.database == "postgres":
                self.postgres = stack.enter_context(LocalPostgres(durable=False, settings=POSTGRES))
                self.to_database = stack.enter_context(Proxy(self.postgres.port))
                self._database_url = self.postgres.create_database("weft")
            self.environment = self._environment(by_proxy=False)
            self.weft = application.build(self.environment)
            self.weft.app.finalize()
            self.weft.migrate()
            stack.callback(self.weft.store.database.dispose)
            self.engines = {name: self._worker(name, QUEUES) for name in ENGINES}
            self.maintenance = self._worker(MAINTENANCE, ["weft.maintenance"], concurrency=5)
            self.beats = {name: self._beat(name) for name in BEATS}
            stack.callback(self._stop)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    # -- processes

    @property
    def processes(self) -> dict[str, LocalProcess]:
        return {**self.engines, MAINTENANCE: self.maintenance, **self.beats}

    def client(self, prefix: str, number: int, *, seed: int, seconds: float, rate: float) -> LocalProcess:
        """A client process, not started yet; its receipts are in `receipts(prefix)`."""
        name = f"client-{prefix}-{number}"
        receipts = self.folder / f"{name}.jsonl"
        receipts.unlink(missing_ok=True)
        words = [prefix, str(number), str(seed), f"{seconds:g}", f"{rate:g}", str(receipts)]
        return LocalProcess(
            [sys.executable, "-m", "faults.client", *words],
            name=name,
            log_path=self.logs / f"{name}.log",
            env=self._environment(by_proxy=self._all_by_proxy),
        )

    def receipts(self, prefix: str) -> list[dict[str, Any]]:
        return [line for path in self.folder.glob(f"client-{prefix}-*.jsonl") for line in Ledger(path).lines()]

    def heal(self) -> None:
        """Everything runs, nothing is cut, three engines are live: what a supervisor and an operator would do."""
        self.to_redis.mend()
        if self.to_database is not None:
            self.to_database.mend()
        for server in (self.redis, self.postgres):
            if server is not None:
                server.resume() if server.is_running else server.start()
        for process in self.processes.values():
            process.thaw()
        wait_until(self._is_well_again, what="three live engines that hear", timeout=LONG)

    def _is_well_again(self) -> bool:
        self.supervise()
        return self.is_well()

    def supervise(self, held_down: Collection[str | None] = ()) -> None:
        """Start what has ended by itself, as a supervisor does; not what a fault holds down."""
        for name, process in self.processes.items():
            if name not in held_down and not process.is_running:
                self.started_again.append(name)
                process.start()

    def is_well(self) -> bool:
        try:
            engines = [engine for engine in self.weft.store.engines.list() if engine.status == "live"]
        except StoreUnavailable:
            return False
        return len(engines) == len(ENGINES) and not any(e.is_deaf or e.silence_ms > 1500 for e in engines)

    # -- the store, past the product

    def query(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self.weft.store.database.reading() as connection:
            return [tuple(row) for row in connection.execute(text(statement), parameters)]

    def execute(self, statement: str, **parameters: Any) -> int:
        """One statement that writes; the number of rows."""
        with self.weft.store.database.transaction() as connection:
            return int(connection.execute(text(statement), parameters).rowcount)

    @contextmanager
    def superuser(self) -> Iterator[Any]:
        """A connection to PostgreSQL's maintenance database, each statement by itself."""
        import psycopg

        from weft_tasks.testing.databases import libpq_url

        assert self.postgres is not None
        with psycopg.connect(libpq_url(self.postgres.url()), autocommit=True) as connection:
            yield connection

    def database_file(self) -> Path:
        return Path(str(make_url(self._database_url).database))

    def set_clock(self, name: str, offset: str) -> None:
        """Let the clock of a process in `jumping` jump, such as to "+3600s"."""
        file = self._clock_file(name)
        new = file.with_suffix(".new")
        new.write_text(offset + "\n")
        new.rename(file)

    # -- private

    def _clock_file(self, name: str) -> Path:
        return self.folder / f"clock-of-{name}"

    def _clock_of(self, name: str) -> Mapping[str, str]:
        if name in self._jumping:
            self.set_clock(name, "+0s")
            return clock("+0s", self._clock_file(name))
        return self._clocks.get(name, {})

    def _environment(self, *, by_proxy: bool) -> dict[str, str]:
        redis, database = self.redis.url(), self._database_url
        if by_proxy:
            redis = redis.replace(f":{self.redis.port}", f":{self.to_redis.port}")
            if self.postgres is not None and self.to_database is not None:
                database = database.replace(f":{self.postgres.port}", f":{self.to_database.port}")
        return {
            "BROKER_URL": redis,
            "DATABASE_URL": database,
            "FAULTS_CONFIG": json.dumps(dict(self._settings)),
            VARIABLE: str(self.ledger.path),
        }

    def _worker(self, name: str, queues: Sequence[str], concurrency: int = 2) -> WorkerProcess:
        by_proxy = self._all_by_proxy or name == FAR_ENGINE
        return celery_worker(
            APP,
            node=f"{name}@local",
            queues=queues,
            concurrency=concurrency,
            log_folder=self.logs,
            env={**self._environment(by_proxy=by_proxy), **self._clock_of(name)},
            extra=QUIET,
        )

    def _beat(self, name: str) -> LocalProcess:
        env = {**self._environment(by_proxy=self._all_by_proxy), **self._clock_of(name)}
        return celery_beat(APP, name=name, log_folder=self.logs, env=env)

    def _start(self) -> None:
        for process in self.processes.values():
            process.start()
        for process in self.processes.values():
            process.wait_until_ready(LONG)
        wait_until(self.is_well, what="three live engines", timeout=LONG)

    def _stop(self) -> None:
        """All are killed: what they hold is nobody's concern any more."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda process: process.kill(), self.processes.values()))


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 8 MB, which only root can mount."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def libfaketime() -> Path | None:
    """The library that shifts a process's clock, where Debian puts it."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return found[0] if found else None


def no_faketime() -> str | None:
    """Why no clock can be shifted here, if so."""
    return None if libfaketime() else "libfaketime is not installed (Debian: apt-get install faketime)"


def clock(offset: str, file: Path | None = None) -> dict[str, str]:
    """The environment of a process whose clock is off: fixed, or as `file` says at each moment. The monotonic clock is
    left alone, because no step of a host's clock moves it."""
    library = libfaketime()
    assert library is not None
    say = {"FAKETIME": offset} if file is None else {"FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1"}
    return {"LD_PRELOAD": str(library), "FAKETIME_DONT_FAKE_MONOTONIC": "1", **say}
