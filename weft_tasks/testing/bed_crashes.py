"""Crashes on demand: a turn's process dies at a chosen moment, as after `kill -9`, and nothing of it remains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from weft_tasks.model import TurnMessage
from weft_tasks.store.turns import BegunTurn, CommitAnswer, Discard, TurnOutcome, Turns

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """Raised where a process would have died. Raise it yourself, in a handler or in what it calls, to die right there.

    No `Exception`, so that nothing in a handler or in the suite survives it by catching that.
    """


class CrashPoint(StrEnum):
    BEFORE_HANDLER = "before handler"
    """The turn has begun, and its handler was not called."""
    BEFORE_COMMIT = "before commit"
    """The handler has run to its end, and nothing is committed."""
    AFTER_COMMIT = "after commit"
    """Everything is committed, and nobody was told: no message, no call, no reply has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCrash:
    """A crash of the next turn that gets to `point`, or of the next one of `workflow_id`."""

    point: CrashPoint
    workflow_id: str | None

    def meets(self, point: CrashPoint, workflow_id: str) -> bool:
        return point is self.point and self.workflow_id in (None, workflow_id)


class CrashPlan:
    """The crashes to come, in the order in which they were ordered; each happens once."""

    def __init__(self) -> None:
        self._planned: list[PlannedCrash] = []

    def add(self, crash: PlannedCrash) -> None:
        self._planned.append(crash)

    def reach(self, point: CrashPoint, workflow_id: str) -> None:
        """Raises SimulatedCrash if one was ordered for here."""
        for crash in self._planned:
            if crash.meets(point, workflow_id):
                self._planned.remove(crash)
                raise SimulatedCrash(f"{workflow_id!r} crashes {point}")


class CrashingTurns:
    """The Turns of a runner, with the plan asked around each begin and each ending."""

    def __init__(self, turns: Turns, plan: CrashPlan) -> None:
        self._turns = turns
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turns, name)

    def begin(self, message: TurnMessage, task_id: str) -> BegunTurn | Discard:
        begun = self._turns.begin(message, task_id)
        if isinstance(begun, BegunTurn):
            self._plan.reach(CrashPoint.BEFORE_HANDLER, begun.workflow_id)
        return begun

    def commit(self, begun: BegunTurn, outcome: TurnOutcome) -> CommitAnswer:
        return self._ending(begun, lambda: self._turns.commit(begun, outcome))

    def settle(self, begun: BegunTurn) -> CommitAnswer:
        return self._ending(begun, lambda: self._turns.settle(begun))

    def retry_later(self, begun: BegunTurn, error: str, delay: timedelta) -> CommitAnswer:
        return self._ending(begun, lambda: self._turns.retry_later(begun, error, delay))

    def give_up(self, begun: BegunTurn, error: str) -> CommitAnswer:
        return self._ending(begun, lambda: self._turns.give_up(begun, error))

    def _ending(self, begun: BegunTurn, write: Callable[[], T]) -> T:
        self._plan.reach(CrashPoint.BEFORE_COMMIT, begun.workflow_id)
        answer = write()
        self._plan.reach(CrashPoint.AFTER_COMMIT, begun.workflow_id)
        return answer
