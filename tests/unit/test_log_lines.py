"""The line of a pass: none for routine, and a warning only for what an operator may have to do something about."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from weft_tasks.events import PassCompleted
from weft_tasks.log_lines import log_event
from weft_tasks.results import ItemOutcome, PassKind, PassResult, PassStatus, RenewalStatus

AT = datetime(2026, 1, 1, tzinfo=UTC)
RENEWED = ItemOutcome("w1", RenewalStatus.RENEWED)


def lines(caplog: pytest.LogCaptureFixture, *outcomes: ItemOutcome[RenewalStatus], unreached: int = 0) -> list[str]:
    """What a renewal pass with these outcomes logs, by its levels."""
    result = PassResult(
        kind=PassKind.RENEWAL,
        status=PassStatus.COMPLETED,
        started_at=AT,
        finished_at=AT,
        outcomes=outcomes,
        unreached=unreached,
    )
    with caplog.at_level(logging.DEBUG, logger="weft_tasks"):
        log_event(PassCompleted(result=result))
    return [record.levelname for record in caplog.records]


def test_claims_that_were_renewed_are_routine(caplog: pytest.LogCaptureFixture) -> None:
    assert lines(caplog, RENEWED) == []


def test_a_claim_that_ended_before_its_renewal_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Its workflow completed, or moved, since the work list was read: in a busy store that happens at every tick."""
    assert lines(caplog, RENEWED, ItemOutcome("w2", RenewalStatus.FAILED, "lost")) == ["INFO"]


@pytest.mark.parametrize("reason", ["unknown", "StoreUnavailable: gone", None])
def test_a_claim_whose_renewal_is_not_known_is_a_warning(reason: str | None, caplog: pytest.LogCaptureFixture) -> None:
    assert lines(caplog, RENEWED, ItemOutcome("w2", RenewalStatus.FAILED, reason)) == ["WARNING"]


def test_a_pass_that_did_not_reach_everything_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert lines(caplog, RENEWED, unreached=5) == ["WARNING"]
    assert "unreached=5" in caplog.text
