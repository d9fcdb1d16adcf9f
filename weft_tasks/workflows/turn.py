"""What a handler is given: the turn. Everything done through it commits together, or not at all (O1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from weft_tasks.errors import InvalidInput, TurnError
from weft_tasks.model import Json, NewWorkflow, Parent, WorkflowStatus
from weft_tasks.settings import NEVER
from weft_tasks.store.outbox import Debt
from weft_tasks.store.payloads import checked_duration, checked_name, encode
from weft_tasks.store.turns import BegunTurn, BufferedSignal, TurnOutcome, UpdateOutcome
from weft_tasks.workflows.calls import call_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """What `turn.complete` and `turn.fail` return, for the handler to return in turn."""

    status: WorkflowStatus
    result: Json = None
    reason: str | None = None


class Turn:
    """One run of a workflow's handler.

    `state` is a JSON object that the handler changes freely; it is stored with the commit. What the turn is given
    (state, input, signals, `timed_out`) is the same when it is tried again.
    """

    def __init__(
        self,
        begun: BegunTurn,
        *,
        payload_limit: int,
        is_current: Callable[[], bool],
        version_of: Callable[[str], int] = lambda _type_name: 1,
    ) -> None:
        self._begun = begun
        self._version_of = version_of
        self._limit = payload_limit
        self._is_current = is_current
        self._taken: set[int] = set()
        self._waits: dict[str, timedelta | datetime | None] = {}
        self._calls: list[Debt] = []
        self._children: list[NewWorkflow] = []
        self._answers: list[UpdateOutcome] = []
        self._end: TurnEnd | None = None
        self._keys = 0
        self.state: dict[str, Any] = json.loads(begun.state_json)

    def __repr__(self) -> str:
        return f"<Turn {self.number} of {self.type} {self.workflow_id!r}>"

    # -- what it is

    @property
    def workflow_id(self) -> str:
        return self._begun.workflow_id

    @property
    def run_id(self) -> str:
        """New at every start of the workflow id."""
        return self._begun.run_id

    @property
    def type(self) -> str:
        return self._begun.type

    @property
    def version(self) -> int:
        """The version of the type that this workflow was started with."""
        return self._begun.version

    @property
    def number(self) -> int:
        """0 for the first turn, then one more with each commit."""
        return self._begun.turn

    @property
    def tries(self) -> int:
        """How often this turn's handler has raised before."""
        return self._begun.tries

    @property
    def input(self) -> Any:
        """What the workflow was started with. Changing it changes nothing."""
        return self._begun.input

    @property
    def began_at(self) -> datetime:
        """The database's time when the turn first began: a clock that a second try reads alike."""
        return self._begun.began_at

    @property
    def timed_out(self) -> bool:
        """A deadline of the previous turn's waits had passed when this turn first began, and nothing awaited came."""
        awaited = {wait.name for wait in self._begun.waits}
        came = any(signal.name in awaited for signal in self._begun.signals)
        return bool(self._begun.expired_waits) and not came

    @property
    def deadlines(self) -> Mapping[str, datetime]:
        """When the waits of the previous turn run out, by name: `turn.wait(name, until=turn.deadlines[name])` goes on
        waiting without starting the time anew."""
        return {wait.name: wait.deadline for wait in self._begun.waits if wait.deadline is not None}

    @property
    def is_cancelling(self) -> bool:
        """Whether this is the last turn of a cancelled workflow."""
        return self._begun.is_cancelling

    @property
    def cancelled(self) -> bool:
        """Whether this attempt has lost its turn, so that its commit would be refused. Reads the store each time."""
        return not self._is_current()

    # -- signals and waiting

    def take(self, name: str, limit: int | None = None) -> Sequence[BufferedSignal]:
        """The buffered signals of this name in their order, at most `limit`; consumed when this turn commits.

        A signal is returned once per turn. Ones not taken stay buffered.
        """
        checked_name("signal name", name)
        if limit is not None and limit < 0:
            raise InvalidInput("limit", f"must not be negative: {limit}")
        waiting = [signal for signal in self._begun.signals if signal.name == name and signal.number not in self._taken]
        taken = waiting if limit is None else waiting[:limit]
        self._taken.update(signal.number for signal in taken)
        return taken

    def wait(self, *names: str, timeout: timedelta | float | None = None, until: datetime | None = None) -> None:
        """Park the workflow after this turn until a signal of one of `names` is there, or `timeout` has passed.

        The timeout counts from the commit, by the database's clock; a number is seconds. `until` is an aware time
        instead. Several calls add up: whatever comes first wakes the workflow. Waits last until the next commit.
        """
        if not names:
            raise InvalidInput("wait", "needs the name of at least one signal")
        limit = self._limit_of(timeout, until)
        for name in names:
            self._waits[checked_name("signal name", name)] = limit

    def sleep(self, duration: timedelta | float) -> None:
        """Park the workflow after this turn until `duration` has passed, counted from the commit."""
        self._waits[""] = checked_duration("sleep", duration)

    def _limit_of(self, timeout: timedelta | float | None, until: datetime | None) -> timedelta | datetime | None:
        if until is None:
            return None if timeout is None else checked_duration("timeout", timeout)
        if timeout is not None:
            raise InvalidInput("wait", "takes a timeout or until, not both")
        if not isinstance(until, datetime) or until.tzinfo is None:
            raise InvalidInput("until", f"must be a datetime that carries a time zone, not {until!r}")
        checked_duration("until", max(until - self.began_at, timedelta(0)))
        return until

    # -- tasks and children

    def call(self, signature: Any, *, reply: str | None = None, resend_after: timedelta | float | None = None) -> str:
        """Send a Celery task once this turn has committed; returns the id that the task will have.

        What it returns comes back as a signal named `reply`, once; if it fails for good, as a signal with `is_failure`.
        Its queue, countdown, retries and limits are the signature's own. A chain counts as one call. A task of which
        nothing is known for `resend_after` is taken for lost and sent again under the same id; NEVER leaves that out.
        """
        call_id = f"{self.run_id}-{self.number}-{len(self._calls)}"
        if reply is not None:
            checked_name("reply", reply)
        self._calls.append(
            call_of(
                signature,
                call_id=call_id,
                reply=reply,
                workflow_id=self.workflow_id,
                run_id=self.run_id,
                payload_limit=self._limit,
                resend_after=_checked_resend(resend_after, reply),
            )
        )
        return call_id

    def start_child(
        self,
        type_name: str,
        input: Json = None,
        *,
        id: str | None = None,
        reply: str | None = None,
        close_policy: str = "cancel",
        timeout: timedelta | float | None = None,
    ) -> str:
        """Start a workflow that belongs to this one, with the commit of this turn; returns its id.

        Its end comes back as a signal named `reply`: its result, or with `is_failure` how else it ended. When this
        workflow ends, `close_policy` says what becomes of a child that still runs: "cancel" it or "abandon" it.
        """
        if close_policy not in ("cancel", "abandon"):
            raise InvalidInput("close policy", f"must be 'cancel' or 'abandon', not {close_policy!r}")
        if id is None:
            id = f"{self.workflow_id[:180]}/{self.run_id[:8]}-{self.number}-{len(self._children)}"
        self._children.append(
            NewWorkflow(
                id=checked_name("child id", id),
                type=type_name,
                version=self._version_of(type_name),
                input_json=encode("child input", input, self._limit),
                timeout=None if timeout is None else checked_duration("timeout", timeout),
                parent=Parent(
                    id=self.workflow_id,
                    run_id=self.run_id,
                    reply=None if reply is None else checked_name("reply", reply),
                    close_policy=close_policy,
                ),
            )
        )
        return id

    # -- ending

    def complete(self, result: Json = None) -> TurnEnd:
        """End the workflow with a result: `return turn.complete(...)`."""
        return self._ending(TurnEnd(status=WorkflowStatus.COMPLETED, result=result))

    def fail(self, reason: str) -> TurnEnd:
        """End the workflow as failed, on purpose: `return turn.fail("payment refused")`."""
        return self._ending(TurnEnd(status=WorkflowStatus.FAILED, reason=str(reason)))

    def _ending(self, end: TurnEnd) -> TurnEnd:
        if self._end is not None:
            raise TurnError(f"the turn ended already, with {self._end.status}")
        self._end = end
        return end

    def idempotency_key(self) -> str:
        """A key for the next external side effect of this turn, the same when the turn is tried again: run, turn number
        and the count of calls. External effects happen at least once; the other side can tell a repeat by this."""
        key = f"{self.run_id}:{self.number}:{self._keys}"
        self._keys += 1
        return key

    # -- what the runner makes of it

    def answer(self, outcome: UpdateOutcome) -> None:
        """Keep the answer to an update, for the commit."""
        self._answers.append(outcome)

    def checkpoint(self) -> Callable[[], None]:
        """What is done up to here; calling the result undoes everything done since, the answers apart."""
        state = json.dumps(self.state)
        taken, waits, calls, children = set(self._taken), dict(self._waits), len(self._calls), len(self._children)
        end = self._end

        def undo() -> None:
            self.state = json.loads(state)
            self._taken, self._waits, self._end = taken, waits, end
            del self._calls[calls:], self._children[children:]

        return undo

    @property
    def has_ended(self) -> bool:
        return self._end is not None

    def is_end(self, returned: object) -> bool:
        """Whether `returned` is what this turn's complete or fail returned."""
        return returned is self._end

    def answers_alone(self) -> TurnOutcome:
        """The effect of a turn that only refused updates: the workflow stays as it was, its waits run on."""
        return TurnOutcome(
            status=WorkflowStatus.RUNNING,
            state_json=self._begun.state_json,
            keeps_waits=True,
            wants_more=self._begun.has_more,
            answers=tuple(self._answers),
        )

    def cancelled_outcome(self, error: str | None) -> TurnOutcome:
        """The effect of the last turn of a cancelled workflow, whatever its handler returned."""
        return TurnOutcome(
            status=WorkflowStatus.CANCELLED,
            state_json=self.encoded_state(),
            consumed=tuple(sorted(self._taken)),
            error=error,
            answers=tuple(self._answers),
            calls=tuple(self._calls),
            children=tuple(self._children),
        )

    def outcome(self, returned: object) -> TurnOutcome:
        """The turn's effect as one value to commit. Raises TurnError or InvalidInput if it has no meaning."""
        if returned is not None and returned is not self._end:
            raise TurnError(
                f"the handler returned {type(returned).__name__}; it may return turn.complete(...) or turn.fail(...)"
            )
        if self._end is None and not self._waits:
            raise TurnError("the turn neither completed nor failed, and waits for nothing: it would never run again")
        left = {signal.name for signal in self._begun.signals if signal.number not in self._taken}
        return TurnOutcome(
            status=self._end.status if self._end else WorkflowStatus.RUNNING,
            state_json=self.encoded_state(),
            consumed=tuple(sorted(self._taken)),
            waits=() if self._end else tuple(self._waits.items()),
            result=self._encoded_result(),
            error=self._encoded_reason(),
            wants_more=self._begun.has_more or bool(left & self._waits.keys()),
            answers=tuple(self._answers),
            calls=tuple(self._calls),
            children=tuple(self._children),
        )

    def encoded_state(self) -> str:
        """The state as it is stored. Raises InvalidInput if it cannot be."""
        if not isinstance(self.state, dict):
            raise InvalidInput("state", f"must be a JSON object (a dict), not {type(self.state).__name__}")
        return encode("state", self.state, self._limit)

    def _encoded_result(self) -> str | None:
        if self._end is None or self._end.status is not WorkflowStatus.COMPLETED:
            return None
        return encode("result", self._end.result, self._limit)

    def _encoded_reason(self) -> str | None:
        if self._end is None or self._end.reason is None:
            return None
        return encode("failure reason", {"type": "WorkflowFailed", "message": self._end.reason}, self._limit)


def _checked_resend(resend_after: timedelta | float | None, reply: str | None) -> timedelta | None:
    if resend_after is None:
        return None
    if resend_after == NEVER:
        return NEVER
    if reply is None:
        raise TurnError(
            "turn.call takes resend_after only with a reply: without one nobody notices that a task is lost"
        )
    duration = checked_duration("resend_after", resend_after)
    if not duration:
        raise InvalidInput("resend_after", "must be more than 0 seconds")
    return duration
