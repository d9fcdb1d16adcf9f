"""The update poll: hands pending updates of held workflows to their owners."""

from __future__ import annotations

from functools import partial
from typing import Final

from weft_tasks.passes.clock import Deadline
from weft_tasks.passes.sweep import PassContext, sweep
from weft_tasks.passes.targets import Reference, UpdatePollTarget, pending_listing_of, workflow_id_of
from weft_tasks.passes.work import NOT_REACHED, NotReached
from weft_tasks.results import Answer, ItemOutcome, PassKind, PassResult, UpdatePollStatus


def poll_updates(target: UpdatePollTarget[Reference], context: PassContext) -> PassResult[UpdatePollStatus]:
    """Drains each held workflow with updates: `drained`, `no-pending-updates`, or `drain-failed` with the reason.

    A target that lists workflows with pending updates has only those read and drained. A workflow that has nothing left
    to drain here meanwhile is `no-pending-updates`, with that reason. A work list that cannot be read makes the pass
    `discovery-failed`. Raises TooManyHungThreads.
    """
    list_pending = pending_listing_of(target)
    return sweep(
        PassKind.UPDATE_POLL,
        context,
        read_work_list=target.list_held_workflow_ids if list_pending is None else list_pending,
        attempt=partial(_drain_if_pending if list_pending is None else _drain, target),
        failed=UpdatePollStatus.DRAIN_FAILED,
    )


def _drain_if_pending(
    target: UpdatePollTarget[Reference], reference: Reference, deadline: Deadline
) -> ItemOutcome[UpdatePollStatus] | NotReached:
    if not target.has_pending_updates(reference):
        return ItemOutcome(workflow_id_of(reference), UpdatePollStatus.NO_PENDING_UPDATES)
    return NOT_REACHED if deadline.is_reached() else _drain(target, reference, deadline)


def _drain(
    target: UpdatePollTarget[Reference], reference: Reference, _deadline: Deadline
) -> ItemOutcome[UpdatePollStatus] | NotReached:
    return ItemOutcome(workflow_id_of(reference), *_OUTCOME_OF[Answer(target.drain_pending_updates(reference))])


_OUTCOME_OF: Final = {
    Answer.WON: (UpdatePollStatus.DRAINED, None),
    Answer.LOST: (UpdatePollStatus.NO_PENDING_UPDATES, "nothing left to drain here"),
    Answer.UNKNOWN: (UpdatePollStatus.DRAIN_FAILED, "unknown"),
}
