"""The reclaim pass: moves the workflows of silent or deaf engines to live ones, and picks up what nobody holds (O4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from weft_tasks.passes.clock import Deadline
from weft_tasks.passes.sweep import PassContext, sweep
from weft_tasks.passes.targets import ReclaimTarget, Reference, slice_takeover_of, workflow_id_of
from weft_tasks.passes.work import NOT_REACHED, TRY_ALONE, NotReached, TryAlone
from weft_tasks.results import ItemOutcome, PassKind, PassResult, ReclaimStatus, TakeoverAttempt


def reclaim_claims(target: ReclaimTarget[Reference], context: PassContext) -> PassResult[ReclaimStatus]:
    """Tries a takeover for each candidate; what it came to is the target's answer, or `error` with the error.

    A target that takes slices moves what it can at once, and the rest is tried one by one. A try that lost its target
    engine is repeated, the context's `takeover_tries` in all, and then is a `lost-race`. A workflow that is listed
    twice is tried once: its second listing is `not-eligible`. A work list that cannot be read makes the pass
    `discovery-failed`. Raises TooManyHungThreads.
    """
    take_over_slice = slice_takeover_of(target)
    return sweep(
        PassKind.RECLAIM,
        context,
        read_work_list=lambda: _mark_repeats(target.list_reclaim_candidate_workflow_ids()),
        attempt=partial(_take_over, target, context.takeover_tries),
        failed=ReclaimStatus.ERROR,
        attempt_slice=None if take_over_slice is None else partial(_take_over_slice, take_over_slice),
    )


@dataclass(frozen=True, slots=True)
class _Repeat:
    workflow_id: str


def _mark_repeats(candidates: Iterable[Reference]) -> list[Reference | _Repeat]:
    seen: set[str] = set()
    marked: list[Reference | _Repeat] = []
    for candidate in candidates:
        workflow_id = workflow_id_of(candidate)
        marked.append(_Repeat(workflow_id) if workflow_id in seen else candidate)
        seen.add(workflow_id)
    return marked


def _take_over_slice(
    take_over_slice: Callable[[Sequence[Reference]], Sequence[TakeoverAttempt | None]],
    candidates: Sequence[Reference | _Repeat],
) -> Sequence[ItemOutcome[ReclaimStatus] | TryAlone]:
    """A workflow listed twice waits for its lone try, which says so."""
    attempts = iter(take_over_slice([candidate for candidate in candidates if not isinstance(candidate, _Repeat)]))
    return [
        TRY_ALONE if isinstance(candidate, _Repeat) else _outcome(candidate, next(attempts)) for candidate in candidates
    ]


def _outcome(candidate: Reference, attempt: TakeoverAttempt | None) -> ItemOutcome[ReclaimStatus] | TryAlone:
    if attempt is None or attempt.retry:
        return TRY_ALONE
    return ItemOutcome(workflow_id_of(candidate), attempt.status, attempt.reason)


def _take_over(
    target: ReclaimTarget[Reference], tries: int, candidate: Reference | _Repeat, deadline: Deadline
) -> ItemOutcome[ReclaimStatus] | NotReached:
    workflow_id = workflow_id_of(candidate)
    if isinstance(candidate, _Repeat):
        return ItemOutcome(workflow_id, ReclaimStatus.NOT_ELIGIBLE, "listed twice")
    last_reason = None
    for _ in range(tries):
        if deadline.is_reached():
            return NOT_REACHED
        attempt = target.attempt_workflow_claim_takeover(candidate)
        if not attempt.retry:
            return ItemOutcome(workflow_id, attempt.status, attempt.reason)
        last_reason = attempt.reason
    return ItemOutcome(workflow_id, ReclaimStatus.LOST_RACE, f"{tries} tries, the last: {last_reason}")
