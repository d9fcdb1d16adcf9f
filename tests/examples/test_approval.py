"""The approval's handlers, without a server."""

from __future__ import annotations

import pytest

from examples.approval.app import REMIND_AFTER, weft
from weft_tasks import UpdateRejected
from weft_tasks.testing import WorkflowBed
from weft_tasks.testing.plugin import NewBed

INPUT = {"subject": "laptop", "requester": "dan", "approvers": ["ann", "ben", "cem"], "expires_after_s": 7}


@pytest.fixture
def bed(workflow_bed: NewBed) -> WorkflowBed:
    bed = workflow_bed(weft)
    bed.start("approval", "a1", INPUT)
    return bed


def mails_to(bed: WorkflowBed, person: str) -> list[str]:
    return [call.args[1] for call in bed.calls if call.args[0] == person]


def test_two_approvals_are_enough(bed: WorkflowBed) -> None:
    bed.run_due()
    assert bed.update("a1", "approve", {"by": "ann"}) == {"missing": 1}
    assert bed.update("a1", "approve", {"by": "cem"}) == {"missing": 0}
    assert bed.result("a1") == {"decision": "approved", "by": ["ann", "cem"]}
    assert mails_to(bed, "dan") == ["laptop is approved"]


def test_an_approval_may_come_before_the_first_turn(bed: WorkflowBed) -> None:
    assert bed.update("a1", "approve", {"by": "ann"}) == {"missing": 1}
    assert mails_to(bed, "ann") == []
    assert mails_to(bed, "ben") == ["please decide on laptop"]


@pytest.mark.parametrize("update", ["approve", "reject"])
def test_only_an_approver_decides_and_only_once(bed: WorkflowBed, update: str) -> None:
    with pytest.raises(UpdateRejected, match="dan is no approver"):
        bed.update("a1", update, {"by": "dan", "reason": "mine"})
    bed.update("a1", "approve", {"by": "ann"})
    with pytest.raises(UpdateRejected, match="ann has approved already"):
        bed.update("a1", update, {"by": "ann", "reason": "again"})
    assert bed.state("a1") == {"approved_by": ["ann"]}


def test_one_rejection_is_enough(bed: WorkflowBed) -> None:
    assert bed.update("a1", "reject", {"by": "ben", "reason": "too dear"}) == "rejected"
    assert bed.result("a1") == {"decision": "rejected", "by": ["ben"], "reason": "too dear"}
    assert mails_to(bed, "dan") == ["laptop is rejected: too dear"]


def test_who_has_not_decided_is_reminded_at_the_same_times_whoever_approves_in_between(bed: WorkflowBed) -> None:
    bed.run_due()
    bed.advance(REMIND_AFTER / 2)
    bed.update("a1", "approve", {"by": "ann"})
    bed.advance(REMIND_AFTER / 2 + weft.settings.renew_interval * 1.1)
    assert mails_to(bed, "ben") == ["please decide on laptop", "a reminder of laptop"]
    assert mails_to(bed, "ann") == ["please decide on laptop"]


def test_what_nobody_decides_expires(bed: WorkflowBed) -> None:
    bed.run_due()
    bed.advance(seconds=10)
    assert bed.result("a1") == {"decision": "expired", "by": []}
    assert mails_to(bed, "ben").count("a reminder of laptop") in (2, 3)
