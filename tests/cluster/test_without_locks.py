"""With locks that always say yes, two beats and two maintenance workers: an engine dies, nothing happens twice (O1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deployment import GRACE, INTERVAL, SLACK, TTL, Deployment

from weft_tasks.testing.waiting import wait_until

WORKFLOWS = 200


def test_nothing_happens_twice_without_single_flight(
    process_env: dict[str, str], database_url: str, tmp_path: Path, start: Callable[..., None]
) -> None:
    env = {**process_env, "DATABASE_URL": database_url, "SUITE_LOCKS": "always-yes"}
    deployment = Deployment(env=env, folder=tmp_path)
    engines = [deployment.worker(node, queues=["weft.turns"]) for node in ("e1", "e2", "e3")]
    maintenance = [deployment.worker(node, queues=["weft.maintenance"]) for node in ("m1", "m2")]
    start(*engines, *maintenance, deployment.beat("beat-1"), deployment.beat("beat-2"))
    ids = [f"w{n:03}" for n in range(WORKFLOWS)]
    deployment.park(*ids)
    # The killed engine has turns in hand and messages in its queue.
    for id in ids[::2]:
        deployment.weft.signal(id, "event", "before")
    engines[0].kill()
    for id in ids:
        deployment.weft.signal(id, "event", "closed")
    killed = deployment.engine("e1").id
    wait_until(
        lambda: not deployment.held_by(killed), what="the claims to move", timeout=TTL + GRACE + INTERVAL + 2 * SLACK
    )
    deployment.wait_for_all(ids, timeout=10 * SLACK)
    for n, id in enumerate(ids):
        assert deployment.weft.describe(id).result == (["before", "closed"] if n % 2 == 0 else ["closed"])
    # One commit per turn, without a gap; each signal was consumed by exactly one of them.
    per_run = "SELECT COUNT(*), COUNT(DISTINCT turn), MAX(turn) + 1 FROM weft_turns GROUP BY workflow_id"
    assert all(commits == turns == last for commits, turns, last in deployment.query(per_run))
    consumed = "SELECT COUNT(*) FROM weft_signals WHERE consumed_turn IS NULL OR consumed_turn < 0"
    assert deployment.query(consumed) == [(0,)]
    moves = "SELECT workflow_id, epoch FROM weft_history WHERE event = 'taken-over'"
    taken = deployment.query(moves)
    assert len(taken) == len(set(taken))
