"""A worker's consumer outlives a Redis that dies while a message is not acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.worker.consumer import Consumer as CeleryConsumer
from kombu import Connection, Consumer, Exchange, Queue

from weft_tasks.celery_host.lost_broker import LostBrokerStep
from weft_tasks.testing.local_redis import LocalRedis

OPTIONS = {"socket_timeout": 2, "socket_connect_timeout": 1}


@pytest.fixture
def redis() -> Iterator[LocalRedis]:
    with LocalRedis() as server:
        yield server


@pytest.fixture
def connection(redis: LocalRedis) -> Connection:
    """As a worker's: a message that is not acknowledged, and a channel for remote control beside that of the tasks."""
    connection = Connection(redis.url(), transport_options=OPTIONS)
    queue = Queue("work", Exchange("work", type="direct"), routing_key="work")(connection.default_channel)
    queue.declare()
    connection.Producer().publish({}, exchange="work", routing_key="work")
    taken: list[Any] = []
    connection.Consumer([queue], callbacks=[lambda _body, message: taken.append(message)], accept=["json"]).consume()
    connection.drain_events(timeout=5)
    assert taken
    control = connection.channel()
    replies = Queue("control", Exchange("control", type="fanout"), auto_delete=True)(control)
    Consumer(control, [replies], callbacks=[lambda _body, _message: None]).consume()
    # Both channels wait for what comes next.
    for _ in range(2):
        with suppress(TimeoutError):
            connection.drain_events(timeout=0.3)
    return connection


def consumer_of(connection: Connection) -> Any:
    """Celery's own way out of a lost connection, without the rest of a worker."""
    consumer = SimpleNamespace(connection=connection, app=Celery("lost", set_as_current=False))
    consumer.app.conf.worker_cancel_long_running_tasks_on_connection_loss = True
    consumer.app.conf.worker_enable_prefetch_count_reduction = False
    lost = CeleryConsumer.on_connection_error_after_connected
    consumer.on_connection_error_after_connected = lambda error: lost(consumer, error)
    return consumer


def test_celery_alone_ends_its_worker(redis: LocalRedis, connection: Connection) -> None:
    """Once this fails, kombu or Celery has got better, and our step is not needed any more."""
    consumer = consumer_of(connection)
    redis.kill()
    with pytest.raises(AttributeError, match="hostname"):
        consumer.on_connection_error_after_connected(ConnectionError("closed"))


def test_with_our_step_it_goes_on_to_connect_again(
    redis: LocalRedis, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = consumer_of(connection)
    LostBrokerStep(consumer)
    redis.kill()
    with caplog.at_level(logging.WARNING):
        consumer.on_connection_error_after_connected(ConnectionError("closed"))
    assert consumer.connection is None
    assert [record for record in caplog.records if "weft.broker.not-closed" in record.getMessage()]
