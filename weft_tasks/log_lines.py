"""The one file that turns events into log lines: a stable key first, then what an operator greps for."""

from __future__ import annotations

import logging
from typing import Any

from weft_tasks.events import (
    CallSentAgain,
    ClaimLost,
    CommitUnknown,
    Event,
    OutcomeUnknown,
    PassCompleted,
    PublishFailed,
    ReplyRecovered,
    TurnFailed,
    WakeDiscarded,
)
from weft_tasks.results import PassFailed, PassResult, PassStatus

logger = logging.getLogger("weft_tasks")

ROUTINE = frozenset({"renewed", "not-buffered", "no-pending-updates", "not-eligible"})
"""A pass that found nothing else writes no line."""


def log_event(event: Event) -> None:
    """One line per event; nothing for a pass that found nothing to do."""
    match event:
        case PassCompleted(result=PassFailed() as failed):
            logger.error("weft.pass.failed pass=%s error=%r", failed.kind, failed.error)
        case PassCompleted(result=PassResult() as result):
            _log_pass(result)
        case ClaimLost():
            logger.warning(
                "weft.claim.lost workflow=%r engine=%s epoch=%d turn=%d attempt=%d: the commit was refused",
                event.workflow_id,
                event.engine_id,
                event.epoch,
                event.turn,
                event.attempt,
            )
        case WakeDiscarded(message=message):
            logger.info(
                "weft.wake.discarded workflow=%r engine=%s epoch=%d turn=%d reason=%s",
                message.workflow_id,
                message.engine_id,
                message.epoch,
                message.turn,
                event.reason,
            )
        case TurnFailed():
            logger.warning(
                "weft.turn.failed workflow=%r engine=%s epoch=%d turn=%d error=%r %s",
                event.workflow_id,
                event.engine_id,
                event.epoch,
                event.turn,
                event.error,
                "the workflow has failed" if event.retry_in is None else f"next try in {event.retry_in:g} s",
            )
        case CommitUnknown():
            logger.warning(
                "weft.commit.unknown workflow=%r engine=%s epoch=%d turn=%d error=%r",
                event.workflow_id,
                event.engine_id,
                event.epoch,
                event.turn,
                event.error,
            )
        case PublishFailed():
            logger.warning(
                "weft.publish.failed message=%r error=%r: the row sends it again", event.message, event.error
            )
        case OutcomeUnknown():
            logger.warning(
                "weft.call.unknown workflow=%r call=%s error=%r: a later pass asks again",
                event.workflow_id,
                event.call_id,
                event.error,
            )
        case ReplyRecovered():
            logger.warning(
                "weft.call.recovered workflow=%r call=%s: its reply had not come, but its outcome was known",
                event.workflow_id,
                event.call_id,
            )
        case CallSentAgain():
            logger.warning(
                "weft.call.resent workflow=%r call=%s: nothing was heard of it since it was sent",
                event.workflow_id,
                event.call_id,
            )


def _log_pass(result: PassResult[Any]) -> None:
    needs_a_look = _needs_a_look(result)
    if set(result.counts) <= ROUTINE and not needs_a_look:
        return
    facts = " ".join(f"{name}={count}" for name, count in sorted(result.counts.items()))
    logger.log(
        logging.WARNING if needs_a_look else logging.INFO,
        "weft.pass.completed pass=%s status=%s seconds=%.3f %s%s%s%s",
        result.kind,
        result.status,
        result.duration.total_seconds(),
        facts,
        f" unreached={result.unreached}" if result.unreached else "",
        f" split_slices={result.split_slices} because={result.split_reason!r}" if result.split_slices else "",
        f" error={result.error!r}" if result.error else "",
    )


def _needs_a_look(result: PassResult[Any]) -> bool:
    """A claim that is lost at its renewal does not: its workflow ended or moved since the work list was read."""
    return (
        result.status is not PassStatus.COMPLETED
        or result.split_slices > 0
        or result.unreached > 0
        or any(outcome.status.value == "failed" and outcome.reason != "lost" for outcome in result.outcomes)
    )
