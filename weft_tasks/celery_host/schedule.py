"""Beat's entries and the routes, merged into the host's own, theirs first."""

from __future__ import annotations

from typing import Any

from celery import Celery

from weft_tasks.celery_host.names import (
    MAINTENANCE_QUEUE,
    REPLY,
    REPLY_FAILURE,
    RUN_ONCE,
    RUN_TURN,
    TASK_OF_PASS,
    TURNS_QUEUE,
)
from weft_tasks.results import PassKind
from weft_tasks.settings import Settings
from weft_tasks.shards import Shard, shards_of

LEAST_TICK_LIFE_S = 600
"""Ticks that nobody consumed are swept after this long. Only a broom: what makes a tick stale is in the store (O2)."""


def beat_entries(settings: Settings) -> dict[str, dict[str, Any]]:
    """One entry per pass and shard, every renew interval."""
    interval = settings.renew_interval
    life = max(10 * interval.total_seconds(), LEAST_TICK_LIFE_S)
    return {
        shard.named(TASK_OF_PASS[kind]): {
            "task": TASK_OF_PASS[kind],
            "schedule": interval,
            "options": {"queue": MAINTENANCE_QUEUE, "expires": life},
            **({} if shard.is_whole else {"kwargs": tick_arguments(shard)}),
        }
        for kind in PassKind
        for shard in shards_of(settings.shards)
    }


def tick_arguments(shard: Shard) -> dict[str, int]:
    """What a tick is sent with. One without any is for the whole store."""
    return {} if shard.is_whole else {"shard": shard.index, "shards": shard.of}


def routes() -> dict[str, dict[str, str]]:
    """Where a task goes that is sent by name without a queue."""
    to_maintenance = {"queue": MAINTENANCE_QUEUE}
    return {
        **{TASK_OF_PASS[kind]: to_maintenance for kind in PassKind},
        **dict.fromkeys((RUN_ONCE, REPLY, REPLY_FAILURE), to_maintenance),
        RUN_TURN: {"queue": TURNS_QUEUE},
    }


def merge_into(app: Celery, settings: Settings) -> None:
    """Add ours to `beat_schedule` and `task_routes`. An entry of the host under the same name wins."""
    app.conf.beat_schedule = {**beat_entries(settings), **(app.conf.beat_schedule or {})}
    merge_routes(app)


def merge_routes(app: Celery) -> None:
    """Add ours to `task_routes`, behind the host's, if they are not there."""
    theirs = app.conf.task_routes
    known = [] if theirs is None else list(theirs) if isinstance(theirs, list | tuple) else [theirs]
    if routes() not in known:
        app.conf.task_routes = [*known, routes()]
        app.amqp.flush_routes()
