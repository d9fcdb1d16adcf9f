"""A workflow is ended from outside, or suspended, while its owner has just died in the middle of its turn (O7)."""

from __future__ import annotations

from datetime import timedelta

from worst import CANCEL_BOUND, LONG, WorstDeployment

from weft_tasks.model import WorkflowStatus

DEADLINE = timedelta(seconds=6)


def test_what_is_terminated_stays_so_and_what_is_suspended_runs_once_when_it_is_resumed(
    well_cluster: WorstDeployment,
) -> None:
    well, terminated, suspended = well_cluster, "terminated-dead", "suspended-dead"
    gates = {id: well.gate(id) for id in (terminated, suspended)}
    for id, gate in gates.items():
        well.start_on("e1", "gate", id, str(gate.path))
    for gate in gates.values():
        gate.wait_for(timeout=LONG)
    well.workers["e1"].kill()
    well.weft.terminate(terminated, "no more")
    well.weft.suspend(suspended)
    assert well.weft.describe(terminated).status is WorkflowStatus.TERMINATED
    well.wait_until_well()
    well.wait_for_beats("e1", "e2", beats=4)
    assert well.weft.describe(suspended).status is WorkflowStatus.SUSPENDED
    assert [len(gate.comings) for gate in gates.values()] == [1, 1]

    well.weft.resume(suspended)
    gates[suspended].wait_for(2, timeout=LONG)
    gates[suspended].open()
    assert well.weft.handle(suspended).result(timeout=LONG) == gates[suspended].comings[1]
    assert [turn for turn, _epoch in well.committed_turns(suspended)] == [0]
    assert well.committed_turns(terminated) == []
    assert len(well.events("terminated", terminated)) == 1
    assert [len(gate.comings) for gate in gates.values()] == [1, 2]


def test_what_is_cancelled_has_its_last_turn_and_what_has_timed_out_has_none(well_cluster: WorstDeployment) -> None:
    """Whoever takes them over meanwhile: what a turn did before the ending never commits."""
    well, cancelled, overdue = well_cluster, "cancelled-dead", "overdue-dead"
    gates = {id: well.gate(id) for id in (cancelled, overdue)}
    well.start_on("e1", "gate", cancelled, str(gates[cancelled].path))
    handle = well.start_on("e1", "gate", overdue, str(gates[overdue].path), timeout=DEADLINE)
    for gate in gates.values():
        gate.wait_for(timeout=LONG)
    well.workers["e1"].kill()
    well.weft.cancel(cancelled)
    assert well.weft.describe(cancelled).is_cancelling
    well.wait_for(cancelled, WorkflowStatus.CANCELLED, timeout=CANCEL_BOUND + LONG)
    timed_out = well.wait_for(overdue, WorkflowStatus.TIMED_OUT, timeout=LONG)
    assert timed_out.ended_at is not None
    assert timed_out.ended_at - timed_out.created_at >= DEADLINE
    for gate in gates.values():
        gate.open()
    well.wait_until_well()
    well.wait_for_beats("e1", "e2", beats=4)
    assert len(gates[cancelled].comings) == 1
    assert well.weft.describe(cancelled).result is None
    assert len(well.committed_turns(cancelled)) <= 1
    assert handle.describe().status is WorkflowStatus.TIMED_OUT
    assert well.committed_turns(overdue) == []
    assert len(well.events("timed-out", overdue)) == 1
