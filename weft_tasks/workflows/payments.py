"""Paying what commits owe: tasks are sent, replies become signals of their parents. Repeating is harmless."""

from __future__ import annotations

from collections.abc import Iterable

from weft_tasks.errors import SignalKeyConflict, StoreUnavailable, WorkflowEnded, WorkflowNotFound
from weft_tasks.store.outbox import Debt, DebtKind, Outbox
from weft_tasks.store.payloads import encode
from weft_tasks.store.signals import Signals
from weft_tasks.workflows.dispatcher import Dispatcher

REPLY_LIMIT = 64 * 1024 * 1024
"""A reply repeats a result that was already held to the payload limit, wrapped in a little more."""


class Payments:
    """Pays debts one by one. What fails stays owed, and the next pass tries again."""

    def __init__(self, *, outbox: Outbox, signals: Signals, dispatcher: Dispatcher) -> None:
        self._outbox = outbox
        self._signals = signals
        self._dispatcher = dispatcher

    def pay_overdue(self) -> int:
        """Pay what nobody paid within R of its commit; returns how many were paid. Raises StoreUnavailable."""
        return self.pay(self._outbox.list_overdue())

    def pay(self, debts: Iterable[Debt]) -> int:
        """Pay each debt that can be paid now. Never raises for the store or the broker."""
        return sum(self._pay_one(debt) for debt in debts)

    def _pay_one(self, debt: Debt) -> bool:
        try:
            is_paid = self._dispatcher.send_call(debt) if debt.kind is DebtKind.CALL else self._reply(debt)
            if is_paid:
                self._outbox.pay(debt.id)
        except StoreUnavailable:
            return False
        return is_paid

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
