"""An actor: one verb of the store on a thread and connections of its own, stopped before each of its statements."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Connection, event

from weft_tasks.store import Store

from .footprint import BEGINS_WRITING, ENDS, NOTHING, Footprint, footprint_of, meet

Verb: TypeAlias = Callable[[Store], object]


@dataclass(frozen=True, slots=True)
class Raised:
    """The answer of a verb that raised."""

    error: str
    message: str

    @classmethod
    def by(cls, error: Exception) -> Raised:
        return cls(type(error).__name__, str(error))


class Abandoned(BaseException):
    """Ends an actor in the middle of a play that failed. No Exception, so that nothing on the way handles it."""


class Actor:
    """Plays one verb after the other. Only the stage's thread calls its methods; its own thread stops at the gate.

    It stops before each statement, before COMMIT, and before the ROLLBACK of a transaction that may write.
    """

    def __init__(self, name: str, store: Store) -> None:
        self.name = name
        self.step = ""
        """The statement before which it stands or, while it moves, the one it executes."""
        self.answer: object = None
        self.backend_pid: int | None = None
        self.is_over = True
        self.in_transaction = False
        self.has_write_lock = False
        """SQLite only: its BEGIN IMMEDIATE has come back, and its transaction is not over."""
        self.has_done = NOTHING
        """What its transaction has touched so far."""
        self.ends: Callable[[str], None] = lambda name: None
        """Told of each transaction of this actor that changed a row, as it commits."""
        self._store = store
        self._is_sqlite = store.database.is_sqlite
        self._arrived = threading.Event()
        self._arrived.set()
        self._go = threading.Semaphore(0)
        self._is_abandoned = False
        self._has_changed_rows = False
        self._changes_before = 0
        self._thread: threading.Thread | None = None
        self._listen()

    def __repr__(self) -> str:
        return f"<Actor {self.name} at {self.step!r}>"

    # -- from the stage

    @property
    def is_moving(self) -> bool:
        """Whether its thread runs, or waits in the database. While it is false nothing of the actor changes."""
        return not self._arrived.is_set()

    @property
    def is_alone(self) -> bool:
        """Whether its next step can mean nothing to the others, nor theirs to it: it holds SQLite's only write lock,
        and does not let it go yet."""
        return self.has_write_lock and self.step not in ENDS

    def commutes_with(self, other: Actor) -> bool:
        """Whether the next steps of the two lead to the same place in either order.

        What one writes the other sees only at its end, and waits for it if it wants to lock that too.
        """
        if self.step in ENDS or other.step in ENDS:
            return not (
                (self.step in ENDS and meet(self.has_done.holds, other._next.touches))
                or (other.step in ENDS and meet(other.has_done.holds, self._next.touches))
            )
        one, two = self._next, other._next
        return not (meet(one.locks, two.holds) or meet(two.locks, one.holds))

    def enter(self, verb: Verb) -> None:
        """Begin to play `verb`: it moves until it stands before its first statement."""
        self.step, self.answer, self.is_over = "", None, False
        self.in_transaction = self.has_write_lock = self._is_abandoned = False
        self.has_done = NOTHING
        self._go = threading.Semaphore(0)
        self._arrived.clear()
        self._thread = threading.Thread(target=self._play, args=(verb,), name=f"actor-{self.name}", daemon=True)
        self._thread.start()

    def let_go(self) -> None:
        """Let it execute the statement before which it stands."""
        self._arrived.clear()
        self._go.release()

    def has_arrived(self, within: float) -> bool:
        """Whether it stands at its next stop, or has played to the end; waits for that at most so many seconds."""
        return self._arrived.wait(within)

    def abandon(self) -> None:
        """End it at its next stop, and roll back."""
        self._is_abandoned = True
        self._go.release()

    def leave(self, within: float) -> None:
        """Wait for its thread's end."""
        if self._thread is not None:
            self._thread.join(within)

    # -- from its own thread

    def _play(self, verb: Verb) -> None:
        try:
            self.answer = verb(self._store)
        except Exception as error:
            self.answer = Raised.by(error)
        except Abandoned:
            self.answer = Raised("Abandoned", self.step)
        finally:
            self.step, self.is_over = "", True
            self.in_transaction = self.has_write_lock = False
            self._arrived.set()

    def _listen(self) -> None:
        engine = self._store.database.engine
        if self._is_sqlite:
            event.listen(engine, "engine_connect", self._before_begin)
        event.listen(engine, "before_cursor_execute", self._before_statement)
        event.listen(engine, "after_cursor_execute", self._after_statement)
        event.listen(engine, "commit", self._before_commit)
        event.listen(engine, "rollback", self._before_rollback)

    def _before_begin(self, connection: Connection) -> None:
        """The store waits for SQLite's write lock in a listener of its own, so this stop is a moment earlier. That the
        transaction will only read, and wait for nobody, is not known yet."""
        self._stop(BEGINS_WRITING)
        self._changes_before = self._changes(connection)
        self._is_under_way()

    def _before_statement(self, connection: Connection, _cursor: Any, statement: str, *_more: Any) -> None:
        if statement.startswith("BEGIN"):
            return
        self.has_write_lock = self._is_sqlite and not _only_reads(connection)
        self.backend_pid = _backend_pid(connection)
        self._stop(" ".join(statement.split()))
        self._is_under_way()

    def _after_statement(self, connection: Connection, cursor: Any, statement: str, *_more: Any) -> None:
        if self._is_sqlite:
            return
        if not statement.startswith("SELECT") and cursor.rowcount != 0:
            self._has_changed_rows = True
            if _is_autocommit(connection):
                # The statement was its own transaction, and no COMMIT follows.
                self.ends(self.name)
                self._has_changed_rows = False

    def _before_commit(self, connection: Connection) -> None:
        self._stop("COMMIT")
        if self._has_changed_rows or self._changes(connection) != self._changes_before:
            self.ends(self.name)
        self._transaction_ends()

    def _changes(self, connection: Connection) -> int:
        """SQLite's count of rows changed: with RETURNING, the cursor knows it only after the fetch."""
        driver: Any = connection.connection.dbapi_connection
        return int(driver.total_changes) if self._is_sqlite else 0

    def _before_rollback(self, connection: Connection) -> None:
        if not (_only_reads(connection) or _is_autocommit(connection)):
            self._stop("ROLLBACK")
        self._transaction_ends()

    def _is_under_way(self) -> None:
        self.in_transaction = True
        self.has_done |= self._next

    def _transaction_ends(self) -> None:
        self.in_transaction = self.has_write_lock = False
        self.has_done = NOTHING
        self._has_changed_rows = False

    @property
    def _next(self) -> Footprint:
        return NOTHING if self.step in ENDS else footprint_of(self.step)

    def _stop(self, step: str) -> None:
        if self._is_abandoned:
            if step == "ROLLBACK":
                return
            raise Abandoned
        self.step = step
        self._arrived.set()
        self._go.acquire()
        if self._is_abandoned and step != "ROLLBACK":
            raise Abandoned


def _is_autocommit(connection: Connection) -> bool:
    return getattr(connection.connection.dbapi_connection, "autocommit", False) is True


def _only_reads(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("weft_reading", False))


def _backend_pid(connection: Connection) -> int | None:
    """PostgreSQL's process that serves the connection; None on SQLite."""
    info = getattr(connection.connection.dbapi_connection, "info", None)
    return None if info is None else int(info.backend_pid)
