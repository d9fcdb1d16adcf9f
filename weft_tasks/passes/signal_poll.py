"""The signal poll: wakes parked workflows whose signal is there or whose deadline has passed. It consumes nothing."""

from __future__ import annotations

from functools import partial
from typing import Final

from weft_tasks.passes.clock import Deadline
from weft_tasks.passes.sweep import PassContext, sweep
from weft_tasks.passes.targets import SignalPollTarget, Wait, ready_listing_of
from weft_tasks.passes.work import NOT_REACHED, NotReached
from weft_tasks.results import Answer, ItemOutcome, PassKind, PassResult, SignalPollStatus


def poll_signals(target: SignalPollTarget[Wait], context: PassContext) -> PassResult[SignalPollStatus]:
    """Wakes each parked wait that is ready: `woken`, `not-buffered`, or `wake-failed` with `unknown` or the error.

    A target that lists ready waits has only those read and woken. A workflow that moved on meanwhile needs no waking:
    `not-buffered`, with that reason. A work list that cannot be read makes the pass `discovery-failed`. Raises
    TooManyHungThreads.
    """
    list_ready = ready_listing_of(target)
    return sweep(
        PassKind.SIGNAL_POLL,
        context,
        read_work_list=target.list_parked_signal_waits if list_ready is None else list_ready,
        attempt=partial(_wake_if_ready if list_ready is None else _wake, target),
        failed=SignalPollStatus.WAKE_FAILED,
    )


def _wake_if_ready(
    target: SignalPollTarget[Wait], wait: Wait, deadline: Deadline
) -> ItemOutcome[SignalPollStatus] | NotReached:
    if not (wait.deadline_passed or target.has_buffered_signal(wait)):
        return ItemOutcome(wait.workflow_id, SignalPollStatus.NOT_BUFFERED)
    return NOT_REACHED if deadline.is_reached() else _wake(target, wait, deadline)


def _wake(
    target: SignalPollTarget[Wait], wait: Wait, _deadline: Deadline
) -> ItemOutcome[SignalPollStatus] | NotReached:
    return ItemOutcome(wait.workflow_id, *_OUTCOME_OF[Answer(target.wake_workflow(wait))])


_OUTCOME_OF: Final = {
    Answer.WON: (SignalPollStatus.WOKEN, None),
    Answer.LOST: (SignalPollStatus.NOT_BUFFERED, "no longer parked on this wait"),
    Answer.UNKNOWN: (SignalPollStatus.WAKE_FAILED, "unknown"),
}
