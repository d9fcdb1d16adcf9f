"""The order's handler, without a server."""

from __future__ import annotations

import pytest

from examples.order.app import PAYMENT_TIMEOUT, weft
from weft_tasks.model import WorkflowStatus
from weft_tasks.testing import WorkflowBed
from weft_tasks.testing.plugin import NewBed

INPUT = {"sku": "A-7", "amount": 20, "card": "good"}


@pytest.fixture
def bed(workflow_bed: NewBed) -> WorkflowBed:
    """With one order, whose charge is under way."""
    bed = workflow_bed(weft)
    bed.start("order", "o1", INPUT)
    bed.run_due()
    return bed


def tasks(bed: WorkflowBed) -> list[str]:
    return [call.task.rpartition(".")[2] for call in bed.calls]


def test_an_order_is_shipped_once_it_is_paid_and_packed(bed: WorkflowBed) -> None:
    bed.reply(bed.calls[-1], "receipt-1")
    bed.run_due()
    bed.signal("o1", "packed", "parcel-77")
    bed.run_due()
    bed.reply(bed.calls[-1], "tracking-77")
    bed.run_due()
    assert bed.result("o1") == {"status": "shipped", "receipt": "receipt-1", "tracking": "tracking-77"}
    assert tasks(bed) == ["charge", "ship"]


def test_an_order_that_was_packed_before_it_is_paid_is_shipped_after_it_is_paid(bed: WorkflowBed) -> None:
    bed.signal("o1", "packed", "parcel-77")
    bed.run_due()
    assert tasks(bed) == ["charge"]
    bed.reply(bed.calls[-1], "receipt-1")
    bed.run_due()
    assert tasks(bed) == ["charge", "ship"]


def test_an_order_that_is_not_paid_in_time_is_cancelled_and_its_charge_comes_to_nothing(bed: WorkflowBed) -> None:
    charge = bed.calls[-1]
    bed.advance(PAYMENT_TIMEOUT * 2)
    assert bed.result("o1") == {"status": "cancelled", "reason": "not paid in time"}
    assert tasks(bed) == ["charge", "refund"]
    assert bed.calls[-1].args == charge.args[:1]
    bed.reply(charge, "receipt, too late")
    bed.run_due()
    assert bed.result("o1") == {"status": "cancelled", "reason": "not paid in time"}


def test_an_order_whose_card_is_declined_ends_so(bed: WorkflowBed) -> None:
    bed.fail(bed.calls[-1], "card declined")
    bed.run_due()
    assert bed.result("o1") == {"status": "refused", "reason": "card declined"}


def test_a_paid_order_that_is_cancelled_is_refunded(bed: WorkflowBed) -> None:
    bed.reply(bed.calls[-1], "receipt-1")
    bed.run_due()
    bed.weft.cancel("o1")
    bed.advance(seconds=5)
    assert bed.status("o1") is WorkflowStatus.CANCELLED
    assert tasks(bed) == ["charge", "refund"]
    assert bed.calls[0].args[0] == bed.calls[1].args[0]


def test_the_key_of_a_charge_is_the_same_when_its_turn_is_tried_again(workflow_bed: NewBed) -> None:
    bed = workflow_bed(weft)
    bed.start("order", "o1", INPUT)
    bed.crash_next_turn(after="commit")
    bed.run_due()
    bed.start("order", "o2", INPUT)
    bed.crash_next_turn("o2")
    bed.advance(seconds=20)
    assert {call.args[0] for call in bed.calls if call.task.endswith("charge")} == {
        f"{bed.describe(order).run_id}:0:0" for order in ("o1", "o2")
    }
