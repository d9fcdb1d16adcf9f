"""The one file that spells the database's clock (O2).

Times in the store are whole milliseconds since 1970 in UTC, so that they compare, add and sort alike on SQLite and
PostgreSQL, whatever zone a process lives in.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import BigInteger, ColumnElement, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class StoreClock(Protocol):
    """Where the store's statements take the time from."""

    def now(self) -> ColumnElement[int]:
        """The time at which the statement began: constant within it, so an index can serve a comparison."""

    def now_after_locks(self) -> ColumnElement[int]:
        """The time at which the row is written, after any wait for its lock."""


class DatabaseClock:
    """The database's own clock."""

    def now(self) -> ColumnElement[int]:
        return _StatementTime()

    def now_after_locks(self) -> ColumnElement[int]:
        return _WallTime()


class ManualClock:
    """A clock that stands still until it is moved: for tests and the test bed."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = milliseconds_of(start)

    def advance(self, duration: timedelta) -> None:
        """Move by `duration`, which may be negative."""
        self._now += milliseconds(duration)

    @property
    def moment(self) -> datetime:
        """What it shows: aware UTC."""
        return moment_of(self._now)

    def now(self) -> ColumnElement[int]:
        # Asked at each execution: a statement that is built once outlives many moves.
        return bindparam(None, callable_=lambda: self._now, type_=BigInteger(), unique=True)

    def now_after_locks(self) -> ColumnElement[int]:
        return self.now()


def milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def milliseconds_of(moment: datetime) -> int:
    return milliseconds(moment - datetime(1970, 1, 1, tzinfo=UTC))


def moment_of(ms: int) -> datetime:
    """Stored milliseconds as an aware UTC time."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


class _StatementTime(FunctionElement[int]):
    type = BigInteger()
    inherit_cache = True


class _WallTime(FunctionElement[int]):
    type = BigInteger()
    inherit_cache = True


@compiles(_StatementTime, "postgresql")
def _statement_time_postgresql(element: _StatementTime, compiler: SQLCompiler, **kw: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)"


@compiles(_WallTime, "postgresql")
def _wall_time_postgresql(element: _WallTime, compiler: SQLCompiler, **kw: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


@compiles(_StatementTime, "sqlite")
@compiles(_WallTime, "sqlite")
def _time_sqlite(element: FunctionElement[int], compiler: SQLCompiler, **kw: Any) -> str:
    # SQLite holds the write lock before a writing statement begins, so one spelling serves both.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
