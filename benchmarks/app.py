"""The application that the benchmarks with real workers run: workflows, and bare Celery tasks beside them."""

from __future__ import annotations

import os
import time
from functools import cache

import redis
from celery import Celery

from weft_tasks import Turn, TurnEnd, Weft

app = Celery("bench", broker=os.environ.get("BROKER_URL", "redis://127.0.0.1:6379/0"))
app.conf.update(
    weft_database_url=os.environ.get("DATABASE_URL", "sqlite:///bench.sqlite3"),
    beat_scheduler="celery.beat:Scheduler",
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
)
weft = Weft(app)

WOKEN = "bench:woken"
BARE = "bench:bare"


@cache
def results() -> redis.Redis:
    """Where handlers and tasks note what they measured, after they have measured it."""
    return redis.Redis.from_url(app.conf.broker_url)


def note(key: str, sent_ns: int) -> None:
    """The clock is the machine's, the same for all of its processes."""
    results().rpush(key, time.monotonic_ns() - sent_ns)


@weft.workflow("stamped")
def stamped(turn: Turn) -> TurnEnd | None:
    """Notes how long each signal took to get here."""
    now = time.monotonic_ns()
    for signal in turn.take("go"):
        results().rpush(WOKEN, now - signal.payload)
    turn.wait("go")
    return None


@weft.workflow("one-turn")
def one_turn(turn: Turn) -> TurnEnd:
    """Starts and ends in one turn."""
    return turn.complete(turn.input)


@app.task(name="bench.stamp")
def stamp(sent_ns: int) -> None:
    note(BARE, sent_ns)


@app.task(name="bench.nothing")
def nothing(number: int) -> None:
    results().incr("bench:done")
