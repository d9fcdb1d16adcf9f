"""The owner of a workflow kills itself at the worst moment, with its whole worker; the outcome is exactly one (O1, O9).

One workflow does a bit of everything, and dies once at each moment. The other tests have a moment of their own.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from deployment import INTERVAL, SLACK
from worst import CANCEL_BOUND, LONG, WorstDeployment

from weft_tasks.model import WorkflowStatus

PAIRS = (
    ("before-commit-of-turn-0", "after-commit-of-call"),
    ("before-commit-of-call", "before-child-reply"),
    ("before-call-sent", "after-commit-of-end"),
    ("after-call-sent", "while-update-handler-runs"),
    ("while-activity-runs", "after-commit-of-update"),
    ("before-reply-delivered", "before-commit-of-update"),
    ("after-signal-charged", "while-child-runs"),
    ("before-commit-of-end", "after-signal-grown"),
)
"""Two orders at a time, each with its moment: it takes as long as one."""
OF_THE_CHILD = ("while-child-runs",)
"""Moments that the child reaches, not the order."""


@pytest.mark.parametrize("moments", PAIRS, ids=" and ".join)
def test_everything_in_a_workflow_happens_exactly_once(cluster: WorstDeployment, moments: tuple[str, str]) -> None:
    orders = [Order(cluster, moment) for moment in moments]
    for order in orders:
        cluster.wait_for_the_kill(order.fired)
    for order in orders:
        order.assert_exactly_one_outcome()


class Order:
    """An order that was started and sent a signal and an update, each of them twice."""

    def __init__(self, cluster: WorstDeployment, moment: str) -> None:
        self.cluster, self.id = cluster, f"order-{moment}"
        self.fired = cluster.arm(moment, f"{self.id}-child" if moment in OF_THE_CHILD else self.id)
        weft = cluster.weft
        self.run_id = weft.start("order", self.id, str(cluster.folder)).run_id
        assert weft.start("order", self.id, on_conflict="use-existing").run_id == self.run_id
        signals = [weft.signal(self.id, "go", key="once") for _ in range(2)]
        assert {receipt.number for receipt in signals} == {signals[0].number}
        self.updates = [weft.update(self.id, "approve", "ann", key="once") for _ in range(2)]

    def assert_exactly_one_outcome(self) -> None:
        for update in self.updates:
            assert update.result(timeout=LONG.total_seconds()) == ["ann", 1]
        ended = self.cluster.wait_for(self.id, timeout=LONG)
        assert ended.run_id == self.run_id
        keys = self.cluster.effects(self.id)
        assert len(set(keys)) == 1
        assert ended.result == {"gone": 1, "approved": 1, "alarms": 1, "charged": keys[:1], "grown": ["grown up"]}
        assert self.updates[0].result(timeout=0) == ["ann", 1]
        assert_that_the_records_agree(self.cluster, self.id)


def assert_that_the_records_agree(cluster: WorstDeployment, id: str) -> None:
    """Each signal was stored and consumed once, each turn committed once, the children ended once, nothing is owed."""
    signals = cluster.query("SELECT name, consumed_turn FROM weft_signals WHERE workflow_id = :id", id=id)
    assert Counter(name for name, _turn in signals) == {"go": 1, "charged": 1, "grown": 1}
    assert None not in [turn for _name, turn in signals]
    turns = [turn for turn, _epoch in cluster.committed_turns(id)]
    assert turns == list(range(len(turns)))
    assert [turn for turn, _epoch in cluster.committed_turns(f"{id}-child")] == [0]
    assert cluster.weft.describe(f"{id}-child").status is WorkflowStatus.COMPLETED
    cluster.wait_for(f"{id}-guest", WorkflowStatus.CANCELLED, timeout=CANCEL_BOUND + LONG)
    owed = "SELECT 1 FROM weft_outbox WHERE workflow_id = :id"
    cluster.wait_until_none(owed, id=id)


@pytest.mark.parametrize("moment", ["before-commit-of-turn-0", "before-commit-of-turn-1"])
def test_a_delayed_start_and_a_sleep_come_once_and_in_time(cluster: WorstDeployment, moment: str) -> None:
    id = f"delayed-{moment}"
    fired = cluster.arm(moment, id)
    cluster.weft.start("sleeper", id, 1, delay=1)
    cluster.wait_for_the_kill(fired)
    ended = cluster.wait_for(id, timeout=LONG)
    assert ended.result == 1
    assert [turn for turn, _epoch in cluster.committed_turns(id)] == [0, 1]
    rows = cluster.query("SELECT created_at, ended_at FROM weft_workflows WHERE id = :id", id=id)
    assert rows[0][1] - rows[0][0] >= 2000


def test_the_last_turn_of_a_cancelled_workflow_is_taken_over_within_the_bound(cluster: WorstDeployment) -> None:
    id = "cancelled"
    fired = cluster.arm("while-cancel-handler-runs", id)
    cluster.weft.start("careful", id)
    cluster.wait_until_parked(id)
    cluster.weft.cancel(id)
    cancelled_at = time.monotonic()
    cluster.wait_for_the_kill(fired)
    ended = cluster.wait_for(id, WorkflowStatus.CANCELLED, timeout=LONG)
    assert time.monotonic() - cancelled_at < (CANCEL_BOUND + 2 * INTERVAL + SLACK).total_seconds()
    assert ended.state in ({"cleaned": 1}, {})
    assert len(cluster.committed_turns(id)) == (2 if ended.state else 1)


def test_a_failed_try_is_repeated_once(cluster: WorstDeployment) -> None:
    fired = cluster.arm("after-try-put-off", "tried")
    cluster.weft.start("fails_once", "tried")
    cluster.wait_for_the_kill(fired)
    assert cluster.wait_for("tried", timeout=LONG).result == 1
    assert [turn for turn, _epoch in cluster.committed_turns("tried")] == [0]


def test_a_failed_workflow_that_is_retried_runs_to_one_end(cluster: WorstDeployment) -> None:
    allowed = Path(cluster.folder / "allowed")
    cluster.weft.start("fails_until_retried", "retried", str(allowed))
    failed = cluster.wait_for("retried", WorkflowStatus.FAILED, timeout=LONG)
    assert failed.error is not None
    allowed.touch()
    fired = cluster.arm("before-commit-of-end", "retried")
    cluster.weft.retry("retried")
    cluster.wait_for_the_kill(fired)
    ended = cluster.wait_for("retried", timeout=LONG)
    assert (ended.result, ended.run_id) == ("retried", failed.run_id)
