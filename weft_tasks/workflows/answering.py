"""Answering the updates of a turn: in their order, each on its own, before the workflow's handler runs."""

from __future__ import annotations

import json

from weft_tasks.errors import message_of
from weft_tasks.store.payloads import encode
from weft_tasks.store.turns import BufferedUpdate, UpdateOutcome
from weft_tasks.store.updates import UPDATE_TRIES, UpdateStatus
from weft_tasks.workflows.registry import UpdateType, WorkflowType
from weft_tasks.workflows.turn import Turn


def answer_updates(turn: Turn, asked: tuple[BufferedUpdate, ...], workflow_type: WorkflowType, limit: int) -> bool:
    """Answer each update; returns whether any was applied.

    A handler that raises is an answer, not a failure of the turn: what it did is undone, and the next one goes on.
    After an update that ended the workflow the rest is left, and is answered with the end.
    """
    has_applied = False
    for update in asked:
        if turn.has_ended:
            break
        outcome = _answered(turn, update, workflow_type, limit)
        turn.answer(outcome)
        has_applied = has_applied or outcome.status is UpdateStatus.ANSWERED
    return has_applied


def _answered(turn: Turn, update: BufferedUpdate, workflow_type: WorkflowType, limit: int) -> UpdateOutcome:
    known = workflow_type.updates.get(update.name)
    if known is None:
        names = ", ".join(sorted(workflow_type.updates)) or "none"
        return _refused(update, "rejected", "UnknownUpdate", f"{workflow_type.name!r} has no such update ({names})")
    if update.is_spent:
        return _refused(
            update, "failed", "UpdateGaveUp", f"{UPDATE_TRIES} turns began with this update and did not commit"
        )
    undo = turn.checkpoint()
    try:
        return _applied(turn, update, known, limit)
    except _Rejected as rejection:
        undo()
        return _refused(update, "rejected", type(rejection.cause).__name__, message_of(rejection.cause))
    except Exception as error:
        undo()
        return _refused(update, "failed", type(error).__name__, message_of(error))


def _applied(turn: Turn, update: BufferedUpdate, known: UpdateType, limit: int) -> UpdateOutcome:
    if known.validator is not None:
        try:
            known.validator(turn, update.payload)
        except Exception as error:
            raise _Rejected(error) from error
    value = known.handler(turn, update.payload)
    turn.encoded_state()  # What cannot be stored is this update's failure, and not the whole turn's.
    if turn.has_ended and value is not None and turn.is_end(value):
        value = None
    return UpdateOutcome(
        number=update.number, status=UpdateStatus.ANSWERED, answer=encode("update answer", value, limit)
    )


def _refused(update: BufferedUpdate, status: str, error_type: str, message: str) -> UpdateOutcome:
    answer = json.dumps({"type": error_type, "message": message[:2000]})
    return UpdateOutcome(number=update.number, status=UpdateStatus(status), answer=answer)


class _Rejected(Exception):
    """A validator raised `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause
