"""The waits of a parked workflow, as its row has them: names with a duration that counts from the commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement

from weft_tasks.model import Wait
from weft_tasks.store.clock import milliseconds, moment_of

NewWait = tuple[str, timedelta | None]
"""A name to wait for, "" for a mere sleep, and how long at most."""


def waits_of(encoded: str, since_ms: int | None) -> tuple[Wait, ...]:
    return tuple(
        Wait(name=name, deadline=None if timeout is None or since_ms is None else moment_of(since_ms + timeout))
        for name, timeout in json.loads(encoded)
    )


def parked_on(waits: Sequence[NewWait], now: ColumnElement[int]) -> dict[str, Any]:
    """The values of a row that parks on `waits` now, by the database's clock (O2)."""
    deadline = min((timeout for _name, timeout in waits if timeout is not None), default=None)
    return {
        "waits": json.dumps([[name, None if timeout is None else milliseconds(timeout)] for name, timeout in waits]),
        "waiting_since_at": now,
        "next_deadline_at": None if deadline is None else now + milliseconds(deadline),
    }
