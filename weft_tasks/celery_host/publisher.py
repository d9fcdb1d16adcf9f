"""Sending messages after a commit: never longer than the publish timeout, whatever state the broker is in.

A daemon thread per process publishes, and its caller waits for it only so long. While the thread is stuck on a silent
broker further messages are given up at once: they are hints, and the rows send them again (O9).
"""

from __future__ import annotations

import os
import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery import Celery
from kombu.connection import Connection
from kombu.messaging import Producer

from weft_tasks.celery_host.names import MAINTENANCE_QUEUE, RUN_TURN, TASK_OF_PASS, TURNS_QUEUE
from weft_tasks.celery_host.queues import engine_queue
from weft_tasks.celery_host.replies import signature_of
from weft_tasks.events import Events, PublishFailed
from weft_tasks.model import TurnMessage
from weft_tasks.results import PassKind, reason_of
from weft_tasks.settings import Settings
from weft_tasks.store.lifecycle import TurnInFlight
from weft_tasks.store.outbox import Debt

BACKLOG = 1000
"""Messages that may wait for the thread before further ones are given up."""


class CeleryDispatcher:
    """The Dispatcher of the turn runner and of the passes. Never raises; says whether the broker took the message."""

    def __init__(self, app: Celery, settings: Settings, events: Events) -> None:
        self._app = app
        self._settings = settings
        self._events = events
        self._publishers: dict[int, _Publisher] = {}

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
        """Ask the maintenance workers for a reclaim pass now (O6)."""
        task = self._app.tasks[TASK_OF_PASS[PassKind.RECLAIM]]
        self._publish(
            "request for a reclaim pass",
            lambda producer: task.apply_async(
                kwargs={"requested": True}, queue=MAINTENANCE_QUEUE, producer=producer, retry=False
            ),
        )

    def _publish(self, what: str, send: Callable[[Producer], Any]) -> bool:
        error = self._publisher().publish(send)
        if error is None:
            return True
        self._events.emit(PublishFailed(message=what, error=error))
        return False

    def _publisher(self) -> _Publisher:
        """This process's thread and connection; a fork starts without either."""
        pid = os.getpid()
        publisher = self._publishers.get(pid)
        if publisher is None:
            timeout = self._settings.publish_timeout.total_seconds()
            publisher = self._publishers.setdefault(pid, _Publisher(self._app, timeout))
        return publisher


@dataclass(slots=True, eq=False)
class _Job:
    send: Callable[[Producer], Any]
    done: threading.Event = field(default_factory=threading.Event)
    error: str | None = None
    is_given_up: bool = False


class _Publisher:
    """One thread, one connection, jobs in order."""

    def __init__(self, app: Celery, timeout: float) -> None:
        self._app = app
        self._timeout = timeout
        self._jobs: queue.Queue[_Job] = queue.Queue(maxsize=BACKLOG)
        self._busy_since: float | None = None
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def publish(self, send: Callable[[Producer], Any]) -> str | None:
        """None once the broker has the message, else why that is not known."""
        if self._is_stuck():
            return "the broker does not answer"
        self._start()
        job = _Job(send)
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            return f"{BACKLOG} messages are waiting for the broker"
        if job.done.wait(self._timeout):
            return job.error
        job.is_given_up = True
        return f"the broker did not answer within {self._timeout:g} s"

    def _is_stuck(self) -> bool:
        busy_since = self._busy_since
        return busy_since is not None and time.monotonic() - busy_since > self._timeout

    def _start(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="weft-publisher", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        producer: Producer | None = None
        while True:
            job = self._jobs.get()
            if job.is_given_up:
                continue
            self._busy_since = time.monotonic()
            try:
                producer = producer or self._app.amqp.Producer(self._connect())
                job.send(producer)
            except Exception as error:
                job.error = reason_of(error)
                _close(producer)
                producer = None
            self._busy_since = None
            job.done.set()

    def _connect(self) -> Connection:
        ours = {"socket_timeout": self._timeout, "socket_connect_timeout": self._timeout}
        options = {**(self._app.conf.broker_transport_options or {}), **ours}
        connection: Connection = self._app.connection_for_write(transport_options=options)
        return connection


def _close(producer: Producer | None) -> None:
    if producer is not None:
        try:
            producer.connection.collapse()
        except Exception:  # It is broken already; the next message gets a new one.
            return
