"""What a workflow is to everybody who talks about one: its states, its description, and the message that wakes it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypeAlias

Json: TypeAlias = Any
"""What `json.dumps` takes and `json.loads` gives. A recursive type would refuse a list[str], because lists are
invariant, and would have a handler prove what a payload is before it can read it. What is no JSON is InvalidInput, at
the call."""


class WorkflowStatus(StrEnum):
    """Running is the only status in which turns run."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"
    TIMED_OUT = "timed-out"
    SET_ASIDE = "set-aside"
    """Begun too often without a commit (O11): kept out of the way, with its reason, until somebody retries it."""

    @property
    def is_ended(self) -> bool:
        """Over for good: it takes nothing more, and only its id may be used again."""
        return self not in (WorkflowStatus.RUNNING, WorkflowStatus.SUSPENDED, WorkflowStatus.SET_ASIDE)


class EngineStatus(StrEnum):
    """Of an engine's row. A draining engine is offered nothing; a stopped one is silent at once (O4, O6)."""

    LIVE = "live"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMessage:
    """A hint that a turn is due, checked against the row by whoever receives it (O10).

    `engine_id` is None for a new workflow that any engine may acquire; then `epoch` is the one it was started with.
    """

    workflow_id: str
    run_id: str
    engine_id: str | None
    epoch: int
    turn: int

    @classmethod
    def question(cls, engine_id: str) -> Self:
        """A message that begins nothing: that it is handled shows that its engine takes turns (O12)."""
        return cls(workflow_id="", run_id="", engine_id=engine_id, epoch=0, turn=0)

    @property
    def is_question(self) -> bool:
        return not self.workflow_id


class HeldClaim(NamedTuple):
    """A claim as some reader saw it; every write that uses it names engine and epoch again (O1).

    A tuple, because a renewal pass makes, compares and keeps one for each claim in the store.
    """

    workflow_id: str
    engine_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What a parked workflow waits for. `deadline` is a time of the database's clock."""

    name: str
    deadline: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInfo:
    """A workflow as its row describes it at one moment."""

    id: str
    type: str
    version: int
    run_id: str
    status: WorkflowStatus
    is_cancelling: bool
    """Cancelled, and its last turn has not ended yet."""
    engine_id: str | None
    """The owner; None while it has none."""
    epoch: int
    turn: int
    """The number of the turn that comes next, or runs now."""
    is_due: bool
    """It must run: it has something to consume, or its first turn or another try to do."""
    waits: tuple[Wait, ...]
    pending_signals: int
    pending_updates: int
    state: dict[str, Json]
    """`turn.state` as of the last commit."""
    input: Json
    result: Json
    error: dict[str, Json] | None
    """Why it failed, was terminated or was set aside, or what its latest try raised: type and message, and a
    traceback if something was raised."""
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    parent_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReceipt:
    """The durable answer to a signal: its number within the run, and whether this key had been taken before."""

    workflow_id: str
    run_id: str
    number: int
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReceipt:
    """Which update it is: its run, its number there, and the key under which it may be sent again."""

    workflow_id: str
    run_id: str
    number: int
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The run that a child belongs to; `reply` is the name of the signal that tells it how the child ended."""

    id: str
    run_id: str
    reply: str | None
    close_policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorkflow:
    """A workflow to start. Durations count from the start, and `at` is a time, by the database's clock."""

    id: str
    type: str
    input_json: str
    version: int = 1
    delay: timedelta | None = None
    at: datetime | None = None
    timeout: timedelta | None = None
    parent: Parent | None = None

    @property
    def is_put_off(self) -> bool:
        """Whether its first turn waits for a time; a pass finds it then, and nobody is told before."""
        return self.delay is not None or self.at is not None
