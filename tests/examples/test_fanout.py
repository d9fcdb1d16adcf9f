"""The stocktaking and its children, without a server."""

from __future__ import annotations

import pytest

from examples.fanout.app import LONGEST, weft
from weft_tasks.model import WorkflowStatus
from weft_tasks.testing import WorkflowBed
from weft_tasks.testing.plugin import NewBed

SHOPS = ("north", "east", "south")


@pytest.fixture
def bed(workflow_bed: NewBed) -> WorkflowBed:
    """With a stocktaking of three shops, each of which reads its stock."""
    bed = workflow_bed(weft)
    bed.start("stocktaking", "s1", {"shops": list(SHOPS)})
    bed.run_due()
    return bed


def test_the_summary_has_what_every_shop_counted(bed: WorkflowBed) -> None:
    for call, items in zip(bed.calls, (1, 20, 300), strict=True):
        bed.reply(call, items)
    bed.run_due()
    counted = {str(call.args[0]): items for call, items in zip(bed.calls, (1, 20, 300), strict=True)}
    assert bed.result("s1") == {"total": 321, "counted": counted, "failed": {}}


def test_a_shop_that_fails_and_one_that_takes_too_long_are_named(bed: WorkflowBed) -> None:
    calls = {call.args[0]: call for call in bed.calls}
    bed.reply(calls["north"], 5)
    bed.fail(calls["east"], "no connection")
    bed.advance(LONGEST * 1.5)
    failed = {"east": "failed", "south": "timed-out"}
    assert bed.result("s1") == {"total": 5, "counted": {"north": 5}, "failed": failed}


def test_the_counts_end_with_a_stocktaking_that_is_cancelled(bed: WorkflowBed) -> None:
    bed.weft.cancel("s1")
    bed.advance(seconds=10)
    assert {bed.status(f"s1/{shop}") for shop in SHOPS} == {WorkflowStatus.CANCELLED}


def test_nothing_to_count_is_a_summary_of_nothing(workflow_bed: NewBed) -> None:
    bed = workflow_bed(weft)
    bed.start("stocktaking", "s1", {"shops": []})
    bed.run_due()
    assert bed.result("s1") == {"total": 0, "counted": {}, "failed": {}}
