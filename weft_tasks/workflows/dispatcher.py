"""How messages leave: a protocol, so that the runner of turns knows no Celery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from weft_tasks.model import Json, TurnMessage
from weft_tasks.store.outbox import Debt


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """What became of a called task: what it returned, or its failure."""

    payload: Json
    is_failure: bool


class Dispatcher(Protocol):
    """Messages are hints: a dispatcher never raises, and what is lost the row sends again (O9)."""

    def send_turn(self, message: TurnMessage) -> bool:
        """Offer a turn to its engine, or a new workflow to any; False if the broker did not take it."""

    def send_call(self, debt: Debt) -> bool:
        """Send the task that a commit owes; False if the broker did not take it."""

    def outcome_of_call(self, debt: Debt) -> CallOutcome | None:
        """What became of a task that was sent; None while that is not known."""

    def request_reclaim(self) -> None:
        """Ask for a reclaim pass at once (O6)."""
