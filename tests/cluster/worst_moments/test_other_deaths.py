"""Deaths from outside: engines killed while much is parked, a client killed after commit, an engine that freezes."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest
from worst import LONG, WorstDeployment

from weft_tasks.errors import WorkflowNotFound
from weft_tasks.model import WorkflowStatus
from weft_tasks.testing.waiting import wait_until

NODES = ("e1", "e2")


def test_what_is_parked_on_a_killed_engine_goes_on_as_it_should(well_cluster: WorstDeployment) -> None:
    """A sleep, a timeout, a suspended workflow, and some that are cancelled or terminated while nobody owns them."""
    weft, well = well_cluster.weft, well_cluster
    kinds = ("slept", "timed-out", "suspended", "to-cancel", "to-terminate", "to-update")
    rounds = 0
    held: dict[str, str] = {}

    def has_one_of_each() -> bool:
        """Start a round of all kinds, until one engine holds one of each."""
        nonlocal rounds
        names = {kind: f"{kind}-{rounds}" for kind in kinds}
        rounds += 1
        for kind, id in names.items():
            if kind == "slept":
                weft.start("sleeper", id, 6)
            elif kind == "timed-out":
                weft.start("careful", id, timeout=6)
            else:
                weft.start("careful" if kind == "to-cancel" else "permit", id)
        well.wait_until_parked(*names.values(), timeout=LONG)
        held.update({kind: id for kind, id in names.items() if well.node_of(id) == "e1"})
        return set(held) == set(kinds)

    wait_until(has_one_of_each, what="one of each kind on e1")
    weft.suspend(held["suspended"])
    weft.signal(held["suspended"], "event", "kept")
    well.workers["e1"].kill()
    weft.cancel(held["to-cancel"])
    weft.terminate(held["to-terminate"])
    weft.resume(held["suspended"])
    weft.signal(held["suspended"], "event", "closed", key="closed")
    weft.signal(held["to-update"], "event", "closed", key="closed")

    well.wait_for(held["to-terminate"], WorkflowStatus.TERMINATED, timeout=timedelta(0))
    cancelled = well.wait_for(held["to-cancel"], WorkflowStatus.CANCELLED, timeout=LONG)
    assert cancelled.state == {"cleaned": 1}
    assert well.wait_for(held["suspended"], timeout=LONG).result == ["kept", "closed"]
    assert well.wait_for(held["to-update"], timeout=LONG).result == ["closed"]
    assert well.wait_for(held["slept"], timeout=LONG).result == 1
    assert [turn for turn, _epoch in well.committed_turns(held["slept"])] == [0, 1]
    timed_out = well.wait_for(held["timed-out"], WorkflowStatus.TIMED_OUT, timeout=LONG)
    assert [turn for turn, _epoch in well.committed_turns(held["timed-out"])] == [0]
    assert timed_out.ended_at is not None
    assert (timed_out.ended_at - timed_out.created_at).total_seconds() >= 6


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_what_a_client_sent_in_its_own_transaction_arrives_though_it_is_killed_after_the_commit(
    cluster: WorstDeployment, ending: str
) -> None:
    weft, started, known = cluster.weft, f"client-{ending}", f"known-{ending}"
    cluster.execute("CREATE TABLE IF NOT EXISTS client_rows (id varchar(50))")
    weft.start("order", known, str(cluster.folder))
    cluster.wait_until_parked(known, timeout=LONG)
    client = cluster.client("transactional_client.py", ending, started, known)
    client.start()
    assert client.wait(LONG) == -signal.SIGKILL, client.log_text()
    rows = cluster.query("SELECT id FROM client_rows WHERE id = :id", id=started)
    if ending == "rollback":
        assert rows == []
        with pytest.raises(WorkflowNotFound):
            weft.describe(started)
        order = weft.describe(known)
        assert order.pending_updates == 0
        assert not {"gone", "approved"} & set(order.state)
        return
    assert rows == [(started,)]
    assert cluster.wait_for(started, timeout=LONG).result == ["closed"]
    assert weft.start("permit", started, on_conflict="use-existing").describe().result == ["closed"]
    ended = cluster.wait_for(known, timeout=LONG)
    assert (ended.result["gone"], ended.result["approved"]) == (1, 1)
    assert len(set(cluster.effects(known))) == 1


def test_the_owner_is_killed_while_its_activity_runs_elsewhere(well_cluster: WorstDeployment) -> None:
    """The reply finds the engine that has the workflow by then."""
    well = well_cluster
    gate = well.gate("elsewhere")
    well.start_on("e1", "calls_elsewhere", "calls-elsewhere", str(gate.path))
    gate.wait_for(timeout=LONG)
    wait_until(lambda: well.weft.describe("calls-elsewhere").waits, what="the call's commit")
    well.workers["e1"].kill()
    gate.open()
    ended = well.wait_for("calls-elsewhere", timeout=LONG)
    assert ended.result == ["came"]
    signals = well.query("SELECT name FROM weft_signals WHERE workflow_id = 'calls-elsewhere'")
    assert signals == [("came",)]


def test_a_frozen_engine_commits_nothing_into_a_new_run_of_a_purged_id(well_cluster: WorstDeployment) -> None:
    well, id = well_cluster, "purged"
    if well.weft.store.database.is_sqlite:
        pytest.skip("a process that is frozen inside a write stops all writers of an SQLite store (README.md)")
    gate, second = well.gate("purged"), well.gate("purged-again")
    old = well.weft.start("gate", id, str(gate.path))
    gate.wait_for(timeout=LONG)
    node = well.node_of(id)
    assert node is not None
    epoch = well.weft.describe(id).epoch
    well.workers[node].freeze()
    try:
        well.weft.terminate(id)
        well.weft.purge(older_than=timedelta(0), status=[WorkflowStatus.TERMINATED])
        with pytest.raises(WorkflowNotFound):
            old.describe()
        new = well.weft.start("gate", id, str(second.path))
        second.wait_for(timeout=LONG)
        assert well.weft.describe(id).epoch > epoch
    finally:
        gate.open()
        well.workers[node].thaw()
    well.wait_for_beats(*NODES, beats=3)
    info = well.weft.describe(id)
    assert (info.run_id, info.status, well.committed_turns(id)) == (new.run_id, WorkflowStatus.RUNNING, [])
    second.open()
    ended = well.wait_for(id, timeout=LONG)
    assert ended.result == second.comings[-1]
    assert len(well.committed_turns(id)) == 1
