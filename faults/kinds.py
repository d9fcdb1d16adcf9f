"""The faults: each can begin and end, says whom it touches, and whether work can go on for the others meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import redis

from faults.world import FAR_ENGINE, MAINTENANCE, STOP_PATIENCE, World
from weft_tasks.testing.errors import WaitTimedOut
from weft_tasks.testing.processes import LocalProcess

Way = Literal["to-server", "to-client", "both"]
RECONNECT_S = 14
"""What kombu may take to be back after outages as short as here: it waits 2, 4, 6 … s between tries."""


class Fault(ABC):
    """`begin` and `end` return soon. `node`: the engine that it makes unfit, whose workflows may move. `holds_down`: a
    process that only its end starts again. `halts`: while it lasts nobody can work, or nobody can tell; `lag_s`: how
    long after its end that may go on."""

    node: str | None = None
    holds_down: str | None = None
    halts: ClassVar[bool] = False
    lag_s: ClassVar[float] = 0.0
    only: ClassVar[tuple[str, ...]] = ("postgres", "sqlite")

    @abstractmethod
    def begin(self, world: World) -> None:
        """Do it."""

    def end(self, world: World) -> None:
        """Undo it, as a supervisor or an operator would."""
        return

    @abstractmethod
    def __str__(self) -> str:
        """What the report says was done."""


# -- engines, beat, maintenance


@dataclass
class Killed(Fault):
    """SIGKILL to a process and all that came from it; its end starts it again."""

    who: str

    def __post_init__(self) -> None:
        self.node = self.who if self.who.startswith("engine") else None
        self.holds_down = self.who

    def begin(self, world: World) -> None:
        world.processes[self.who].kill()

    def end(self, world: World) -> None:
        world.processes[self.who].start()

    def __str__(self) -> str:
        return f"SIGKILL {self.who}, main process and pool"


@dataclass
class MainKilled(Killed):
    """SIGKILL to the main process alone."""

    def begin(self, world: World) -> None:
        world.processes[self.who].kill_main_only()

    def __str__(self) -> str:
        return f"SIGKILL the main process of {self.who}"


@dataclass
class PoolProcessKilled(Fault):
    """SIGKILL to one process of an engine's pool; the engine replaces it."""

    who: str

    def begin(self, world: World) -> None:
        children = world.processes[self.who].child_pids()
        if children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(children[0], signal.SIGKILL)

    def __str__(self) -> str:
        return f"SIGKILL a pool process of {self.who}"


@dataclass
class Frozen(Fault):
    """SIGSTOP to a process and its pool, SIGCONT at its end."""

    who: str

    def __post_init__(self) -> None:
        self.node = self.who if self.who.startswith("engine") else None

    def begin(self, world: World) -> None:
        world.processes[self.who].freeze()

    def end(self, world: World) -> None:
        world.processes[self.who].thaw()

    def __str__(self) -> str:
        return f"SIGSTOP {self.who}, main process and pool"


@dataclass
class Stopped(Fault):
    """SIGTERM; its end waits a little, sends SIGKILL if it must, and starts it again."""

    who: str

    def __post_init__(self) -> None:
        self.node = self.who if self.who.startswith("engine") else None
        self.holds_down = self.who

    def begin(self, world: World) -> None:
        world.processes[self.who].terminate()

    def end(self, world: World) -> None:
        process = world.processes[self.who]
        end_of(process)
        process.start()

    def __str__(self) -> str:
        return f"SIGTERM {self.who}"


def end_of(process: LocalProcess) -> None:
    """Wait as long as a supervisor does; then SIGKILL."""
    try:
        process.wait(STOP_PATIENCE)
    except WaitTimedOut:
        process.kill()


# -- Redis


@dataclass
class RedisGone(Fault):
    """SIGKILL to Redis; it comes back empty."""

    halts: ClassVar[bool] = True
    lag_s: ClassVar[float] = RECONNECT_S

    def begin(self, world: World) -> None:
        world.redis.kill()

    def end(self, world: World) -> None:
        world.redis.start()

    def __str__(self) -> str:
        return "SIGKILL Redis, which comes back empty"


@dataclass
class RedisSilent(Fault):
    """SIGSTOP to Redis: connections stay open, and nothing answers."""

    halts: ClassVar[bool] = True
    lag_s: ClassVar[float] = RECONNECT_S

    def begin(self, world: World) -> None:
        world.redis.pause()

    def end(self, world: World) -> None:
        world.redis.resume()

    def __str__(self) -> str:
        return "SIGSTOP Redis"


@dataclass
class RedisCommand(Fault):
    """One command of an operator that destroys something, such as FLUSHALL."""

    words: tuple[str, ...]

    def begin(self, world: World) -> None:
        with world.redis.client() as client:
            client.execute_command(*self.words)

    def __str__(self) -> str:
        return " ".join(self.words)


@dataclass
class RedisSetting(Fault):
    """A limit of Redis, such as maxmemory or maxclients; its end sets it back."""

    name: str
    value: str
    halts: ClassVar[bool] = True
    lag_s: ClassVar[float] = RECONNECT_S
    _before: str = ""
    _admin: redis.Redis | None = None

    def begin(self, world: World) -> None:
        # Kept until the end: under a limit of one connection it is the one, and nobody else gets any.
        self._admin = redis.Redis(port=world.redis.port, single_connection_client=True, socket_timeout=5)
        self._before = str(self._admin.config_get(self.name)[self.name])
        self._admin.config_set(self.name, self.value)
        if self.name == "maxclients":
            self._admin.client_kill_filter(_type="normal", skipme=True)

    def end(self, world: World) -> None:
        assert self._admin is not None
        self._admin.config_set(self.name, self._before)
        self._admin.close()

    def __str__(self) -> str:
        return f"Redis {self.name} = {self.value}"


# -- the database


@dataclass
class DatabaseGone(Fault):
    """SIGKILL to PostgreSQL; it recovers from its log when it comes back."""

    halts: ClassVar[bool] = True
    lag_s: ClassVar[float] = 4
    only: ClassVar[tuple[str, ...]] = ("postgres",)

    def begin(self, world: World) -> None:
        assert world.postgres is not None
        world.postgres.kill()

    def end(self, world: World) -> None:
        assert world.postgres is not None
        world.postgres.start()

    def __str__(self) -> str:
        return "SIGKILL PostgreSQL"


@dataclass
class DatabaseRestarted(Fault):
    """A fast shutdown and a start, as an upgrade does it."""

    halts: ClassVar[bool] = True
    lag_s: ClassVar[float] = 4
    only: ClassVar[tuple[str, ...]] = ("postgres",)

    def begin(self, world: World) -> None:
        assert world.postgres is not None
        world.postgres.restart()

    def __str__(self) -> str:
        return "restart PostgreSQL"


@dataclass
class ConnectionsTerminated(Fault):
    """pg_terminate_backend for every connection of the suite."""

    only: ClassVar[tuple[str, ...]] = ("postgres",)

    def begin(self, world: World) -> None:
        with world.superuser() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'weft_tasks'"
            )

    def __str__(self) -> str:
        return "pg_terminate_backend for all"


@dataclass
class TableLocked(Fault):
    """Somebody's migration: an exclusive lock on the table of workflows, or SQLite's one write lock."""

    halts: ClassVar[bool] = True
    lag_s: ClassVar[float] = 4
    _release: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self, world: World) -> None:
        taken = threading.Event()
        hold = self._hold_sqlite if world.database == "sqlite" else self._hold_postgres
        self._release.clear()
        self._thread = threading.Thread(target=hold, args=(world, taken), daemon=True)
        self._thread.start()
        taken.wait(10)

    def end(self, world: World) -> None:
        self._release.set()
        if self._thread is not None:
            self._thread.join(10)

    def _hold_sqlite(self, world: World, taken: threading.Event) -> None:
        connection = sqlite3.connect(world.database_file(), timeout=10, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        taken.set()
        self._release.wait(60)
        connection.rollback()
        connection.close()

    def _hold_postgres(self, world: World, taken: threading.Event) -> None:
        import psycopg

        from weft_tasks.testing.databases import libpq_url

        assert world.postgres is not None
        with psycopg.connect(libpq_url(world.postgres.url("weft"))) as connection:
            connection.execute("LOCK TABLE weft_workflows IN ACCESS EXCLUSIVE MODE")
            taken.set()
            self._release.wait(60)
            connection.rollback()

    def __str__(self) -> str:
        return "lock the table of workflows (SQLite: the write lock)"


@dataclass
class DatabaseSetting(Fault):
    """A setting of the database for every new connection; the old ones are ended, so that all get it."""

    name: str
    value: str
    halts: ClassVar[bool] = True
    lag_s: ClassVar[float] = 4
    only: ClassVar[tuple[str, ...]] = ("postgres",)

    def begin(self, world: World) -> None:
        self._alter(world, f"ALTER DATABASE weft SET {self.name} = '{self.value}'")

    def end(self, world: World) -> None:
        self._alter(world, f"ALTER DATABASE weft RESET {self.name}")

    def _alter(self, world: World, statement: str) -> None:
        with world.superuser() as connection:
            connection.execute(statement)
        ConnectionsTerminated().begin(world)

    def __str__(self) -> str:
        return f"PostgreSQL {self.name} = {self.value}"


@dataclass
class ConnectionsExhausted(Fault):
    """Somebody else has taken every connection that PostgreSQL allows; the suite's are ended."""

    halts: ClassVar[bool] = True
    lag_s: ClassVar[float] = 4
    only: ClassVar[tuple[str, ...]] = ("postgres",)
    _taken: list[Any] = field(default_factory=list)

    def begin(self, world: World) -> None:
        import psycopg

        from weft_tasks.testing.databases import libpq_url

        assert world.postgres is not None
        url = libpq_url(world.postgres.url())
        for _round in range(2):
            with contextlib.suppress(psycopg.OperationalError):
                while True:
                    self._taken.append(psycopg.connect(url, autocommit=True))
            self._taken[0].execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'weft_tasks'"
            )

    def end(self, world: World) -> None:
        while self._taken:
            self._taken.pop().close()

    def __str__(self) -> str:
        return "all connections of PostgreSQL taken by somebody else"


class Nuisance(Fault):
    """Something that a thread of the bench does to the database again and again until it ends."""

    only: ClassVar[tuple[str, ...]] = ("postgres",)
    database = "postgres"

    def begin(self, world: World) -> None:
        self._over, self._failed = threading.Event(), []  # type: ignore[var-annotated]
        self._thread = threading.Thread(target=self._run, args=(world,), daemon=True)
        self._thread.start()

    def end(self, world: World) -> None:
        self._over.set()
        self._thread.join(10)
        if self._failed:
            raise RuntimeError(f"{self}: {self._failed[0]}")

    def _run(self, world: World) -> None:
        import psycopg

        from weft_tasks.testing.databases import libpq_url

        assert world.postgres is not None
        try:
            with psycopg.connect(libpq_url(world.postgres.url(self.database)), autocommit=True) as connection:
                while not self._over.wait(0.02):
                    with contextlib.suppress(psycopg.errors.DeadlockDetected):
                        self._bother(connection)
        except psycopg.Error as error:
            self._failed.append(error)

    @abstractmethod
    def _bother(self, connection: Any) -> None:
        """Once."""


@dataclass
class StatementsCancelled(Nuisance):
    """Some of the statements that run at the moment end as at their time limit."""

    def _bother(self, connection: Any) -> None:
        connection.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'weft_tasks' AND state = 'active' AND random() < 0.3"
        )

    def __str__(self) -> str:
        return "cancel a third of the statements that run, every 20 ms"


@dataclass
class RowsLockedBackwards(Nuisance):
    """Engine rows first and workflows after them, which is the opposite of the suite's order."""

    database = "weft"

    def _bother(self, connection: Any) -> None:
        with connection.transaction():
            connection.execute("SELECT 1 FROM weft_engines FOR UPDATE")
            connection.execute("SELECT 1 FROM weft_workflows WHERE status = 'running' ORDER BY id DESC FOR UPDATE")

    def __str__(self) -> str:
        return "lock engines, then workflows, every 20 ms"


@dataclass
class WritesRefused(Fault):
    """A share of the updates of workflows fails with this SQLSTATE, half of them only at the commit."""

    sqlstate: str
    only: ClassVar[tuple[str, ...]] = ("postgres",)

    def begin(self, world: World) -> None:
        body = f"RAISE EXCEPTION 'refused by the bench' USING ERRCODE = '{self.sqlstate}'"
        self._do(
            world,
            "CREATE FUNCTION faults_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN IF random() < 0.05 THEN {body}; END IF; RETURN NEW; END $$",
            "CREATE TRIGGER faults_at_once BEFORE UPDATE ON weft_workflows"
            " FOR EACH ROW EXECUTE FUNCTION faults_refuse()",
            "CREATE CONSTRAINT TRIGGER faults_at_commit AFTER UPDATE ON weft_workflows"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faults_refuse()",
        )

    def end(self, world: World) -> None:
        self._do(world, "DROP FUNCTION faults_refuse() CASCADE")

    def _do(self, world: World, *statements: str) -> None:
        import psycopg

        from weft_tasks.testing.databases import libpq_url

        assert world.postgres is not None
        with psycopg.connect(libpq_url(world.postgres.url("weft"))) as connection:
            for statement in statements:
                connection.execute(statement)

    def __str__(self) -> str:
        return f"one update of a workflow in ten fails with {self.sqlstate}, half of them at the commit"


@dataclass
class DiskFull(Fault):
    """A file takes all that is left of the small file system on which the store is."""

    halts: ClassVar[bool] = True
    lag_s: ClassVar[float] = 4
    only: ClassVar[tuple[str, ...]] = ("sqlite",)

    def begin(self, world: World) -> None:
        with self._filler(world).open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)

    def end(self, world: World) -> None:
        self._filler(world).unlink()

    @staticmethod
    def _filler(world: World) -> Path:
        return world.database_file().with_name("filler")

    def __str__(self) -> str:
        return "fill the disk of the store"


# -- the network between engine 3 and a server


@dataclass
class Cut(Fault):
    """Nothing passes between engine 3 and a server, in one direction or both; nobody is told."""

    server: Literal["redis", "database"]
    way: Way = "both"

    def __post_init__(self) -> None:
        self.node = FAR_ENGINE

    def begin(self, world: World) -> None:
        proxy_to(world, self.server).cut(to_server=self.way != "to-client", to_client=self.way != "to-server")

    def end(self, world: World) -> None:
        proxy_to(world, self.server).mend()

    def __str__(self) -> str:
        return f"cut engine-3 from {self.server} ({self.way})"


@dataclass
class ConnectionsReset(Fault):
    """Every connection between engine 3 and a server ends at once."""

    server: Literal["redis", "database"]

    def __post_init__(self) -> None:
        self.node = FAR_ENGINE

    def begin(self, world: World) -> None:
        proxy_to(world, self.server).reset()

    def __str__(self) -> str:
        return f"reset the connections of engine-3 to {self.server}"


@dataclass
class Slow(Fault):
    """Everything between a server and whoever reaches it through its proxy comes later."""

    server: Literal["redis", "database"]
    delay_s: float

    def begin(self, world: World) -> None:
        proxy_to(world, self.server).slow(self.delay_s)

    def end(self, world: World) -> None:
        proxy_to(world, self.server).slow(0)

    def __str__(self) -> str:
        return f"{self.server} is {1000 * self.delay_s:g} ms slower each way"


def proxy_to(world: World, server: str) -> Any:
    proxy = world.to_redis if server == "redis" else world.to_database
    assert proxy is not None
    return proxy


def is_halting(fault: Fault, database: str) -> bool:
    """Whether nobody can work meanwhile. On SQLite a process that is frozen inside a write stops all writers; without
    the maintenance worker no pass runs."""
    frozen_writer = isinstance(fault, Frozen) and database == "sqlite"
    no_passes = isinstance(fault, Killed | Frozen | Stopped) and fault.who == MAINTENANCE
    return fault.halts or frozen_writer or no_passes
