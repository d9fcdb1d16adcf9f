"""The queues: maintenance for passes, turns for new workflows, and one for each engine that vanishes with it."""

from __future__ import annotations

from datetime import timedelta

from celery import Celery
from kombu.entity import Exchange, Queue

from weft_tasks.celery_host.names import ENGINE_QUEUE_PREFIX, MAINTENANCE_QUEUE, TURNS_QUEUE
from weft_tasks.settings import Settings

LEAST_ENGINE_QUEUE_LIFE = timedelta(minutes=10)


def add_shared_queues(app: Celery) -> None:
    """Make the application know our two shared queues. A worker without -Q then consumes them beside its own."""
    for name in (MAINTENANCE_QUEUE, TURNS_QUEUE):
        if name not in app.amqp.queues:
            app.amqp.queues.select_add(Queue(name, Exchange(name, type="direct"), routing_key=name))


def engine_queue(engine_id: str, settings: Settings) -> Queue:
    """The queue that this incarnation of an engine alone consumes. Redis expires it once nobody has for 10 TTLs."""
    life = max(10 * settings.claim_ttl, LEAST_ENGINE_QUEUE_LIFE)
    name = f"{ENGINE_QUEUE_PREFIX}{engine_id}"
    return Queue(name, Exchange("weft.engine", type="direct"), routing_key=name, expires=life.total_seconds())


def is_engine(app: Celery) -> bool:
    """Whether this worker takes new workflows: a worker for maintenance alone runs no turns and is no engine."""
    return TURNS_QUEUE in app.amqp.queues.consume_from


def delete_engine_queue(app: Celery, engine_id: str, settings: Settings) -> None:
    """Remove what an engine long gone left in the broker. Declared first: kombu deletes only what it declared."""
    with app.connection_for_write() as connection:
        queue = engine_queue(engine_id, settings)(connection.default_channel)
        queue.declare()
        queue.delete()
