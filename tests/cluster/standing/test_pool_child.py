"""A pool process that dies in the middle of a turn: it begins again, same epoch, or is set aside (O9, O11)."""

from __future__ import annotations

import os
import signal

from deployment import INTERVAL, SLACK, Deployment
from pytest_celery import CeleryTestSetup

from weft_tasks.model import WorkflowStatus


def test_a_turn_whose_process_was_killed_begins_again_under_the_same_epoch_and_commits_once(
    setup: CeleryTestSetup, deployment: Deployment
) -> None:
    gate = deployment.gate("killed-child")
    deployment.weft.start("gate", "killed-child", str(gate.path))
    gate.wait_for(1)
    before = deployment.weft.describe("killed-child")
    os.kill(gate.comings[0], signal.SIGKILL)
    # Noticed within half a second; two heartbeats that do not name the turn follow, then a reclaim pass.
    gate.wait_for(2, timeout=0.5 * INTERVAL + 2 * INTERVAL + INTERVAL + SLACK)
    gate.open()
    after = deployment.wait_for("killed-child")
    assert (after.epoch, after.run_id) == (before.epoch, before.run_id)
    assert after.result == gate.comings[1]
    assert deployment.committed_turns("killed-child") == [(0, before.epoch)]
    assert len(gate.comings) == 2


def test_a_workflow_that_kills_its_process_every_time_is_set_aside_while_others_go_on(
    setup: CeleryTestSetup, deployment: Deployment
) -> None:
    gate = deployment.gate("poison")
    deployment.weft.start("poison", "poison", str(gate.path))
    gate.wait_for(1)
    for n in range(20):
        deployment.weft.start("once", f"beside-poison-{n}")
    for n in range(20):
        deployment.wait_for(f"beside-poison-{n}")
    aside = deployment.wait_for("poison", WorkflowStatus.SET_ASIDE, timeout=45 * INTERVAL)
    assert len(gate.comings) == 5
    assert aside.error is not None
    assert "5 turns began" in str(aside.error["message"])
    assert aside.engine_id is None
    assert deployment.events("set-aside", "poison") == [("poison", aside.epoch)]
