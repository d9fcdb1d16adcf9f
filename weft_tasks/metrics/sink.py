"""From events to counts."""

from __future__ import annotations

from typing import Any

from weft_tasks.events import (
    ClaimAttempted,
    ClaimLost,
    CommitUnknown,
    Event,
    PassCompleted,
    PublishFailed,
    TurnEnded,
    WakeDiscarded,
)
from weft_tasks.metrics import catalogue
from weft_tasks.metrics.tally import Tally
from weft_tasks.results import PassFailed, PassKind, PassResult, PassStatus, ReclaimStatus


class CountingSink:
    """A sink of events that counts them in a tally. Cheap: it is called within turns and passes."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __call__(self, event: Event) -> None:
        tally = self._tally
        match event:
            case ClaimAttempted():
                tally.count(catalogue.CLAIM_ATTEMPTS, {"outcome": event.outcome.value})
                if event.silent_for is not None:
                    tally.observe(catalogue.RECOVERY, event.silent_for.total_seconds())
            case ClaimLost():
                tally.count(catalogue.CLAIM_ATTEMPTS, {"outcome": "deposed"})
            case TurnEnded():
                tally.count(catalogue.TURNS, {"type": event.type, "outcome": event.status})
                tally.observe(catalogue.TURN_SECONDS, event.took.total_seconds(), {"type": event.type})
                if event.woken_after is not None:
                    tally.observe(catalogue.WAKE_SECONDS, event.woken_after.total_seconds(), {"type": event.type})
            case WakeDiscarded():
                tally.count(catalogue.WAKES_DISCARDED, {"reason": event.reason})
            case CommitUnknown():
                tally.count(catalogue.COMMITS_UNKNOWN)
            case PublishFailed():
                tally.count(catalogue.PUBLISH_FAILURES)
            case PassCompleted(result=PassFailed() as failed):
                tally.count(catalogue.PASS_FAILURES, {"pass": failed.name})
            case PassCompleted(result=PassResult() as result):
                self._count_pass(result)

    def _count_pass(self, result: PassResult[Any]) -> None:
        if result.status is not PassStatus.COMPLETED:
            self._tally.count(catalogue.PASS_FAILURES, {"pass": result.name})
        if result.kind is PassKind.RENEWAL:
            failed = sum(outcome.is_failed_renewal for outcome in result.outcomes)
            if failed:
                self._tally.count(catalogue.RENEWAL_FAILURES, amount=failed)
        if result.kind is PassKind.RECLAIM:
            put_off = result.count(ReclaimStatus.BACKOFF_SKIPPED)
            if put_off:
                self._tally.count(catalogue.CLAIM_ATTEMPTS, {"outcome": "backoff_skipped"}, put_off)
