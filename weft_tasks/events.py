"""What happened, as facts. Domain code emits events; log lines and Celery signals are made from them elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

from weft_tasks.lines import write
from weft_tasks.model import TurnMessage
from weft_tasks.results import PassReport

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLost:
    """A commit was refused: this engine no longer owns the workflow, or this attempt is not its current one (O1)."""

    workflow_id: str
    run_id: str
    engine_id: str
    epoch: int
    turn: int
    attempt: int


class ClaimOutcome(StrEnum):
    """What a try at a claim came to."""

    ACQUIRED = "acquired"
    """Nobody held it."""
    TAKEOVER = "takeover"
    """Its engine was silent, stopped, gone or deaf (O4)."""
    LOST_RACE = "lost_race"
    """Somebody else was first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAttempted:
    """An engine, or a reclaim pass for one, tried to get a workflow. `epoch` is the new one if it won, else the one
    that the try named. `silent_for` is what a takeover waited since the last heartbeat of the engine that had it."""

    workflow_id: str
    run_id: str
    engine_id: str
    epoch: int
    outcome: ClaimOutcome
    from_engine_id: str | None = None
    silent_for: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """A turn that had begun is over. `status` is the TurnStatus of its report, `took` the time from its begin.
    `woken_after` is the time from the signal that woke it to its begin, if a signal did."""

    workflow_id: str
    type: str
    engine_id: str
    epoch: int
    turn: int
    status: str
    took: timedelta
    woken_after: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeDiscarded:
    """A turn message did not match its row, so no turn began (O10)."""

    message: TurnMessage
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed:
    """A handler raised. `retry_in` is seconds until the next try; None means the workflow has failed."""

    workflow_id: str
    engine_id: str
    epoch: int
    turn: int
    error: str
    retry_in: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitUnknown:
    """The store did not answer a commit; it is being resolved by reading (O8)."""

    workflow_id: str
    engine_id: str
    epoch: int
    turn: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCompleted:
    """A pass ended, well or not."""

    result: PassReport


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishFailed:
    """A message after a commit was not accepted by the broker; the row sends it again (O9)."""

    message: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeUnknown:
    """The result backend did not say what became of a called task; a later pass asks again."""

    workflow_id: str
    call_id: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRecovered:
    """A called task had ended and its reply had not come: a pass read its outcome from the result backend."""

    workflow_id: str
    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSentAgain:
    """Of a called task neither reply nor outcome was known for `weft_call_resend_after`: it was taken for lost."""

    workflow_id: str
    call_id: str


Event: TypeAlias = (
    ClaimLost
    | ClaimAttempted
    | TurnEnded
    | WakeDiscarded
    | TurnFailed
    | CommitUnknown
    | PassCompleted
    | PublishFailed
    | OutcomeUnknown
    | ReplyRecovered
    | CallSentAgain
)
Sink: TypeAlias = Callable[[Event], None]


class Events:
    """Hands every event to every sink. A sink that raises is logged and changes nothing."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def emit(self, event: Event) -> None:
        for sink in self._sinks:
            try:
                sink(event)
            except Exception:
                note = f"{sink!r} raised on {type(event).__name__}"
                write(logger, logging.ERROR, "weft.sink.failed", note=note, exc_info=True)
