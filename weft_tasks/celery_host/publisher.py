"""Sending messages after a commit: never longer than the publish timeout, whatever state the broker is in. They are
hints: what is given up is sent again by the rows (O9)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from celery import Celery
from kombu.connection import Connection
from kombu.messaging import Producer

from weft_tasks.celery_host.bounded import BoundedThread
from weft_tasks.celery_host.names import MAINTENANCE_QUEUE, RUN_TURN, TASK_OF_PASS, TURNS_QUEUE
from weft_tasks.celery_host.queues import engine_queue
from weft_tasks.celery_host.replies import read_outcome, signature_of
from weft_tasks.celery_host.schedule import tick_arguments
from weft_tasks.events import Events, OutcomeUnknown, PublishFailed
from weft_tasks.model import TurnMessage
from weft_tasks.per_process import PerProcess
from weft_tasks.results import PassKind
from weft_tasks.settings import Settings
from weft_tasks.shards import shards_of
from weft_tasks.store.lifecycle import TurnInFlight
from weft_tasks.store.outbox import Debt
from weft_tasks.workflows.dispatcher import CallOutcome


class CeleryDispatcher:
    """The Dispatcher of the turn runner and of the passes. Never raises; says whether the broker took the message."""

    def __init__(self, app: Celery, settings: Settings, events: Events) -> None:
        self._app = app
        self._settings = settings
        self._events = events
        timeout = settings.publish_timeout.total_seconds()
        self._publisher = PerProcess(lambda: _Publisher(app, timeout))
        # The result backend may be stuck while the broker is not.
        self._reader = PerProcess(lambda: BoundedThread("weft-results", timeout, waits_for="the result backend"))

    def send_turn(self, message: TurnMessage) -> bool:
        """Offer a turn to the engine it names, or a new workflow to any."""
        task = self._app.tasks[RUN_TURN]
        target = TURNS_QUEUE if message.engine_id is None else engine_queue(message.engine_id, self._settings)
        arguments = {
            "workflow_id": message.workflow_id,
            "run_id": message.run_id,
            "engine_id": message.engine_id,
            "epoch": message.epoch,
            "turn": message.turn,
        }
        return self._publish(
            f"turn {message.turn} of {message.workflow_id!r}",
            # The heartbeats name a turn in hand by its task id, so every message has one of its own.
            lambda producer: task.apply_async(
                kwargs=arguments,
                queue=target,
                task_id=str(uuid.uuid4()),
                producer=producer,
                retry=False,
                argsrepr="()",
                kwargsrepr=f"{message.workflow_id!r} turn {message.turn} epoch {message.epoch}",
            ),
        )

    def send_call(self, debt: Debt) -> bool:
        """Send the task that a commit owes, under the id that it has in every try."""
        return self._publish(
            f"call {debt.id} of {debt.workflow_id!r}",
            lambda producer: signature_of(self._app, debt).apply_async(task_id=debt.id, producer=producer, retry=False),
        )

    def outcome_of_call(self, debt: Debt) -> CallOutcome | None:
        """What the result backend says, if it says it in time; a task may also keep no result at all."""
        found: list[CallOutcome | None] = []
        error = self._reader.get().call(lambda: found.append(read_outcome(self._app, debt.id)))
        if error is not None:
            self._events.emit(OutcomeUnknown(call_id=debt.id, workflow_id=debt.workflow_id, error=error))
        return found[0] if found else None

    def abort(self, in_flight: TurnInFlight) -> None:
        """Tell the node to end a turn that was fenced off. Its heart does if this is lost (O7)."""
        self._publish(
            f"abort of task {in_flight.task_id}",
            lambda producer: self._app.control.revoke(
                in_flight.task_id,
                terminate=True,
                signal="SIGTERM",
                destination=None if in_flight.node is None else [in_flight.node],
                connection=producer.connection,
            ),
        )

    def request_reclaim(self) -> None:
        """Ask the maintenance workers for a reclaim pass of every shard now (O6)."""
        task = self._app.tasks[TASK_OF_PASS[PassKind.RECLAIM]]

        def send(producer: Producer) -> None:
            for shard in shards_of(self._settings.shards):
                arguments = {"requested": True, **tick_arguments(shard)}
                task.apply_async(kwargs=arguments, queue=MAINTENANCE_QUEUE, producer=producer, retry=False)

        self._publish("request for a reclaim pass", send)

    def _publish(self, what: str, send: Callable[[Producer], Any]) -> bool:
        error = self._publisher.get().publish(send)
        if error is None:
            return True
        self._events.emit(PublishFailed(message=what, error=error))
        return False


class _Publisher:
    """The process's connection for publishing, used by one thread alone."""

    def __init__(self, app: Celery, timeout: float) -> None:
        self._app = app
        self._timeout = timeout
        self._thread = BoundedThread("weft-publisher", timeout, waits_for="the broker")
        self._producer: Producer | None = None

    def publish(self, send: Callable[[Producer], Any]) -> str | None:
        """None once the broker has the message, else why that is not known."""
        return self._thread.call(lambda: self._send(send))

    def _send(self, send: Callable[[Producer], Any]) -> None:
        try:
            self._producer = self._producer or self._app.amqp.Producer(self._connect())
            send(self._producer)
        except Exception:
            _close(self._producer)
            self._producer = None
            raise

    def _connect(self) -> Connection:
        ours = {"socket_timeout": self._timeout, "socket_connect_timeout": self._timeout}
        options = {**(self._app.conf.broker_transport_options or {}), **ours}
        connection: Connection = self._app.connection_for_write(transport_options=options)
        return connection


def _close(producer: Producer | None) -> None:
    if producer is not None:
        try:
            producer.connection.release()
        except Exception:  # It is broken already; the next message gets a new one.
            return
