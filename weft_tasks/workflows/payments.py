"""Paying what commits owe: tasks are sent, replies become signals of their parents. Repeating is harmless.

A task that was sent is asked about until its reply has come: the message that carried it may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft_tasks.errors import InvalidInput, SignalKeyConflict, StoreUnavailable, WorkflowEnded, WorkflowNotFound
from weft_tasks.events import CallSentAgain, Events, OutcomeUnknown, ReplyRecovered
from weft_tasks.model import Json
from weft_tasks.store.outbox import Debt, DebtKind, Due, Outbox
from weft_tasks.store.payloads import encode
from weft_tasks.store.signals import Signals
from weft_tasks.workflows.dispatcher import Dispatcher

REPLY_LIMIT = 64 * 1024 * 1024
"""A reply repeats a result that was already held to the payload limit, wrapped in a little more."""


class Payments:
    """Pays debts one by one. What fails stays owed, and the next pass tries again."""

    def __init__(
        self, *, outbox: Outbox, signals: Signals, dispatcher: Dispatcher, payload_limit: int, events: Events
    ) -> None:
        self._events = events
        self._outbox = outbox
        self._signals = signals
        self._dispatcher = dispatcher
        self._payload_limit = payload_limit

    def pay_overdue(self) -> int:
        """Pay what nobody paid within R of its commit, and ask what became of calls; returns how many were paid or
        sent again. Raises StoreUnavailable."""
        return self.pay(self._outbox.list_overdue())

    def pay(self, debts: Iterable[Debt]) -> int:
        """Pay each debt that can be paid now. Never raises for the store or the broker."""
        return sum(self._pay_one(debt) for debt in debts)

    def deliver_reply(
        self, workflow_id: str, run_id: str, call_id: str, name: str, payload: Json, *, is_failure: bool = False
    ) -> str | None:
        """Deliver what became of a called task, once, to the run that called it. One transaction; the call is no longer
        owed then. Of a task that ran twice the first outcome counts, whatever the second one was.

        A result that is not JSON, or too large, arrives as a failure; returns why. Raises WorkflowNotFound,
        WorkflowEnded or StoreUnavailable.
        """
        problem = None
        try:
            text = encode("reply", payload, self._payload_limit)
        except InvalidInput as error:
            problem, is_failure = str(error), True
            text = encode("reply", {"type": "InvalidInput", "message": problem}, self._payload_limit)
        try:
            sent = self._signals.send(
                workflow_id, name, text, key=call_id, run_id=run_id, is_failure=is_failure, is_reply=True
            )
        except SignalKeyConflict:
            return problem
        if sent.message is not None:
            self._dispatcher.send_turn(sent.message)
        return problem

    def _pay_one(self, debt: Debt) -> bool:
        if debt.damage is not None:
            self._events.emit(OutcomeUnknown(workflow_id=debt.workflow_id, call_id=debt.id, error=str(debt.damage)))
            return False
        try:
            if debt.due is not Due.SEND and self._has_come(debt):
                return True
            if debt.due is Due.ASK:
                return False
            is_paid = self._dispatcher.send_call(debt) if debt.kind is DebtKind.CALL else self._reply(debt)
            if is_paid:
                self._outbox.pay(debt)
                if debt.due is Due.SEND_AGAIN:
                    self._events.emit(CallSentAgain(workflow_id=debt.workflow_id, call_id=debt.id))
        except StoreUnavailable:
            return False
        return is_paid

    def _has_come(self, debt: Debt) -> bool:
        """Whether the outcome of a call is known; then it is delivered."""
        outcome = self._dispatcher.outcome_of_call(debt)
        if outcome is None:
            return False
        try:
            self.deliver_reply(
                debt.workflow_id,
                debt.run_id,
                debt.id,
                debt.body["reply"],
                outcome.payload,
                is_failure=outcome.is_failure,
            )
        except (WorkflowNotFound, WorkflowEnded):
            self._outbox.forget(debt.id)
        else:
            self._events.emit(ReplyRecovered(workflow_id=debt.workflow_id, call_id=debt.id))
        return True

    def _reply(self, debt: Debt) -> bool:
        """The key makes it one signal, however often it is sent. A parent that is gone or over needs none."""
        try:
            sent = self._signals.send(
                debt.workflow_id,
                debt.body["name"],
                encode("reply", debt.body["payload"], REPLY_LIMIT),
                key=debt.id,
                run_id=debt.run_id,
                is_failure=debt.body["is_failure"],
                is_reply=True,
            )
        except (WorkflowNotFound, WorkflowEnded, SignalKeyConflict):
            return True
        if sent.message is not None:
            self._dispatcher.send_turn(sent.message)
        return True
