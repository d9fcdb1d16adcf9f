"""The suite inside an application with settings of its own: the application's win, and ours are beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deployment import Deployment

from weft_tasks.celery_host.names import MAINTENANCE_QUEUE, RUN_ONCE, TASK_OF_PASS
from weft_tasks.locks import RedisSingleFlight
from weft_tasks.results import PassKind
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.waiting import wait_until

PREFIX = "team-a:"
POLL_UPDATES = TASK_OF_PASS[PassKind.UPDATE_POLL]


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    return tmp_path / "noted"


@pytest.fixture
def deployment(process_env: dict[str, str], database_url: str, tmp_path: Path, noted: Path) -> Deployment:
    return Deployment(
        env={**process_env, "DATABASE_URL": database_url},
        folder=tmp_path,
        celery={
            "beat_schedule": {
                "of the host": {"task": "suite.noted", "schedule": 0.5, "args": [str(noted)]},
                # The host wants this pass less often, and its entry has our name.
                POLL_UPDATES: {"task": POLL_UPDATES, "schedule": 3600.0, "options": {"queue": MAINTENANCE_QUEUE}},
            },
            "task_routes": {"suite.*": {"queue": "of-the-host"}, RUN_ONCE: {"queue": "of-the-host"}},
            "task_queues": None,
            "task_create_missing_queues": False,
            "task_default_queue": "of-the-host",
            "broker_transport_options": {"global_keyprefix": PREFIX},
        },
    )


def test_the_hosts_entries_and_routes_win_and_everything_carries_its_key_prefix(
    deployment: Deployment, start: Callable[..., None], noted: Path, local_redis: LocalRedis
) -> None:
    schedule = deployment.weft.app.conf.beat_schedule
    assert schedule[POLL_UPDATES]["schedule"] == 3600.0
    assert set(schedule) == {"of the host", *TASK_OF_PASS.values()}
    worker = deployment.worker("e1")
    start(worker, deployment.beat())
    deployment.park("w")
    deployment.weft.signal("w", "event", "closed")
    deployment.wait_for("w")
    wait_until(noted.exists, what="a tick of the host's own entry")
    marks = deployment.weft.store.pass_marks
    for kind in (PassKind.RENEWAL, PassKind.RECLAIM, PassKind.SIGNAL_POLL):
        wait_until(lambda kind=kind: marks.read(kind).began_at, what=f"a {kind} pass")
    assert marks.read(PassKind.UPDATE_POLL).began_at is None

    # A message of run_once goes where the host routes it, and it works there as well.
    assert deployment.weft.app.amqp.router.route({}, RUN_ONCE)["queue"].name == "of-the-host"
    assert deployment.call(RUN_ONCE).get(timeout=20)["failed"] == []
    assert_that_all_keys_have_the_prefix(deployment, local_redis)


def assert_that_all_keys_have_the_prefix(deployment: Deployment, redis: LocalRedis) -> None:
    locks = deployment.weft.locks
    assert isinstance(locks, RedisSingleFlight)
    assert locks.key_of("renewal").startswith(PREFIX)
    seen: set[bytes] = set()
    with redis.client() as client:

        def has_seen_a_lock() -> bool:
            seen.update(client.scan_iter("*"))
            return any(b":renewal" in key for key in seen)

        wait_until(has_seen_a_lock, what="a lock of the renewal pass")
        queue = f"{PREFIX}{deployment.queue_of('e1')}"
        assert client.exists(queue) or f"{PREFIX}_kombu.binding.weft.engine".encode() in seen
    assert {key for key in seen if not key.startswith(PREFIX.encode())} == set()
