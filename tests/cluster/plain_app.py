"""A Celery application of nothing but Celery. Broker and backend come from the environment, as Celery reads it."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import os

from celery import Celery
from celery.schedules import schedule

app = Celery("plain")
app.conf.update(
    task_serializer="json",
    accept_content=["json"],
    broker_connection_retry_on_startup=True,
    beat_schedule={"tick": {"task": "plain.tick", "schedule": schedule(run_every=1.0)}},
)


@app.task(name="plain.add")
def add(x: int, y: int) -> int:
    return x + y


@app.task(name="plain.pool_pid")
def pool_pid() -> int:
    return os.getpid()


@app.task(name="plain.tick", ignore_result=True)
def tick() -> None:
    """What beat sends."""
