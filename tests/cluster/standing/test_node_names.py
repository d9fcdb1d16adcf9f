"""One live engine per node name, and a name that is free again soon after its engine was killed (O12)."""

from __future__ import annotations

from pathlib import Path

from deployment import INTERVAL, SLACK, Deployment
from pytest_celery import CeleryTestSetup

from weft_tasks.model import EngineStatus
from weft_tasks.testing.waiting import wait_until


def test_a_second_engine_under_a_live_node_name_is_refused_with_both_ids_named(
    setup: CeleryTestSetup, deployment: Deployment, tmp_path: Path
) -> None:
    first = deployment.engine("e1")
    twin = deployment.worker("e1", log_folder=tmp_path)
    twin.start()
    try:
        assert twin.wait() == 1
    finally:
        twin.kill()
    (line,) = (line for line in twin.log_text().splitlines() if "weft: " in line)
    assert f"node 'e1@local' is taken: engine {first.id} is alive" in line
    assert "so engine " in line
    assert "Traceback" not in twin.log_text()
    now = deployment.engine("e1")
    assert (now.id, now.status) == (first.id, EngineStatus.LIVE)


def test_a_killed_engine_starts_again_under_its_name_within_a_few_heartbeats_and_its_old_claims_move(
    setup: CeleryTestSetup, deployment: Deployment
) -> None:
    ids = deployment.park_on("e1", "restarted", 3)
    killed = deployment.engine("e1").id
    before = deployment.claims(*ids)
    process = setup.worker_cluster[0].process
    process.kill()
    process.start()
    # A start of Python may take long; then two heartbeats and a statement's time for a predecessor that may live.
    process.wait_for_log("weft.engine.predecessor")
    process.wait_for_log("weft.engine.started", timeout=2 * INTERVAL + SLACK)
    successor = deployment.engine("e1")
    assert (successor.id != killed, successor.status) == (True, EngineStatus.LIVE)
    wait_until(lambda: not deployment.held_by(killed), what="the old claims to move", timeout=2 * INTERVAL + SLACK)
    for id, (holder, epoch) in deployment.claims(*ids).items():
        assert holder != killed
        assert epoch == before[id][1] + 1
    process.wait_until_ready()
