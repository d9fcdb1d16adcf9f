"""The renewal pass: renews every claim that is held, so that it lives as long as its engine's proof of life (O3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from weft_tasks.passes.clock import Deadline
from weft_tasks.passes.sweep import PassContext, sweep
from weft_tasks.passes.targets import ClaimRenewalTarget, Reference, slice_renewal_of, workflow_id_of
from weft_tasks.results import Answer, ItemOutcome, PassKind, PassResult, RenewalStatus

SLICE: Final = 2_500
"""Claims that are renewed at once. Each slice has a fixed cost, in statements and round trips; a larger one would hold
its rows, and on SQLite the write lock, for longer."""


def renew_claims(target: ClaimRenewalTarget[Reference], context: PassContext) -> PassResult[RenewalStatus]:
    """Renews each held claim: `renewed`, or `failed` with the reason `lost`, `unknown` (O8) or the error.

    A target that renews slices gets `SLICE` claims at a time, the slices side by side; a slice that fails is retried
    claim by claim. Raises what the reading of the work list raises, and TooManyHungThreads.
    """
    renew_slice = slice_renewal_of(target)
    return sweep(
        PassKind.RENEWAL,
        context,
        read_work_list=target.list_held_workflow_ids,
        attempt=partial(_renew, target),
        failed=RenewalStatus.FAILED,
        attempt_slice=None if renew_slice is None else partial(_renew_slice, renew_slice),
        slice_size=SLICE,
        raise_if_unreadable=True,
    )


def _renew(
    target: ClaimRenewalTarget[Reference], reference: Reference, _deadline: Deadline
) -> ItemOutcome[RenewalStatus]:
    return _outcome(reference, target.renew_workflow_claim(reference))


def _renew_slice(
    renew_slice: Callable[[Sequence[Reference]], Sequence[Answer]], references: Sequence[Reference]
) -> Sequence[ItemOutcome[RenewalStatus]]:
    answers = renew_slice(references)
    if len(answers) != len(references):
        raise ValueError(f"{len(answers)} answers for a slice of {len(references)} claims")
    return [_outcome(reference, answer) for reference, answer in zip(references, answers, strict=True)]


def _outcome(reference: Reference, answer: Answer) -> ItemOutcome[RenewalStatus]:
    outcome = _OUTCOME_OF.get(answer)
    if outcome is None:
        raise ValueError(f"{answer!r} is not a valid Answer")
    return ItemOutcome(workflow_id_of(reference), *outcome)


_OUTCOME_OF: Final = {
    Answer.WON: (RenewalStatus.RENEWED, None),
    Answer.LOST: (RenewalStatus.FAILED, Answer.LOST.value),
    Answer.UNKNOWN: (RenewalStatus.FAILED, Answer.UNKNOWN.value),
}
