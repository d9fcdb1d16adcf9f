"""The waits of a parked workflow, as its row has them: a name with a duration that counts from the commit, or with a
time, or with neither."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, case, literal

from weft_tasks.model import Wait
from weft_tasks.store.clock import milliseconds, milliseconds_of, moment_of

NewWait = tuple[str, timedelta | datetime | None]
"""A name to wait for, "" for a mere sleep, and for how long or until when at most."""


DAMAGE = (ValueError, TypeError, OverflowError)
"""What reading a damaged row raises: no JSON, or JSON of another shape."""


def readable_waits(encoded: str, since_ms: int | None) -> tuple[Wait, ...] | None:
    """As `waits_of`; None if the row is damaged, for those who go through many rows and must not stop at one."""
    try:
        return waits_of(encoded, since_ms)
    except DAMAGE:
        return None


def waits_of(encoded: str, since_ms: int | None) -> tuple[Wait, ...]:
    return tuple(
        Wait(name=name, deadline=_deadline(since_ms, timeout, *until)) for name, timeout, *until in json.loads(encoded)
    )


def _deadline(since_ms: int | None, timeout: int | None, until: int | None = None) -> datetime | None:
    if until is not None:
        return moment_of(until)
    return None if timeout is None or since_ms is None else moment_of(since_ms + timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedWaits:
    """Waits as a row has them, and in milliseconds the shortest duration and the earliest time among them."""

    names: str
    timeout: int | None
    until: int | None


def encoded(waits: Sequence[NewWait]) -> EncodedWaits:
    timeouts = [milliseconds(limit) for _name, limit in waits if isinstance(limit, timedelta)]
    times = [milliseconds_of(limit) for _name, limit in waits if isinstance(limit, datetime)]
    return EncodedWaits(
        names=json.dumps([_encoded(name, limit) for name, limit in waits]),
        timeout=min(timeouts, default=None),
        until=min(times, default=None),
    )


def parked_on(waits: Sequence[NewWait], now: ColumnElement[int]) -> dict[str, Any]:
    """The values of a row that parks on `waits` now, by the database's clock (O2)."""
    wait = encoded(waits)
    deadlines: list[ColumnElement[int]] = [] if wait.timeout is None else [now + wait.timeout]
    deadlines += [] if wait.until is None else [literal(wait.until, BigInteger)]
    return {"waits": wait.names, "waiting_since_at": now, "next_deadline_at": _earliest(deadlines)}


def _encoded(name: str, limit: timedelta | datetime | None) -> list[Any]:
    if isinstance(limit, datetime):
        return [name, None, milliseconds_of(limit)]
    return [name, None if limit is None else milliseconds(limit)]


def _earliest(deadlines: Sequence[ColumnElement[int]]) -> ColumnElement[int] | None:
    if len(deadlines) < 2:
        return next(iter(deadlines), None)
    one, other = deadlines
    return case((one < other, one), else_=other)
