"""Doing something once the caller's own transaction has committed: what was sent within it is told to its owner then.

If the process dies in between, a pass tells it: the rows are the truth (O9).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session

CallersTransaction: TypeAlias = Session | Connection
SETTLING_S = 0.05
"""A bare connection announces its commit before it happens; the message goes out this much later."""


def connection_of(session: CallersTransaction | None) -> Connection | None:
    """The connection on which the caller's transaction runs."""
    return session.connection() if isinstance(session, Session) else session


def after_commit(session: CallersTransaction, act: Callable[[], object]) -> None:
    """Call `act` after the transaction that runs now has committed; never after a rollback."""
    if isinstance(session, Session):
        _after(session, "after_commit", "after_soft_rollback", act)
    else:
        _after(session, "commit", "rollback", lambda: _soon(act))


def _after(target: CallersTransaction, committed: str, rolled_back: str, act: Callable[[], object]) -> None:
    def on_commit(*_arguments: object) -> None:
        forget()
        act()

    def on_rollback(*_arguments: object) -> None:
        forget()

    def forget() -> None:
        event.remove(target, committed, on_commit)
        event.remove(target, rolled_back, on_rollback)

    event.listen(target, committed, on_commit)
    event.listen(target, rolled_back, on_rollback)


def _soon(act: Callable[[], object]) -> None:
    timer = threading.Timer(SETTLING_S, act)
    timer.daemon = True
    timer.start()
