"""The task events of a tick, which Flower shows: sent when it is over, and only if it has something to tell.

Four passes every few seconds would bury everything else there. A tick that found nothing to do is told of once in
`weft_idle_tick_event_interval`, as a sign that the pass runs.
"""

from __future__ import annotations

import ast
import time
from typing import Any

from celery.worker.request import Request

from weft_tasks.passes.sink import ROUTINE

_ALWAYS = frozenset({"pass", "status", "seconds", "counts", "waiting"})
"""What the report of a pass may have that nobody needs to look at."""


class TickRequest(Request):
    """A tick in the hands of a worker. Its events keep the times at which they came about."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._held: list[tuple[str, dict[str, Any]]] = [("task-received", self._received())]

    def send_event(self, type: str, **fields: Any) -> None:
        """Called with each event, the last one being how the tick ended."""
        if not (self._eventer and self._eventer.enabled):
            return
        self._held.append((type, {**fields, "timestamp": time.time()}))
        if type == "task-started":
            return
        held, self._held = self._held, []
        if type != "task-succeeded" or not is_idle(fields["result"]) or self.task.may_tell_of_idle_tick():
            for name, kept in held:
                self._eventer.send(name, uuid=self.id, **kept)

    def _received(self) -> dict[str, Any]:
        """What a worker says of any task that it has received."""
        return {
            "name": self.name,
            "args": self.argsrepr,
            "kwargs": self.kwargsrepr,
            "root_id": self.root_id,
            "parent_id": self.parent_id,
            "retries": 0,
            "eta": None,
            "expires": self.expires and self.expires.isoformat(),
            "timestamp": time.time(),
        }


def is_idle(result: str) -> bool:
    """Whether a tick found nothing to do, by its result as the event has it. A long one, which is cut, did."""
    try:
        report: dict[str, Any] = ast.literal_eval(result)
    except (SyntaxError, ValueError):
        return False
    if "skipped" in report:
        return bool(report["skipped"] == "recent")
    return report.get("status") == "completed" and report.keys() <= _ALWAYS and report["counts"].keys() <= ROUTINE
