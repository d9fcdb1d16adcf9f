"""Engines whose pools are busy for three TTLs, with turns or with ordinary tasks, keep their claims (O3, O12)."""

from __future__ import annotations

from deployment import BEATS_PER_TTL, INTERVAL, SLACK, Deployment
from pytest_celery import CeleryTestSetup

from weft_tasks.testing.waiting import wait_until


def test_engines_with_busy_pools_keep_their_claims_and_their_due_workflows(
    setup: CeleryTestSetup, deployment: Deployment
) -> None:
    ids = deployment.park_on("e1", "busy", 2) + deployment.park_on("e2", "busy-too", 2)
    tasks = deployment.gate("busy-tasks")
    for _ in range(2):
        deployment.call("suite.occupy", args=[str(tasks.path)], queue=deployment.queue_of("e2"))
    tasks.wait_for(2)
    turns = deployment.gate("busy-turns")
    for n in range(2):
        deployment.start_on("e1", "gate", f"busy-turn-{n}", str(turns.path))
    turns.wait_for(2)
    wait_until(
        lambda: [deployment.engine(node).free_slots for node in ("e1", "e2")] == [0, 0], what="no free slot anywhere"
    )
    for id in ids:
        deployment.weft.signal(id, "event", "closed")
    before = deployment.claims()
    passes_before = deployment.weft.store.pass_marks.read("reclaim").began_at
    deployment.wait_for_beats("e1", "e2", beats=3 * BEATS_PER_TTL)

    assert deployment.claims() == before
    assert deployment.weft.store.pass_marks.read("reclaim").began_at != passes_before
    assert not any(deployment.engine(node).is_deaf for node in ("e1", "e2"))
    tasks.open()
    turns.open()
    for id in (*ids, "busy-turn-0", "busy-turn-1"):
        deployment.wait_for(id, timeout=2 * INTERVAL + SLACK)
        assert deployment.weft.describe(id).epoch == before[id][1]
    assert (len(tasks.comings), len(turns.comings)) == (2, 2)
