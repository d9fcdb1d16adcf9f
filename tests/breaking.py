"""Breaking the connection to the store in the middle of a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from weft_tasks.store import Store

AT_COMMIT = 0


@contextmanager
def failing_before(store: Store, statement: int) -> Iterator[None]:
    """While it lasts, the connection breaks before the n-th statement that is sent, and before all later ones; with
    AT_COMMIT after all statements, when nothing but the commit is left."""
    sent = 0

    def count(*_event: Any) -> None:
        nonlocal sent
        sent += 1
        if statement != AT_COMMIT and sent >= statement:
            raise _broken()

    def commit(*_event: Any) -> None:
        if statement == AT_COMMIT:
            raise _broken()

    engine = store.database.engine
    event.listen(engine, "before_cursor_execute", count)
    event.listen(engine, "commit", commit)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", count)
        event.remove(engine, "commit", commit)


def _broken() -> OperationalError:
    return OperationalError("a test broke the connection", None, Exception("broken by a test"))
