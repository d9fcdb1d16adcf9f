"""Children and chains of tasks when the owner dies: started once, closed by their policy, replied once (O1, O9)."""

from __future__ import annotations

import pytest
from worst import CANCEL_BOUND, LONG, WorstDeployment

from weft_tasks.model import WorkflowStatus


def test_at_its_parents_end_a_child_is_abandoned_or_cancelled_whenever_the_owner_dies(cluster: WorstDeployment) -> None:
    weft = cluster.weft
    moments = ("before-commit-of-turn-0", "before-commit-of-end", "after-commit-of-end")
    ids = {moment: f"parent-{moment}" for moment in moments}
    fired = [cluster.arm(moment, id) for moment, id in ids.items()]
    parents = [weft.start("parent", id) for id in ids.values()]
    for parent in parents:
        cluster.wait_until_parked(f"{parent.id}-abandoned", f"{parent.id}-closed", timeout=LONG)
        parent.signal("end", key="end")
    cluster.wait_for_the_kills(*fired)
    for parent in parents:
        assert parent.result(timeout=LONG) == "ended"
        children = "SELECT id FROM weft_workflows WHERE parent_id = :id ORDER BY id"
        assert cluster.query(children, id=parent.id) == [(f"{parent.id}-abandoned",), (f"{parent.id}-closed",)]
    for parent in parents:
        closed = cluster.wait_for(f"{parent.id}-closed", WorkflowStatus.CANCELLED, timeout=CANCEL_BOUND + LONG)
        assert closed.state in ({"cleaned": 1}, {})
        abandoned = weft.handle(f"{parent.id}-abandoned")
        info = abandoned.describe()
        assert (info.status, info.is_cancelling) == (WorkflowStatus.RUNNING, False)
        abandoned.signal("event", "on its own")
        abandoned.signal("event", "closed")
        assert abandoned.result(timeout=LONG) == ["on its own", "closed"]
        turns = [turn for turn, _epoch in cluster.committed_turns(abandoned.id)]
        assert turns == list(range(len(turns)))
        # Its reply has nobody to go to, and is owed no more.
        cluster.wait_until_none("SELECT 1 FROM weft_outbox WHERE workflow_id = :id", id=parent.id)
        assert [turn for turn, _epoch in cluster.committed_turns(parent.id)] == [0, 1]


@pytest.mark.parametrize("moment", ["before-call-sent", "after-call-sent", "while-first-runs", "while-second-runs"])
def test_a_chain_goes_on_where_its_worker_died_and_replies_once(cluster: WorstDeployment, moment: str) -> None:
    id = f"chain-{moment}"
    fired = cluster.arm(moment, id)
    handle = cluster.weft.start("calls_a_chain", id, str(cluster.folder))
    cluster.wait_for_the_kill(fired)
    replies = handle.result(timeout=LONG)
    key = f"{handle.run_id}:0:0"
    assert replies == [[f"both of {key}", False]]
    effects = cluster.effects(id)
    assert set(effects) == {f"first-{key}", f"second-{key}"}
    repeated = {"while-first-runs": "first", "while-second-runs": "second"}.get(moment)
    if repeated:
        assert effects.count(f"{repeated}-{key}") == 2
    signals = cluster.query("SELECT name, consumed_turn FROM weft_signals WHERE workflow_id = :id", id=id)
    assert signals == [("done", 1)]
    assert [turn for turn, _epoch in cluster.committed_turns(id)] == [0, 1]
