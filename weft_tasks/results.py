"""What passes return: one outcome per item, in input order, with counts made once.

Everything here is frozen, knows no vendor library, and is what the Celery tasks, the log lines and Flower show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from weft_tasks.shards import WHOLE, Shard

_LONGEST_REASON = 200


class Answer(StrEnum):
    """What became of one conditional write: three answers, because a store that is silent has not refused (O8)."""

    WON = "won"
    LOST = "lost"
    """The condition did not hold any more, and nothing was written."""
    UNKNOWN = "unknown"
    """The store did not answer. Never treated as lost: nothing is given up, and the next tick tries again."""


class PassKind(StrEnum):
    """The four passes, by the names their ticks, locks and results carry."""

    RENEWAL = "renewal"
    RECLAIM = "reclaim"
    SIGNAL_POLL = "signal-poll"
    UPDATE_POLL = "update-poll"


class PassStatus(StrEnum):
    """How a pass ended as a whole; what became of each item is in its outcome."""

    COMPLETED = "completed"
    DISCOVERY_FAILED = "discovery-failed"
    """The work list could not be read, so nothing was tried."""
    DEADLINE_REACHED = "deadline-reached"
    """Time was up; `unreached` items have no outcome and wait for the next tick."""


class RenewalStatus(StrEnum):
    RENEWED = "renewed"
    FAILED = "failed"


class ReclaimStatus(StrEnum):
    RECLAIMED = "reclaimed"
    REDISPATCHED = "redispatched"
    """The holder is alive and keeps the claim; only its overdue turn message was sent again (O9)."""
    NOT_ELIGIBLE = "not-eligible"
    BACKOFF_SKIPPED = "backoff-skipped"
    LOST_RACE = "lost-race"
    ERROR = "error"


class SignalPollStatus(StrEnum):
    WOKEN = "woken"
    NOT_BUFFERED = "not-buffered"
    WAKE_FAILED = "wake-failed"


class UpdatePollStatus(StrEnum):
    DRAINED = "drained"
    NO_PENDING_UPDATES = "no-pending-updates"
    DRAIN_FAILED = "drain-failed"


StatusT = TypeVar("StatusT", RenewalStatus, ReclaimStatus, SignalPollStatus, UpdatePollStatus)


class ItemOutcome(NamedTuple, Generic[StatusT]):
    """What became of one item. `reason` says why in a few words when the status alone does not.

    A tuple, because a pass makes one for each of a hundred thousand items.
    """

    workflow_id: str
    status: StatusT
    reason: str | None = None

    @property
    def is_failed_renewal(self) -> bool:
        """A claim that is lost at its renewal is none: its workflow ended or moved since the work list was read."""
        return self.status is RenewalStatus.FAILED and self.reason != Answer.LOST.value


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverAttempt:
    """What one try at moving a claim came to (O4).

    `retry` says that the claim could still move and only the chosen target engine was lost on the way, so that
    another try may choose another one; `status` then is what the try is reported as if it was the last.
    """

    status: ReclaimStatus
    reason: str | None = None
    retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A pass over a shard of the store."""

    kind: PassKind
    shard: Shard = WHOLE

    @property
    def name(self) -> str:
        """Its kind, and its shard if it is one of several: that of its lock, its mark and its reports."""
        return self.shard.named(self.kind.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult(Part, Generic[StatusT]):
    """One sweep: outcomes in the order of the work list, and how many items ended in each status.

    `unreached` items have no outcome. `error` says why the work list could not be read. `split_slices` counts the
    slices that did not work as a whole and were retried claim by claim; `split_reason` says why the first one did not.
    """

    status: PassStatus
    started_at: datetime
    finished_at: datetime
    outcomes: tuple[ItemOutcome[StatusT], ...] = ()
    unreached: int = 0
    error: str | None = None
    split_slices: int = 0
    split_reason: str | None = None
    counts: Mapping[str, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        counts = Counter(outcome.status for outcome in self.outcomes)
        object.__setattr__(self, "counts", MappingProxyType({status.value: n for status, n in counts.items()}))

    @property
    def duration(self) -> timedelta:
        return self.finished_at - self.started_at

    def count(self, status: StatusT) -> int:
        return self.counts.get(status.value, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassFailed(Part):
    """A pass that raised instead of returning a result. What it did before that is not known."""

    error: str
    started_at: datetime
    finished_at: datetime


PassReport: TypeAlias = PassResult[Any] | PassFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOnceResult:
    """One run of the four passes in their order. A part without a target is `None`; a part that raised is a result."""

    started_at: datetime
    renewal: PassResult[RenewalStatus] | PassFailed | None = None
    reclaim: PassResult[ReclaimStatus] | PassFailed | None = None
    signal_poll: PassResult[SignalPollStatus] | PassFailed | None = None
    update_poll: PassResult[UpdatePollStatus] | PassFailed | None = None
    finished_at: datetime

    @property
    def parts(self) -> tuple[PassReport, ...]:
        """The parts that have a target, in the order in which they ran."""
        parts = (self.renewal, self.reclaim, self.signal_poll, self.update_poll)
        return tuple(part for part in parts if part is not None)

    @property
    def failed(self) -> tuple[PassKind, ...]:
        """The passes that raised or could not read their work list; failed items alone do not make a pass fail."""
        return tuple(part.kind for part in self.parts if _has_failed(part))


def reason_in(facts: Mapping[str, Any]) -> str:
    """What a stored error says of itself: `ExceptionType: message`."""
    return f"{facts.get('type')}: {facts.get('message')}"


def reason_of(error: BaseException) -> str:
    """The error as a reason: `ExceptionType: message` on one line, at most 200 characters."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # An error that cannot be printed must not cost the report of the others.
        message = ""
    reason = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"


def _has_failed(part: PassReport) -> bool:
    return isinstance(part, PassFailed) or part.status is PassStatus.DISCOVERY_FAILED
