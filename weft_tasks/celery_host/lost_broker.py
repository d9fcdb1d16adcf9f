"""A worker outlives the loss of its broker, also where kombu cannot close what it had open.

Seen with Celery and kombu 5.7: Redis dies while a message is not acknowledged. Closing the connection stops at the
first channel that cannot say goodbye. Closed again, the one with the message wants to put it back, through a transport
that has forgotten its address: an AttributeError, which Celery does not expect there, and the whole worker ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery import bootsteps

from weft_tasks.lines import write

logger = logging.getLogger(__name__)


class LostBrokerStep(bootsteps.Step):
    """Consumer step of every worker: what closing a lost connection raises is a line in the log, and Celery goes on to
    connect again. A message that could not be put back comes again after the visibility timeout, as after a crash; a
    turn is sent again by its row (O9)."""

    label = "weft lost broker"

    def __init__(self, consumer: Any, **_options: Any) -> None:
        after_loss = consumer.on_connection_error_after_connected

        def outlive(error: BaseException) -> None:
            if consumer.connection is not None:
                consumer.connection.close = _closing(consumer.connection.close)
            after_loss(error)

        consumer.on_connection_error_after_connected = outlive


def _closing(close: Callable[[], None]) -> Callable[[], None]:
    def close_or_say_why() -> None:
        try:
            close()
        except Exception as error:
            fields = {"error": f"{type(error).__name__}: {error}"}
            write(logger, logging.WARNING, "weft.broker.not-closed", fields, note="the worker connects again")

    return close_or_say_why
