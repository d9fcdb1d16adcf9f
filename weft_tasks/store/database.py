"""Connections and transactions: one SQLAlchemy engine per process, built after the fork, and one place that translates
the drivers' errors.

A statement that fails for any other reason than its own data is StoreUnavailable: unknown, never refused (O8).
"""

from __future__ import annotations

import os
import select
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from sqlalchemy import URL, Connection, Engine, NullPool, QueuePool, Row, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    NoSuchModuleError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from weft_tasks.errors import SchemaError, SettingsError, StoreUnavailable
from weft_tasks.store.clock import milliseconds

AnyRow: TypeAlias = Row[*tuple[Any, ...]]
LOOK_AGAIN_S = 0.002
SUPPORTED = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a process may cost the database, and how long it may wait for it."""

    statement_timeout: timedelta = timedelta(seconds=2)
    connect_timeout: timedelta = timedelta(seconds=2)
    lock_wait: timedelta = timedelta(seconds=5)
    """SQLite only: how long a writer waits for the other one before it gives up."""
    pool_size: int = 20
    """0 keeps no connection open between transactions."""


class Database:
    """Transactions on one URL. Safe to build before a fork: each process opens connections of its own."""

    def __init__(self, url: str, limits: Limits | None = None) -> None:
        self._url = _checked_url(url)
        self._limits = limits or Limits()
        self._engine: Engine | None = None
        self._pid: int | None = None

    def __repr__(self) -> str:
        return f"Database({self._url.render_as_string(hide_password=True)!r})"

    @property
    def is_sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    @property
    def shown_url(self) -> str:
        """The URL without its password."""
        return self._url.render_as_string(hide_password=True)

    @property
    def engine(self) -> Engine:
        """This process's SQLAlchemy engine. One inherited over a fork is dropped without touching its connections."""
        if self._engine is None or self._pid != os.getpid():
            if self._engine is not None:
                self._engine.dispose(close=False)
            self._engine, self._pid = _build_engine(self._url, self._limits), os.getpid()
        return self._engine

    @contextmanager
    def transaction(self, connection: Connection | None = None) -> Iterator[Connection]:
        """One write transaction: commits at the end, rolls back on any error.

        With the caller's `connection` the statements join the caller's transaction, which alone decides.
        """
        with _translated():
            if connection is not None:
                yield connection
            else:
                with self.engine.begin() as own:
                    yield own

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        """A writing statement that is its own transaction: on PostgreSQL it costs one round trip instead of three.

        Each further statement in the context is a transaction of its own there.
        """
        if self.is_sqlite:
            with self.transaction() as connection:
                yield connection
        else:
            with _translated(), self._autocommit() as connection:
                yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Statements that only read. On SQLite they wait for no writer, and see one state of the store; on PostgreSQL
        each sees what is committed when it begins, as in any transaction of ours."""
        if self.is_sqlite:
            with _translated(), self.engine.connect() as connection:
                yield connection.execution_options(weft_reading=True)
        else:
            with _translated(), self._autocommit() as connection:
                yield connection

    def _autocommit(self) -> Connection:
        return self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def insert_into(self, table: Table) -> Any:
        """An insert that can say what a conflict does."""
        return (sqlite if self.is_sqlite else postgresql).insert(table)

    def dispose(self) -> None:
        """Close this process's idle connections."""
        if self._engine is not None and self._pid == os.getpid():
            self._engine.dispose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (IntegrityError, DataError):
        raise
    except DBAPIError as error:
        if _misses_a_table(error.orig):
            raise SchemaError(
                "the database has no weft_tasks schema, or an older one: run `celery -A APP weft migrate`"
            ) from error
        raise StoreUnavailable(_one_line(error.orig)) from error
    except PoolTimeout as error:
        raise StoreUnavailable(_one_line(error)) from error
    except SQLAlchemyError as error:
        raise StoreUnavailable(_one_line(error)) from error


def _misses_a_table(error: BaseException | None) -> bool:
    undefined_table, undefined_column = "42P01", "42703"
    return getattr(error, "sqlstate", None) in (undefined_table, undefined_column) or "no such table" in str(error)


def _one_line(error: BaseException | None) -> str:
    text = " ".join(str(error).split())
    return f"the store did not answer: {text[:300] or type(error).__name__}"


def _checked_url(text: str) -> URL:
    try:
        url = make_url(text)
    except ArgumentError:
        raise SettingsError(
            "weft_database_url is not a database URL; it looks like sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME"
        ) from None
    backend = url.get_backend_name()
    if backend not in SUPPORTED:
        raise SettingsError(
            f"weft_database_url names {backend!r}; supported are sqlite and postgresql (with psycopg 3)"
        )
    return url.set(drivername=SUPPORTED[backend])


def _build_engine(url: URL, limits: Limits) -> Engine:
    build = _build_sqlite if url.get_backend_name() == "sqlite" else _build_postgresql
    pool: dict[str, Any] = {"poolclass": NullPool}
    if limits.pool_size:
        pool = {
            "poolclass": QueuePool,
            "pool_size": limits.pool_size,
            "max_overflow": 0,
            "pool_timeout": limits.lock_wait.total_seconds(),
        }
    try:
        return build(url, limits, pool)
    except (NoSuchModuleError, ModuleNotFoundError):
        raise SettingsError(
            "weft_database_url names postgresql, but psycopg 3 is not installed: pip install 'weft-tasks[postgres]'"
        ) from None


def _build_postgresql(url: URL, limits: Limits, pool: dict[str, Any]) -> Engine:
    statement = milliseconds(limits.statement_timeout)
    connect = max(2, round(limits.connect_timeout.total_seconds()))
    engine = create_engine(
        url,
        isolation_level="READ COMMITTED",
        connect_args={
            "connect_timeout": connect,
            # A server that stops answering, or a network that drops its packets, ends the wait as well.
            "tcp_user_timeout": statement + 1000 * connect,
            "keepalives_idle": connect,
            "keepalives_interval": 1,
            "keepalives_count": 3,
            "options": f"-c statement_timeout={statement} -c idle_in_transaction_session_timeout={10 * statement}",
            "application_name": "weft_tasks",
        },
        **pool,
    )
    event.listen(engine, "checkout", _refuse_closed)
    return engine


def _refuse_closed(connection: Any, _record: Any, _proxy: Any) -> None:
    """Replace a pooled connection that the server has closed meanwhile. Then there is something to read on it, though
    nothing was asked; a look costs no round trip, which a ping before every use would."""
    looking = select.poll()
    looking.register(connection.fileno(), select.POLLIN)
    if looking.poll(0):
        raise DisconnectionError("the server has closed the connection")


def _build_sqlite(url: URL, limits: Limits, pool: dict[str, Any]) -> Engine:
    if url.database in (None, "", ":memory:"):
        raise SettingsError(
            "weft_database_url must name a file: an in-memory SQLite database lives in one process only"
        )
    wait = milliseconds(limits.lock_wait)
    engine = create_engine(url, connect_args={"timeout": wait / 1000, "check_same_thread": False}, **pool)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # SQLAlchemy's own BEGIN would come late and be deferred: a transaction that reads before it writes could then
        # fail with "database is locked" at once instead of waiting.
        connection.isolation_level = None
        # SQLite's own wait does not hold for this one: of several processes that open a new file, some would fail.
        with _waiting(connection, "PRAGMA journal_mode = WAL", limits.lock_wait):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("weft_reading", False):
            connection.exec_driver_sql("BEGIN")
        else:
            _begin_writing(connection, limits.lock_wait)

    return engine


def _begin_writing(connection: Connection, lock_wait: timedelta) -> None:
    """Take SQLite's write lock. Raises OperationalError if it was not free for `lock_wait`."""
    driver: Any = connection.connection.dbapi_connection
    with _waiting(driver, "BEGIN IMMEDIATE", lock_wait):
        if not driver.in_transaction:
            connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def _waiting(driver: Any, statement: str, lock_wait: timedelta) -> Iterator[None]:
    """Execute `statement` once SQLite is not busy, for at most `lock_wait`. SQLite does not wait in the block either,
    which is where a failure shows.

    Left to itself SQLite looks every 0.1 s after a while, and busy writers leave no gap that it would see: while the 16
    threads of a pass wrote, a heartbeat waited 3 to 5 s. Looking every 2 ms it waits under 1 s, and the pass takes half
    the time.
    """
    ends = time.monotonic() + lock_wait.total_seconds()
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        while _was_busy(driver, statement) and time.monotonic() < ends:
            time.sleep(LOOK_AGAIN_S)
        yield
    finally:
        driver.execute(f"PRAGMA busy_timeout = {milliseconds(lock_wait)}")


def _was_busy(driver: sqlite3.Connection, statement: str) -> bool:
    """Whether a lock was not free; any other error shows when the statement is repeated."""
    try:
        driver.execute(statement)
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    return False
