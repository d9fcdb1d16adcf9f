"""The tasks. Thin: each unpacks its message, calls the suite, and returns small JSON.

Instances are registered with one application (`shared_task` would land in every application of the process).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from celery import Celery, Task

from weft_tasks.celery_host.forged import discarded, is_name
from weft_tasks.celery_host.names import RUN_ONCE, RUN_TURN, TASK_OF_PASS
from weft_tasks.celery_host.replies import register_reply_tasks
from weft_tasks.errors import InvalidInput, StoreUnavailable
from weft_tasks.model import TurnMessage
from weft_tasks.results import PassKind
from weft_tasks.shards import Shard

if TYPE_CHECKING:
    from weft_tasks.weft import Weft


class PassTask(Task):
    """A tick of one pass. Its result goes into the store, and into a task event if it is worth one; none is kept in the
    result backend, where one every interval would pile up."""

    Request = "weft_tasks.celery_host.tick_events:TickRequest"
    send_events = False
    """By the worker. `Request` sends them."""
    ignore_result = True
    acks_late = False
    max_retries = 0
    throws = (StoreUnavailable,)
    """An outage of the store is a line in the log for each tick, and no traceback."""

    def __init__(self, weft: Weft, kind: PassKind) -> None:
        self.name = TASK_OF_PASS[kind]
        self._weft = weft
        self._kind = kind
        self._told_at: float | None = None

    def run(
        self, *arguments: Any, requested: object = False, shard: Any = 0, shards: Any = 1, **unknown: Any
    ) -> dict[str, Any]:
        """Run the pass, or say why it was skipped. `requested` asks for it even right after another (O6).

        It is for shard `shard` of `shards`, whatever this worker's own settings say: the whole store without them.
        """
        part = _shard(shard, shards)
        if arguments or unknown or part is None:
            return discarded(self, "arguments that no tick has")
        ticks = self._weft.ticks
        try:
            return ticks.run_requested(self._kind, part) if requested is True else ticks.tick(self._kind, part)
        finally:
            self._weft.flusher.soon()

    def may_tell_of_idle_tick(self) -> bool:
        """Once in `weft_idle_tick_event_interval`, counted by each worker from when this was last true."""
        now, interval = time.monotonic(), self._weft.settings.idle_tick_event_interval
        if self._told_at is not None and now - self._told_at < interval.total_seconds():
            return False
        self._told_at = now
        return True


class RunOnceTask(Task):
    """The four passes in sequence, for a caller who wants them now; the result is kept in the result backend."""

    name = RUN_ONCE
    ignore_result = False
    acks_late = False
    max_retries = 0
    throws = (StoreUnavailable,)

    def __init__(self, weft: Weft) -> None:
        self._weft = weft

    def run(self, *arguments: Any, **unknown: Any) -> dict[str, Any]:
        if arguments or unknown:
            return discarded(self, "arguments that it does not take")
        try:
            return self._weft.ticks.run_once()
        finally:
            self._weft.flusher.soon()


class RunTurnTask(Task):
    """A turn. Acknowledged before it runs and never redelivered by Celery: the row dispatches again (O9)."""

    name = RUN_TURN
    ignore_result = True
    acks_late = False
    reject_on_worker_lost = False
    max_retries = 0

    def __init__(self, weft: Weft) -> None:
        self._weft = weft

    def run(self, *arguments: Any, **message: Any) -> dict[str, Any]:
        checked = None if arguments else _checked(message)
        if checked is None:
            return discarded(self, "malformed message")
        report = self._weft.run_turn(checked, task_id=self.request.id)
        shown = {
            "status": report.status.value,
            "workflow": report.workflow_id,
            "turn": report.turn,
            "epoch": report.epoch,
        }
        return shown if report.reason is None else {**shown, "reason": str(report.reason)}


def register_tasks(app: Celery, weft: Weft) -> None:
    """Make the suite's tasks known to the application."""
    for kind in PassKind:
        app.register_task(PassTask(weft, kind))
    app.register_task(RunOnceTask(weft))
    app.register_task(RunTurnTask(weft))
    register_reply_tasks(app, weft)


def _shard(index: Any, of: Any) -> Shard | None:
    try:
        return Shard(index, of)
    except InvalidInput:
        return None


def _checked(message: dict[str, Any]) -> TurnMessage | None:
    """The message if it has the form of one; whether it is true, the row decides (O10)."""
    engine_id = message.get("engine_id")
    texts = [message.get("workflow_id"), message.get("run_id")]
    is_question = texts == ["", ""]
    numbers = [message.get("epoch"), message.get("turn")]
    is_formed = (
        set(message) == {"workflow_id", "run_id", "engine_id", "epoch", "turn"}
        and (is_question or all(map(is_name, texts)))
        and (engine_id is None or is_name(engine_id))
        and all(type(number) is int and 0 <= number < 2**63 for number in numbers)
    )
    return TurnMessage(**message) if is_formed else None
