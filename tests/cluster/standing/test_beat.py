"""Beat away, and two beats at once: neither moves a claim nor does anything twice (O2, O4)."""

from __future__ import annotations

from collections.abc import Callable

from deployment import BEATS_PER_TTL, SLACK, Deployment
from pytest_celery import CeleryTestSetup
from task_events import TaskEvents

from weft_tasks.results import PassKind
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until


def test_no_claim_moves_while_beat_is_away_and_signals_still_wake_at_once(
    setup: CeleryTestSetup, deployment: Deployment, beat: LocalProcess
) -> None:
    ids = [f"no-beat-{n}" for n in range(6)]
    deployment.park(*ids)
    before = deployment.claims(*ids)
    beat.kill()
    try:
        deployment.wait_for_beats("e1", "e2", beats=2 * BEATS_PER_TTL)
        assert deployment.claims(*ids) == before
        deployment.weft.signal(ids[0], "event", "closed")
        deployment.weft.start("once", "no-beat-new")
        deployment.wait_for(ids[0], timeout=SLACK)
        deployment.wait_for("no-beat-new", timeout=SLACK)
    finally:
        beat.start()
    began = deployment.weft.store.pass_marks.read("renewal").began_at
    wait_until(lambda: deployment.weft.store.pass_marks.read("renewal").began_at != began, what="ticks again")
    assert deployment.events("taken-over", *ids) == []


def test_two_beats_at_once_are_harmless(
    setup: CeleryTestSetup, deployment: Deployment, start: Callable[..., None]
) -> None:
    ids = [f"two-beats-{n}" for n in range(20)]
    deployment.park(*ids)
    before = deployment.claims(*ids)
    start(deployment.beat("beat-2"))
    marks = deployment.weft.store.pass_marks
    skipped = {kind: marks.read(kind).skipped for kind in PassKind}
    with TaskEvents(deployment.weft.app) as events:
        for id in ids:
            deployment.weft.signal(id, "event", "closed")
        wait_until(lambda: all(len(events.of_pass(kind)) >= 12 for kind in PassKind), what="12 ticks of each pass")
    for kind in PassKind:
        ticks = events.of_pass(kind)
        skips = [tick for tick in ticks if "skipped" in tick]
        # 12 ticks of two beats are six intervals. A pass less than R/2 old is fresh, so at the worst phase of the two
        # every second tick of a beat finds none, and mostly one of two does.
        assert len(ticks) - len(skips) <= 10
        assert marks.read(kind).skipped - skipped[kind] >= len(skips)
    assert sum("skipped" in tick for kind in PassKind for tick in events.of_pass(kind)) >= 12
    assert events.failed == []
    deployment.wait_for_all(ids)
    for id in ids:
        assert deployment.committed_turns(id) == [(0, before[id][1]), (1, before[id][1])]
