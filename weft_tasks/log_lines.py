"""The one file that turns events into log lines."""

from __future__ import annotations

import logging

from weft_tasks.events import (
    CallSentAgain,
    ClaimAttempted,
    ClaimLost,
    ClaimOutcome,
    CommitUnknown,
    Event,
    OutcomeUnknown,
    PassCompleted,
    PublishFailed,
    ReplyRecovered,
    TurnFailed,
    WakeDiscarded,
)
from weft_tasks.lines import Field, write
from weft_tasks.passes.sink import log_pass
from weft_tasks.store.turns import Discard

logger = logging.getLogger("weft_tasks")


def log_event(event: Event) -> None:
    """One line per event; nothing for a pass that found nothing to do, nor for a turn that ended as it should.

    What every workflow does once, being acquired, is for the level DEBUG.
    """
    match event:
        case PassCompleted():
            log_pass(event.result)
        case ClaimAttempted():
            _log_attempt(event)
        case ClaimLost():
            fields = {**_turn(event), "attempt": event.attempt}
            write(logger, logging.WARNING, "weft.claim.lost", fields, note="the commit was refused")
        case WakeDiscarded():
            _log_discarded(event)
        case TurnFailed():
            then = "the workflow has failed" if event.retry_in is None else f"next try in {event.retry_in:g} s"
            write(logger, logging.WARNING, "weft.turn.failed", {**_turn(event), "error": event.error}, note=then)
        case CommitUnknown():
            write(logger, logging.WARNING, "weft.commit.unknown", {**_turn(event), "error": event.error})
        case PublishFailed():
            fields = {"what": event.message, "error": event.error}
            write(logger, logging.WARNING, "weft.publish.failed", fields, note="the row sends it again")
        case OutcomeUnknown():
            fields = {**_call(event), "error": event.error}
            write(logger, logging.WARNING, "weft.call.unknown", fields, note="a later pass asks again")
        case ReplyRecovered():
            note = "its reply had not come, but its outcome was known"
            write(logger, logging.WARNING, "weft.call.recovered", _call(event), note=note)
        case CallSentAgain():
            note = "nothing was heard of it since it was sent"
            write(logger, logging.WARNING, "weft.call.resent", _call(event), note=note)


def _turn(event: ClaimLost | TurnFailed | CommitUnknown) -> dict[str, Field]:
    return {
        "workflow": event.workflow_id,
        "engine": event.engine_id,
        "epoch": event.epoch,
        "turn": event.turn,
    }


def _call(event: OutcomeUnknown | ReplyRecovered | CallSentAgain) -> dict[str, Field]:
    return {"workflow": event.workflow_id, "call": event.call_id}


def _log_attempt(event: ClaimAttempted) -> None:
    fields: dict[str, Field] = {
        "workflow": event.workflow_id,
        "engine": event.engine_id,
        "epoch": event.epoch,
        "from": event.from_engine_id,
        "silent_for": None if event.silent_for is None else event.silent_for.total_seconds(),
    }
    match event.outcome:
        case ClaimOutcome.TAKEOVER:
            write(logger, logging.INFO, "weft.claim.taken-over", fields)
        case ClaimOutcome.ACQUIRED:
            write(logger, logging.DEBUG, "weft.claim.acquired", fields)
        case ClaimOutcome.LOST_RACE:
            write(logger, logging.DEBUG, "weft.claim.lost-race", fields)


def _log_discarded(event: WakeDiscarded) -> None:
    message = event.message
    fields: dict[str, Field] = {
        "workflow": message.workflow_id,
        "engine": message.engine_id,
        "epoch": message.epoch,
        "turn": message.turn,
    }
    if event.reason == Discard.SET_ASIDE:
        write(logger, logging.WARNING, "weft.workflow.set-aside", fields, note="retry it once it can work")
    else:
        write(logger, logging.INFO, "weft.wake.discarded", {**fields, "reason": event.reason})
