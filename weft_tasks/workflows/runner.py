"""The runner of turns: from a message to a commit, or to a reason why not.

It knows no Celery. The store decides everything; the runner keeps the order: acquire, begin, call the handler, commit,
and only then tell anybody (O1, O8, O9, O10).
"""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from weft_tasks.errors import InvalidInput, StoreUnavailable, message_of
from weft_tasks.events import (
    ClaimLost,
    CommitUnknown,
    Events,
    TurnEnded,
    TurnFailed,
    WakeDiscarded,
)
from weft_tasks.model import TurnMessage, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store.claims import Claims, Grant, TakeoverAnswer, attempted_claim
from weft_tasks.store.turns import BegunTurn, CommitAnswer, CommitStatus, Discard, TurnOutcome, Turns
from weft_tasks.tracing import link_current_span
from weft_tasks.workflows.answering import answer_updates
from weft_tasks.workflows.dispatcher import Dispatcher
from weft_tasks.workflows.payments import Payments
from weft_tasks.workflows.registry import Registry, WorkflowType
from weft_tasks.workflows.turn import Turn

TRACEBACK_LIMIT = 8000
LONGEST_MESSAGE = 2000
LONGEST_NAME = 200


class TurnStatus(StrEnum):
    """What became of a turn message."""

    COMMITTED = "committed"
    NOTHING_TO_DO = "nothing-to-do"
    RETRYING = "retrying"
    FAILED = "failed"
    REFUSED = "refused"
    """The commit found another owner or attempt in place: everything the turn did is discarded (O1)."""
    DISCARDED = "discarded"
    ANSWERED = "answered"
    """Not a turn but the question whether this engine, marked as deaf, hears again (O12)."""
    UNKNOWN = "unknown"
    """The store did not answer, to the end; the row has the truth and is dispatched again if it must be (O8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReport:
    """What became of a turn message, in the words that Flower and the log show."""

    status: TurnStatus
    workflow_id: str
    turn: int
    epoch: int
    reason: str | None = None


class TurnRunner:
    """Runs the turns that messages name, for the engine they were sent to."""

    def __init__(
        self,
        *,
        registry: Registry,
        claims: Claims,
        turns: Turns,
        dispatcher: Dispatcher,
        payments: Payments,
        settings: Settings,
        events: Events,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._claims = claims
        self._turns = turns
        self._dispatcher = dispatcher
        self._payments = payments
        self._settings = settings
        self._events = events
        self._sleep = sleep
        self._monotonic = monotonic

    def run(self, message: TurnMessage, *, task_id: str, engine_id: str) -> TurnReport:
        """Run the turn that `message` names on `engine_id`; `task_id` is what that engine's heartbeats call it.

        Never raises for anything the store or the handler does. A handler that ends its process is the exception: its
        attempt stays open until two heartbeats did not name it (O9).
        """
        try:
            at_once = self._at_once(message, task_id, engine_id)
            if at_once is not None:
                return self._run_timed(at_once)
            held = self._held(message, engine_id)
            if isinstance(held, str):
                return self._discard(message, held)
            if held.is_question:
                self._turns.note_answer(engine_id)
                return _report(TurnStatus.ANSWERED, "", 0, 0)
            begun = self._turns.begin(held, task_id)
            if isinstance(begun, Discard):
                return self._discard(held, begun)
        except StoreUnavailable as error:
            return _report(TurnStatus.UNKNOWN, message.workflow_id, message.turn, message.epoch, str(error))
        return self._run_timed(begun)

    def _at_once(self, message: TurnMessage, task_id: str, engine_id: str) -> BegunTurn | None:
        """An offer, taken and begun in one step; None if that cannot be, and for a message that is no offer."""
        if message.engine_id is not None:
            return None
        begun = self._turns.acquire_and_begin(message, engine_id, task_id)
        if begun is not None:
            grant = Grant(answer=TakeoverAnswer.WON, epoch=begun.epoch, turn=begun.turn, is_due=True)
            self._report_claim(message, engine_id, grant)
        return begun

    def _held(self, message: TurnMessage, engine_id: str) -> TurnMessage | str:
        """The message as addressed to this engine; a new workflow is acquired first (O5). One for another engine went
        astray, and a turn begun here would be in no hand that its holder's heartbeats name."""
        if message.engine_id is not None:
            return message if message.engine_id == engine_id else "other-engine"
        grant = self._claims.acquire(message.workflow_id, message.run_id, message.epoch, engine_id)
        self._report_claim(message, engine_id, grant)
        if grant.answer is not TakeoverAnswer.WON:
            return f"not-acquired: {grant.answer}"
        return replace(message, engine_id=engine_id, epoch=grant.epoch, turn=grant.turn)

    def _report_claim(self, message: TurnMessage, engine_id: str, grant: Grant) -> None:
        attempted = attempted_claim(message.workflow_id, message.run_id, message.epoch, engine_id, grant)
        if attempted is not None:
            self._events.emit(attempted)

    def _discard(self, message: TurnMessage, reason: str) -> TurnReport:
        self._events.emit(WakeDiscarded(message=message, reason=reason))
        return _report(TurnStatus.DISCARDED, message.workflow_id, message.turn, message.epoch, reason)

    def _run_timed(self, begun: BegunTurn) -> TurnReport:
        link_current_span(begun.traces, _attributes(begun))
        began = self._monotonic()
        report = self._run(begun)
        self._events.emit(
            TurnEnded(
                workflow_id=begun.workflow_id,
                type=begun.type,
                engine_id=begun.engine_id,
                epoch=begun.epoch,
                turn=begun.turn,
                status=report.status.value,
                took=timedelta(seconds=self._monotonic() - began),
                woken_after=begun.woken_after,
            )
        )
        return report

    def _run(self, begun: BegunTurn) -> TurnReport:
        if begun.damage is not None:
            return self._failed(begun, begun.damage)
        if not begun.has_work:
            return self._close(begun, TurnStatus.NOTHING_TO_DO, lambda: self._turns.settle(begun))
        try:
            outcome = self._call_handler(begun)
        except Exception as error:
            return self._failed(begun, error)
        try:
            return self._close(begun, TurnStatus.COMMITTED, lambda: self._turns.commit(begun, outcome))
        except InvalidInput as error:
            return self._failed(begun, error)

    def _call_handler(self, begun: BegunTurn) -> TurnOutcome:
        """Updates first, in their order; then the handler, which sees what they changed."""
        workflow_type = self._registry.get(begun.type)
        turn = Turn(
            begun,
            payload_limit=self._settings.payload_limit,
            is_current=lambda: self._turns.is_current(begun),
            version_of=lambda type_name: self._registry.get(type_name).version,
        )
        if begun.is_cancelling:
            return self._clean_up(turn, workflow_type)
        has_applied = answer_updates(turn, begun.updates, workflow_type, self._settings.payload_limit)
        if turn.has_ended:
            return turn.outcome(None)
        if not (has_applied or begun.has_work_for_handler):
            return turn.answers_alone()
        return turn.outcome(workflow_type.handler(turn))

    def _clean_up(self, turn: Turn, workflow_type: WorkflowType) -> TurnOutcome:
        """The last turn of a cancelled workflow: whatever it does, the workflow is cancelled."""
        undo = turn.checkpoint()
        try:
            if workflow_type.cancel_handler is not None:
                workflow_type.cancel_handler(turn)
            return turn.cancelled_outcome(None)
        except Exception as error:
            undo()
            return turn.cancelled_outcome(_described(error))

    def _failed(self, begun: BegunTurn, error: Exception) -> TurnReport:
        """Nothing the handler did commits. The turn is tried again a few times, ever later; then the workflow fails.

        The last turn of a cancelled workflow has one try, and is cancelled with the error.
        """
        described = _described(error)
        is_last, delay = (True, timedelta(0)) if begun.is_cancelling else self._next_try(begun)
        self._events.emit(
            TurnFailed(
                workflow_id=begun.workflow_id,
                engine_id=begun.engine_id,
                epoch=begun.epoch,
                turn=begun.turn,
                error=f"{type(error).__name__}: {message_of(error)}",
                retry_in=None if is_last else delay.total_seconds(),
            )
        )
        if begun.is_cancelling:
            outcome = TurnOutcome(status=WorkflowStatus.CANCELLED, state_json=begun.state_json, error=described)
            return self._close(begun, TurnStatus.FAILED, lambda: self._turns.commit(begun, outcome))
        if is_last:
            return self._close(begun, TurnStatus.FAILED, lambda: self._turns.give_up(begun, described))
        return self._close(begun, TurnStatus.RETRYING, lambda: self._turns.retry_later(begun, described, delay))

    def _next_try(self, begun: BegunTurn) -> tuple[bool, timedelta]:
        """Whether this was the last try by the type's retry policy, and else how long to wait for the next."""
        policy = self._registry.policy(begun.type)
        tries = begun.tries + 1
        limit = policy.tries or self._settings.turn_tries
        delay = self._settings.turn_retry_delay if policy.delay is None else policy.delay
        longest = self._settings.turn_retry_delay_max if policy.max_delay is None else policy.max_delay
        return tries >= limit, _doubled(delay, tries - 1, longest)

    def _close(self, begun: BegunTurn, status: TurnStatus, write: Callable[[], CommitAnswer]) -> TurnReport:
        """Write the turn's ending until the store says won or lost, then send what follows from it."""
        answer = self._until_known(begun, write)
        if answer is None:
            return _report(TurnStatus.UNKNOWN, begun.workflow_id, begun.turn, begun.epoch, "the store did not answer")
        if answer.status is CommitStatus.LOST:
            return self._refused(begun)
        for message in answer.started:
            self._dispatcher.send_turn(message)
        self._payments.pay(answer.debts)
        if answer.next_message is not None:
            self._dispatcher.send_turn(answer.next_message)
        elif answer.is_released:
            self._dispatcher.request_reclaim()
        return _report(status, begun.workflow_id, begun.turn, begun.epoch)

    def _refused(self, begun: BegunTurn) -> TurnReport:
        self._events.emit(
            ClaimLost(
                workflow_id=begun.workflow_id,
                run_id=begun.run_id,
                engine_id=begun.engine_id,
                epoch=begun.epoch,
                turn=begun.turn,
                attempt=begun.attempt,
            )
        )
        # The event has reported it; the entry in the history is a convenience.
        with contextlib.suppress(StoreUnavailable):
            self._turns.record_refusal(begun)
        return _report(TurnStatus.REFUSED, begun.workflow_id, begun.turn, begun.epoch)

    def _until_known(self, begun: BegunTurn, write: Callable[[], CommitAnswer]) -> CommitAnswer | None:
        """O8: an unknown ending is written again, which is safe because it is conditional; a repeat that is refused is
        resolved by reading whether the first one had arrived. None after a TTL of trying: the claim may be gone.
        """
        was_unknown = False
        for pause in self._pauses():
            try:
                answer = write()
                if answer.status is CommitStatus.LOST and was_unknown and self._turns.was_closed_by(begun):
                    return CommitAnswer(status=CommitStatus.WON)
                return answer
            except StoreUnavailable as error:
                was_unknown = True
                self._report_unknown(begun, error)
                self._sleep(pause.total_seconds())
        return None

    def _pauses(self) -> Iterator[timedelta]:
        waited, pause = timedelta(0), self._settings.statement_timeout / 4
        while waited < self._settings.claim_ttl:
            yield pause
            waited += pause
            pause = min(pause * 2, self._settings.renew_interval)

    def _report_unknown(self, begun: BegunTurn, error: StoreUnavailable) -> None:
        self._events.emit(
            CommitUnknown(
                workflow_id=begun.workflow_id,
                engine_id=begun.engine_id,
                epoch=begun.epoch,
                turn=begun.turn,
                error=str(error),
            )
        )


def _doubled(delay: timedelta, times: int, longest: timedelta) -> timedelta:
    """`delay` doubled so often, at most `longest`, and never too long for a timedelta on the way."""
    for _ in range(times):
        if not delay:
            break
        if delay > longest / 2:
            return longest
        delay *= 2
    return min(delay, longest)


def _described(error: Exception) -> str:
    """The error as the row keeps it: bounded, and made without trusting the error."""
    lines = "".join(traceback.format_exception(error))
    described = {
        "type": type(error).__name__[:LONGEST_NAME],
        "message": message_of(error)[:LONGEST_MESSAGE],
        "traceback": lines[-TRACEBACK_LIMIT:],
    }
    return json.dumps(described)


def _attributes(begun: BegunTurn) -> dict[str, str | int]:
    """What a trace says of a turn."""
    return {
        "weft.workflow.id": begun.workflow_id,
        "weft.workflow.type": begun.type,
        "weft.run.id": begun.run_id,
        "weft.engine.id": begun.engine_id,
        "weft.epoch": begun.epoch,
        "weft.turn": begun.turn,
        "weft.attempt": begun.attempt,
    }


def _report(status: TurnStatus, workflow_id: str, turn: int, epoch: int, reason: str | None = None) -> TurnReport:
    return TurnReport(status=status, workflow_id=workflow_id, turn=turn, epoch=epoch, reason=reason)
