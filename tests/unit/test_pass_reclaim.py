"""The reclaim pass: five tries per candidate, one sequence of tries per id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pass_fakes import ManualClock, ReclaimFake, context, statuses

from weft_tasks.errors import SettingsError
from weft_tasks.passes import reclaim_claims
from weft_tasks.passes.sweep import PassContext
from weft_tasks.results import PassStatus, ReclaimStatus, TakeoverAttempt

AGAIN = TakeoverAttempt(status=ReclaimStatus.LOST_RACE, reason="target engine is gone", retry=True)


@pytest.mark.parametrize("status", list(ReclaimStatus))
def test_what_the_target_answers_is_the_outcome(status: ReclaimStatus) -> None:
    target = ReclaimFake(lambda: ["wf-0"], lambda _: TakeoverAttempt(status=status, reason="so it is"))

    assert statuses(reclaim_claims(target, context())) == [("wf-0", status.value, "so it is")]


def test_a_try_that_lost_its_target_engine_is_repeated() -> None:
    answers = iter([AGAIN, AGAIN, TakeoverAttempt(status=ReclaimStatus.RECLAIMED)])

    result = reclaim_claims(ReclaimFake(lambda: ["wf-0"], lambda _: next(answers)), context())

    assert statuses(result) == [("wf-0", "reclaimed", None)]


@pytest.mark.parametrize("more", [{}, {"takeover_tries": 2}])
def test_after_five_tries_or_as_many_as_set_the_candidate_is_a_lost_race(more: dict[str, int]) -> None:
    tried: list[str] = []

    def take_over(reference: str) -> TakeoverAttempt:
        tried.append(reference)
        return AGAIN

    result = reclaim_claims(ReclaimFake(lambda: ["wf-0"], take_over), replace(context(), **more))

    assert tried == ["wf-0"] * more.get("takeover_tries", 5)
    assert statuses(result) == [("wf-0", "lost-race", f"{len(tried)} tries, the last: target engine is gone")]


def test_no_further_try_begins_after_the_deadline() -> None:
    clock, tried = ManualClock(), []

    def take_over(reference: str) -> TakeoverAttempt:
        tried.append(reference)
        clock.advance()
        return AGAIN

    result = reclaim_claims(ReclaimFake(lambda: ["wf-0"], take_over), context(clock))

    assert tried == ["wf-0"]
    assert (result.status, result.unreached) == (PassStatus.DEADLINE_REACHED, 1)


def test_a_workflow_listed_twice_is_tried_once() -> None:
    tried: list[str] = []

    def take_over(reference: str) -> TakeoverAttempt:
        tried.append(reference)
        return TakeoverAttempt(status=ReclaimStatus.RECLAIMED)

    result = reclaim_claims(ReclaimFake(lambda: ["wf-0", "wf-1", "wf-0"], take_over), context())

    assert sorted(tried) == ["wf-0", "wf-1"]
    assert statuses(result) == [
        ("wf-0", "reclaimed", None),
        ("wf-1", "reclaimed", None),
        ("wf-0", "not-eligible", "listed twice"),
    ]


def test_a_pass_without_a_try_does_not_run() -> None:
    with pytest.raises(SettingsError, match="takeover_tries=0"):
        PassContext(clock=ManualClock(), takeover_tries=0)


class SlicedReclaimFake(ReclaimFake):
    def attempt_workflow_claim_takeovers(self, references: Sequence[str]) -> Sequence[TakeoverAttempt | None]:
        return [
            None if "odd" in reference else TakeoverAttempt(status=ReclaimStatus.RECLAIMED) for reference in references
        ]


def test_a_target_that_takes_slices_is_asked_for_the_rest_one_by_one() -> None:
    alone: list[str] = []

    def take_over(reference: str) -> TakeoverAttempt:
        alone.append(reference)
        return TakeoverAttempt(status=ReclaimStatus.LOST_RACE, reason="late")

    result = reclaim_claims(SlicedReclaimFake(lambda: ["wf-0", "odd", "wf-0", "wf-1"], take_over), context())

    assert statuses(result) == [
        ("wf-0", "reclaimed", None),
        ("odd", "lost-race", "late"),
        ("wf-0", "not-eligible", "listed twice"),
        ("wf-1", "reclaimed", None),
    ]
    assert alone == ["odd"]


def test_a_slice_that_fails_is_taken_one_by_one() -> None:
    class Failing(ReclaimFake):
        def attempt_workflow_claim_takeovers(self, references: Sequence[str]) -> Sequence[TakeoverAttempt | None]:
            raise RuntimeError("the store did not answer")

    target = Failing(lambda: ["wf-0", "wf-1"], lambda _: TakeoverAttempt(status=ReclaimStatus.RECLAIMED))

    result = reclaim_claims(target, context())

    assert [status for _, status, _ in statuses(result)] == ["reclaimed", "reclaimed"]
    assert (result.split_slices, result.split_reason) == (1, "RuntimeError: the store did not answer")
