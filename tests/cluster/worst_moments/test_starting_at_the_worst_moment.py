"""Starts and the death of the owner: signal_or_start and restart-if-ended make one run, whoever dies (O1, O7)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from worst import LONG, WorstDeployment

from weft_tasks.errors import WorkflowAlreadyExists, WorkflowNotFound

CLIENTS = 4


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Call all of them at the same time; what each returned, or the WorkflowAlreadyExists that it raised."""

    def outcome(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except WorkflowAlreadyExists as taken:
            return taken

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(outcome, calls))


def consumed(cluster: WorstDeployment, run_id: str) -> list[tuple[str, bool]]:
    """The key of each signal of a run, in the order of their numbers, and whether a turn has consumed it."""
    rows = cluster.query(
        "SELECT key, consumed_turn FROM weft_signals WHERE run_id = :run_id ORDER BY number", run_id=run_id
    )
    return [(key, turn is not None and turn >= 0) for key, turn in rows]


def test_signal_or_start_starts_one_run_that_consumes_every_signal_once(cluster: WorstDeployment) -> None:
    """Clients at once, each of them twice, while the owner dies before the first commit and after a later one."""
    weft = cluster.weft
    moments = ("before-commit-of-turn-0", "after-commit-of-signal")
    ids = {moment: f"signalled-{moment}" for moment in moments}
    fired = [cluster.arm(moment, id) for moment, id in ids.items()]
    runs = {}
    for id in ids.values():
        calls = [
            lambda id=id, key=f"event-{n}": weft.signal_or_start("permit", id, "event", key, key=key)
            for n in range(CLIENTS)
            for _ in range(2)
        ]
        receipts = at_once(*calls)
        (runs[id],) = {receipt.run_id for receipt in receipts}
        assert sorted(receipt.number for receipt in receipts if not receipt.is_duplicate) == [1, 2, 3, 4]
    cluster.wait_for_the_kills(*fired)
    for id, run_id in runs.items():
        again = weft.signal_or_start("permit", id, "event", "event-0", key="event-0")
        assert (again.run_id, again.is_duplicate) == (run_id, True)
        weft.signal_or_start("permit", id, "event", "closed", key="closed")
        steps = weft.handle(id).result(timeout=LONG)
        assert steps[-1] == "closed"
        assert [(key, True) for key in steps] == consumed(cluster, run_id)
        assert sorted(steps[:-1]) == [f"event-{n}" for n in range(CLIENTS)]
        turns = [turn for turn, _epoch in cluster.committed_turns(id)]
        assert turns == list(range(len(turns)))


def test_signal_or_start_after_the_end_begins_another_run_though_the_owner_died_with_the_end(
    cluster: WorstDeployment,
) -> None:
    weft, id = cluster.weft, "signalled-after-end"
    fired = cluster.arm("after-commit-of-end", id)
    first = weft.signal_or_start("permit", id, "event", "closed", key="closed")
    cluster.wait_for_the_kill(fired)
    assert weft.handle(id).result(timeout=LONG) == ["closed"]
    epoch = weft.describe(id).epoch
    repeated = weft.signal_or_start("permit", id, "event", "closed", key="closed")
    assert (repeated.run_id, repeated.is_duplicate) == (first.run_id, True)
    second = weft.signal_or_start("permit", id, "event", "again", key="again")
    assert (second.run_id != first.run_id, second.number, second.is_duplicate) == (True, 1, False)
    weft.signal(id, "event", "closed")
    assert weft.handle(id).result(timeout=LONG) == ["again", "closed"]
    assert weft.describe(id).epoch > epoch


def test_an_ended_workflow_is_restarted_once_while_its_old_and_its_new_owner_die(cluster: WorstDeployment) -> None:
    weft, id = cluster.weft, "restarted"
    old = weft.start("permit", id)
    with pytest.raises(WorkflowAlreadyExists):
        weft.start("permit", id, on_conflict="restart-if-ended")
    end = cluster.arm("after-commit-of-end", id)
    old.signal("event", "closed")
    cluster.wait_for_the_kill(end)
    assert old.result(timeout=LONG) == ["closed"]
    epoch = weft.describe(id).epoch

    begin = cluster.arm("before-commit-of-turn-0", id)
    outcomes = at_once(*[lambda: weft.start("permit", id, on_conflict="restart-if-ended")] * CLIENTS)
    refused = [outcome for outcome in outcomes if isinstance(outcome, WorkflowAlreadyExists)]
    (new,) = [outcome for outcome in outcomes if outcome not in refused]
    assert len(refused) == CLIENTS - 1
    cluster.wait_for_the_kill(begin)
    with pytest.raises(WorkflowAlreadyExists):
        weft.start("permit", id, on_conflict="restart-if-ended")
    assert weft.start("permit", id, on_conflict="use-existing").run_id == new.run_id
    with pytest.raises(WorkflowNotFound):
        old.signal("event", "for the old run")
    new.signal("event", "new")
    new.signal("event", "closed")
    assert new.result(timeout=LONG) == ["new", "closed"]
    assert cluster.query("SELECT run_id FROM weft_workflows WHERE id = :id", id=id) == [(new.run_id,)]
    turns = cluster.query("SELECT run_id, turn, epoch FROM weft_turns WHERE workflow_id = :id ORDER BY turn", id=id)
    assert [(run_id, turn) for run_id, turn, _epoch in turns] == [(new.run_id, n) for n in range(len(turns))]
    assert all(turn_epoch > epoch for _run, _turn, turn_epoch in turns)
