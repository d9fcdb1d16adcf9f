"""Handlers that never end and handlers that end their process: an external ending reaches the first within two seconds
on prefork (O7), the second is set aside after the limit (O11), and others are not disturbed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from deployment import INTERVAL, SLACK
from worst import LONG, SETTINGS, WorstDeployment

from weft_tasks.model import WorkflowInfo, WorkflowStatus
from weft_tasks.testing.waiting import wait_until

LIMIT = timedelta(seconds=2)
VERBS = ("cancel", "terminate", "suspend")
STATUS = {
    "cancel": WorkflowStatus.CANCELLED,
    "terminate": WorkflowStatus.TERMINATED,
    "suspend": WorkflowStatus.SUSPENDED,
}
OTHERS = 50


def has_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "Z"


def has_taken_effect(info: WorkflowInfo, verb: str) -> bool:
    """A cancelled workflow is cancelling until its last turn has run."""
    return info.status is STATUS[verb] or (verb == "cancel" and info.is_cancelling)


@pytest.mark.parametrize("verb", VERBS)
def test_on_prefork_it_takes_effect_and_frees_the_process_within_two_seconds(
    well_cluster: WorstDeployment, verb: str
) -> None:
    """Both processes of the engine are taken, so that a following turn shows that they are free."""
    well = well_cluster
    gates = [well.gate(f"endless-{verb}-{n}") for n in range(2)]
    ids = [gate.path.name for gate in gates]
    for id, gate in zip(ids, gates, strict=True):
        well.start_on("e1", "endless", id, str(gate.path))
    for gate in gates:
        gate.wait_for(timeout=LONG)
    for id in ids:
        getattr(well.weft, verb)(id)
    asked_at = time.monotonic()
    for id in ids:
        assert has_taken_effect(well.weft.describe(id), verb)
    pids = [gate.comings[0] for gate in gates]
    wait_until(lambda: all(map(has_gone, pids)), what="the end of both processes", timeout=LIMIT)
    assert time.monotonic() - asked_at < LIMIT.total_seconds()
    # The last turn of a cancelled one waits for a process in the place of the one that was ended.
    for id in ids:
        well.wait_for(id, STATUS[verb], timeout=INTERVAL + SLACK if verb == "cancel" else timedelta(0))
    well.start_on("e1", "once", f"after-{verb}", "")
    well.wait_for(f"after-{verb}", timeout=LONG)
    for id, gate in zip(ids, gates, strict=True):
        assert len(gate.comings) == 1
        assert all(turn == 0 for turn, _epoch in well.committed_turns(id))
        assert well.weft.describe(id).status is STATUS[verb]
        assert well.weft.describe(id).result is None


@pytest.mark.parametrize("verb", VERBS)
def test_it_takes_hold_though_its_sender_is_killed_before_it_has_told_anybody(
    well_cluster: WorstDeployment, verb: str
) -> None:
    """The order to end the turn is in the store, and the engine reads it with its next heartbeat."""
    well = well_cluster
    gate = well.gate(f"untold-{verb}")
    id = gate.path.name
    well.start_on("e1", "endless", id, str(gate.path))
    gate.wait_for(timeout=LONG)
    client = well.client("ending_client.py", verb, id)
    client.start()
    assert client.wait(LONG) == -signal.SIGKILL, client.log_text()
    assert has_taken_effect(well.weft.describe(id), verb)
    wait_until(lambda: has_gone(gate.comings[0]), what="the end of the process", timeout=INTERVAL + SLACK)
    # Nobody asked for a reclaim pass: the last turn of a cancelled one waits for the next tick.
    info = well.wait_for(id, STATUS[verb], timeout=2 * INTERVAL + SLACK if verb == "cancel" else timedelta(0))
    assert (info.result, len(gate.comings)) == (None, 1)
    assert len(well.committed_turns(id)) == (1 if verb == "cancel" else 0)


@pytest.fixture
def threads(well_cluster: WorstDeployment) -> Iterator[WorstDeployment]:
    """An engine on threads beside the others."""
    worker = well_cluster.worker("t1", pool="threads", concurrency=3)
    worker.start()
    try:
        worker.wait_until_ready(LONG)
        yield well_cluster
    finally:
        worker.kill()


def test_on_threads_the_status_changes_at_once_and_nothing_commits_afterwards(threads: WorstDeployment) -> None:
    gates = {verb: threads.gate(f"thread-{verb}") for verb in VERBS}
    for gate in gates.values():
        threads.start_on("t1", "endless", gate.path.name, str(gate.path))
    for gate in gates.values():
        gate.wait_for(timeout=LONG)
    for verb, gate in gates.items():
        getattr(threads.weft, verb)(gate.path.name)
        assert has_taken_effect(threads.weft.describe(gate.path.name), verb)
    for gate in gates.values():
        gate.open()
    ids = [gate.path.name for gate in gates.values()]
    wait_until(lambda: len(threads.events("commit-refused", *ids)) == 3, what="three refused commits", timeout=LONG)
    for verb, gate in gates.items():
        info = threads.wait_for(gate.path.name, STATUS[verb], timeout=LONG)
        assert (info.result, len(gate.comings)) == (None, 1)


def test_a_handler_that_kills_its_process_is_set_aside_while_fifty_others_finish(well_cluster: WorstDeployment) -> None:
    """When it is retried, healed by then, it completes once, though its engine dies before the commit."""
    well, limit = well_cluster, SETTINGS["weft_begun_turn_limit"]
    gate = well.gate("poison")
    handle = well.weft.start("poison_until", "poison", str(gate.path))
    gate.wait_for(timeout=LONG)
    others = [f"beside-poison-{n}" for n in range(OTHERS)]
    for id in others:
        well.weft.start("once", id)
    well.wait_for_all(others, timeout=LONG)
    # The worker notices each death within half a second; two heartbeats do not name the turn, then a reclaim pass.
    aside = well.wait_for("poison", WorkflowStatus.SET_ASIDE, timeout=LONG)
    assert len(gate.comings) == limit
    assert aside.error is not None
    assert f"{limit} turns began" in str(aside.error["message"])
    assert well.events("set-aside", "poison") == [("poison", aside.epoch)]
    turns = well.query("SELECT count(*) FROM weft_turns WHERE workflow_id LIKE 'beside-poison-%'")
    assert turns == [(OTHERS,)]

    gate.open()
    fired = well.arm("before-commit-of-end", "poison")
    well.weft.retry("poison")
    well.wait_for_the_kill(fired)
    assert handle.result(timeout=LONG) == "healed"
    assert [turn for turn, _epoch in well.committed_turns("poison")] == [0]
