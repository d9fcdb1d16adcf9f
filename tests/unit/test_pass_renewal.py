"""The renewal pass: three answers, and slices that keep one outcome per claim."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from pass_fakes import LONG, ManualClock, RenewalFake, SliceRenewalFake, context, statuses

from weft_tasks.passes import renew_claims
from weft_tasks.results import Answer, PassStatus

ANSWERS = {"wf-0": Answer.WON, "wf-1": Answer.LOST, "wf-2": Answer.UNKNOWN}
OUTCOMES = [("wf-0", "renewed", None), ("wf-1", "failed", "lost"), ("wf-2", "failed", "unknown")]


def listing() -> Sequence[str]:
    return tuple(ANSWERS)


def many() -> Sequence[str]:
    return [f"wf-{number}" for number in range(6_000)]


def test_lost_and_unknown_are_failures_that_stay_apart() -> None:
    assert statuses(renew_claims(RenewalFake(listing, ANSWERS.__getitem__), context())) == OUTCOMES


def test_a_slice_keeps_one_outcome_per_claim() -> None:
    target = SliceRenewalFake(listing, pytest.fail, lambda references: [ANSWERS[each] for each in references])

    assert statuses(renew_claims(target, context())) == OUTCOMES


def test_claims_are_renewed_2500_in_one_statement() -> None:
    sizes: list[int] = []

    def renew_slice(references: Sequence[str]) -> list[Answer]:
        sizes.append(len(references))
        return [Answer.WON] * len(references)

    result = renew_claims(SliceRenewalFake(many, pytest.fail, renew_slice), context())

    assert sorted(sizes) == [1_000, 2_500, 2_500]
    assert [outcome.workflow_id for outcome in result.outcomes] == many()


def test_a_slice_that_fails_is_retried_claim_by_claim_and_reported() -> None:
    def renew(reference: str) -> Answer:
        if reference == "wf-1200":
            raise OSError("row is locked")
        return Answer.WON

    def renew_slice(references: Sequence[str]) -> list[Answer]:
        return [renew(reference) for reference in references]

    result = renew_claims(SliceRenewalFake(many, renew, renew_slice), context())

    assert result.counts == {"renewed": 5_999, "failed": 1}
    assert statuses(result)[1_200] == ("wf-1200", "failed", "OSError: row is locked")
    assert (result.split_slices, result.split_reason) == (1, "OSError: row is locked")
    assert result.status is PassStatus.COMPLETED


@pytest.mark.parametrize("too_many", [-1, 1])
def test_a_slice_with_a_wrong_number_of_answers_is_retried_claim_by_claim(too_many: int) -> None:
    target = SliceRenewalFake(
        listing, ANSWERS.__getitem__, lambda references: [Answer.WON] * (len(references) + too_many)
    )

    result = renew_claims(target, context())

    assert statuses(result) == OUTCOMES
    assert result.split_reason == f"ValueError: {3 + too_many} answers for a slice of 3 claims"


def test_the_retries_of_a_slice_end_with_the_deadline() -> None:
    clock = ManualClock()

    def renew(_: str) -> Answer:
        clock.advance()
        return Answer.WON

    target = SliceRenewalFake(
        many, renew, lambda references: [] if "wf-0" in references else [Answer.WON] * len(references)
    )

    result = renew_claims(target, context(clock, width=1, deadline=LONG))

    assert result.counts == {"renewed": 3_501}
    assert (result.status, result.unreached) == (PassStatus.DEADLINE_REACHED, 2_499)


@pytest.mark.parametrize("answer", [True, None, "yes"])
def test_an_answer_that_is_none_of_the_three_is_a_failure(answer: object) -> None:
    result = renew_claims(RenewalFake(lambda: ["wf-0"], lambda _: answer), context())  # type: ignore[arg-type, return-value]

    assert statuses(result) == [("wf-0", "failed", f"ValueError: {answer!r} is not a valid Answer")]


def test_a_hundred_thousand_claims_cost_less_than_a_hundred_bytes_each() -> None:
    claims = tuple(f"wf-{number}" for number in range(100_000))
    ctx = context()

    tracemalloc.start()
    try:
        result = renew_claims(SliceRenewalFake(lambda: claims), ctx)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert result.counts == {"renewed": 100_000}
    assert peak < 100 * 100_000
