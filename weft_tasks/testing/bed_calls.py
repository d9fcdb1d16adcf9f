"""What leaves a bed: a dispatcher that keeps everything in this process, and the outgoing calls for tests to see."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft_tasks.model import TurnMessage
from weft_tasks.store.lifecycle import TurnInFlight
from weft_tasks.store.outbox import Debt
from weft_tasks.workflows.dispatcher import CallOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A Celery task that a workflow has sent.

    `id` is the task's id, the same when a call is sent again. A chain is one call: its `task` names its tasks with
    " | " between them, and its arguments are those of its first task.
    """

    id: str
    task: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]
    """What `signature.set(...)` was given: queue, countdown, retry_policy, time_limit …"""
    reply: str | None
    """The name of the signal by which the workflow gets the result; None if it wants none."""
    workflow_id: str
    run_id: str
    signature: Mapping[str, Any]
    """The whole signature, as plain JSON."""

    @classmethod
    def of(cls, debt: Debt) -> Call:
        signature: Mapping[str, Any] = debt.body["signature"]
        tasks = _tasks(signature)
        return cls(
            id=debt.id,
            task=" | ".join(task["task"] for task in tasks),
            args=tuple(tasks[0].get("args") or ()),
            kwargs=dict(tasks[0].get("kwargs") or {}),
            options=dict(signature.get("options") or {}),
            reply=debt.body["reply"],
            workflow_id=debt.workflow_id,
            run_id=debt.run_id,
            signature=signature,
        )


class Mailbox:
    """The Dispatcher of a bed: what a broker would have carried waits here, in order."""

    def __init__(self) -> None:
        self.turns: deque[TurnMessage] = deque()
        self.calls: list[Call] = []
        self.aborted: list[TurnInFlight] = []
        self.wants_reclaim = False
        self.is_down = False

    def send_turn(self, message: TurnMessage) -> bool:
        if not self.is_down:
            self.turns.append(message)
        return not self.is_down

    def send_call(self, debt: Debt) -> bool:
        if not self.is_down:
            self.calls.append(Call.of(debt))
        return not self.is_down

    def outcome_of_call(self, debt: Debt) -> CallOutcome | None:
        """A bed has no result backend: the test says what became of a call."""
        return None

    def abort(self, in_flight: TurnInFlight) -> None:
        if not self.is_down:
            self.aborted.append(in_flight)

    def request_reclaim(self) -> None:
        self.wants_reclaim = self.wants_reclaim or not self.is_down


def _tasks(signature: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tasks of a signature in their order, those of a chain laid out."""
    if signature.get("subtask_type") != "chain":
        return [signature]
    return [task for part in signature["kwargs"]["tasks"] for task in _tasks(part)]
