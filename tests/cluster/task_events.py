"""What Flower would see: the results that tasks send out as events."""

from __future__ import annotations

import ast
import threading
from typing import Any, Self

from celery import Celery


class TaskEvents:
    """Collects the task events of an application while it is entered."""

    def __init__(self, app: Celery) -> None:
        self.succeeded: list[Any] = []
        """The results, as Python values; as text where Celery cut a long one off."""
        self.failed: list[str] = []
        """The exceptions of tasks that failed."""
        self._app = app
        self._is_over = threading.Event()
        self._is_listening = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="task-events", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_listening.wait(10)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over.set()
        self._thread.join(10)

    def of_pass(self, kind: str) -> list[dict[str, Any]]:
        """The results of a pass's ticks, skipped ones too."""
        return [result for result in self.succeeded if isinstance(result, dict) and result.get("pass") == kind]

    def _listen(self) -> None:
        handlers = {"task-succeeded": self._note, "task-failed": lambda event: self.failed.append(event["exception"])}
        with self._app.connection_for_read() as connection:
            receiver = self._app.events.Receiver(connection, handlers=handlers)
            with receiver.consumer_context(wakeup=False) as (own_connection, _channel, _consumers):
                self._is_listening.set()
                while not self._is_over.is_set():
                    self._drain(own_connection)

    def _drain(self, connection: Any) -> None:
        try:
            connection.drain_events(timeout=0.1)
        except TimeoutError:
            return

    def _note(self, event: dict[str, Any]) -> None:
        try:
            self.succeeded.append(ast.literal_eval(event["result"]))
        except (SyntaxError, ValueError):
            self.succeeded.append(event["result"])
