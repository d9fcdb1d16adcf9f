"""Redis away for two TTLs: engines that stayed alive keep their claims, and work resumes by itself (O3, O4, O9)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from deployment import BEATS_PER_TTL, Deployment
from pytest_celery import CeleryTestSetup

from weft_tasks.testing.local_redis import LocalRedis

LONGEST_SIGNAL = timedelta(seconds=2.5)
"""The publish timeout, a commit, and what a busy machine adds."""
LONGEST_RETURN = timedelta(seconds=20)
"""kombu waits 2, 4, 6 s … between two tries to connect; then a poll."""


@pytest.mark.parametrize("way", ["killed", "frozen"])
def test_no_claim_moves_while_redis_is_away_and_a_signal_sent_meanwhile_is_not_lost(
    setup: CeleryTestSetup, deployment: Deployment, local_redis: LocalRedis, way: str
) -> None:
    ids = [f"redis-{way}-{n}" for n in range(10)]
    deployment.park(*ids)
    before = deployment.claims(*ids)
    local_redis.kill() if way == "killed" else local_redis.pause()
    try:
        # Twice: the connection is there at first, and known to be broken at the second.
        for payload in ("first", "closed"):
            with at_most(LONGEST_SIGNAL):
                deployment.weft.signal(ids[0], "event", payload)
        with at_most(LONGEST_SIGNAL):
            deployment.weft.start("once", f"redis-{way}-meanwhile")
        deployment.wait_for_beats("e1", "e2", beats=2 * BEATS_PER_TTL)
        assert deployment.claims(*ids) == before
    finally:
        local_redis.start() if way == "killed" else local_redis.resume()

    deployment.wait_for(ids[0], timeout=LONGEST_RETURN)
    deployment.wait_for(f"redis-{way}-meanwhile", timeout=LONGEST_RETURN)
    for id in ids[1:]:
        deployment.weft.signal(id, "event", "closed")
    deployment.wait_for_all(ids[1:])
    assert deployment.weft.describe(ids[0]).result == ["first", "closed"]
    assert deployment.events("taken-over", *ids) == []
    assert [deployment.weft.describe(id).epoch for id in ids] == [before[id][1] for id in ids]


@contextmanager
def at_most(limit: timedelta) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < limit.total_seconds()
