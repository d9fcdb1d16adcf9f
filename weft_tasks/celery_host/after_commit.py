"""Doing something once the caller's own transaction has committed: what was sent within it is told to its owner then.

If the process dies in between, a pass tells it: the rows are the truth (O9).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session, SessionTransaction

CallersTransaction: TypeAlias = Session | Connection
Act: TypeAlias = Callable[[], object]
SETTLING_S = 0.05
"""A bare connection announces its commit before it happens; the message goes out this much later."""


def connection_of(session: CallersTransaction | None) -> Connection | None:
    """The connection on which the caller's transaction runs."""
    return session.connection() if isinstance(session, Session) else session


class AfterCommit:
    """What waits for the commits of callers, for each session or connection in the order of the calls."""

    def __init__(self) -> None:
        self._waiting: WeakKeyDictionary[CallersTransaction, list[Act]] = WeakKeyDictionary()

    def call(self, session: CallersTransaction, act: Act) -> None:
        """Call `act` after the transaction that runs now has committed; never after a rollback."""
        acts = self._waiting.get(session)
        if acts is None:
            acts = self._waiting[session] = []
            # Once in its life: SQLAlchemy lets no listener be removed while an event is told, and ones that stay would
            # pile up in a session that is used for long.
            _listen(session, acts)
        acts.append(act)


def _listen(session: CallersTransaction, acts: list[Act]) -> None:
    if isinstance(session, Session):
        _listen_to_session(session, acts)
    else:
        _listen_to_connection(session, acts)


def _listen_to_session(session: Session, acts: list[Act]) -> None:
    def on_commit(session: Session) -> None:
        """Releasing a savepoint is told as a commit too. After its rollback a message may name what is not there, which
        is discarded like any other (O10)."""
        if not session.in_nested_transaction():
            _do_all(_taken(acts))

    def on_end(_session: Session, transaction: SessionTransaction) -> None:
        """After a commit there is nothing left; after a rollback, or a close without either, it is forgotten."""
        if transaction.parent is None:
            acts.clear()

    event.listen(session, "after_commit", on_commit)
    event.listen(session, "after_transaction_end", on_end)


def _listen_to_connection(connection: Connection, acts: list[Act]) -> None:
    def on_commit(_connection: Connection) -> None:
        if acts:
            timer = threading.Timer(SETTLING_S, _do_all, args=[_taken(acts)])
            timer.daemon = True
            timer.start()

    def on_rollback(_connection: Connection) -> None:
        acts.clear()

    event.listen(connection, "commit", on_commit)
    event.listen(connection, "rollback", on_rollback)


def _taken(acts: list[Act]) -> tuple[Act, ...]:
    """All of them, and the list is empty: a session used again has its next transaction's only."""
    taken = tuple(acts)
    acts.clear()
    return taken


def _do_all(acts: tuple[Act, ...]) -> None:
    for act in acts:
        act()
