"""Children forked under heartbeats on SQLite: none is locked out, none hangs, nothing piles up (CELERY-FACTS, 1),
and what each of them counted is there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from deployment import Deployment
from sqlalchemy import make_url

from weft_tasks.results import PassKind
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.waiting import wait_until

TASKS, BATCH = 200, 10
LONGEST = timedelta(minutes=1)


@pytest.fixture
def database_url(new_database: Callable[[str], str]) -> str:
    return new_database("sqlite")


@pytest.fixture
def deployment(process_env: dict[str, str], database_url: str, tmp_path: Path) -> Deployment:
    """Beats every 100 ms, so that forks and heartbeats meet often."""
    env = {**process_env, "DATABASE_URL": database_url}
    return Deployment(env=env, folder=tmp_path, celery={"weft_heartbeat_interval": 0.1})


@pytest.mark.slow
def test_two_hundred_children_replaced_under_heartbeats_on_sqlite_all_write_to_it(
    deployment: Deployment, start: Callable[..., None], local_redis: LocalRedis
) -> None:
    engine = deployment.worker("e1", queues=["weft.turns"], extra=["--max-tasks-per-child", "1"])
    start(engine, deployment.worker("m1", queues=["weft.maintenance"]), deployment.beat())
    main = psutil.Process(engine.pid)
    database, writers = make_url(deployment.env["DATABASE_URL"]).database, deployment.gate("writers")

    def run(first: int, last: int) -> tuple[int, int]:
        """Nine ordinary tasks that write and a turn, again and again; how many threads and keys there are then."""
        for n in range(first, last):
            if n % BATCH:
                deployment.call("suite.written", args=[database, str(writers.path)], queue="weft.turns")
                continue
            deployment.weft.start("once", f"w{n}", str(writers.path))
            # Not all at once: a turn that waits for long in a queue is sent again every R, and takes a child each time.
            writers.wait_for(n, timeout=LONGEST)
        writers.wait_for(last, timeout=LONGEST)
        wait_until(lambda: len(engine.child_pids()) == 2, what="two children again")
        return main.num_threads(), len(keys_of(local_redis))

    threads, keys = run(0, 20)
    threads_later, keys_later = run(20, TASKS)
    assert len(set(writers.comings)) == TASKS, "each had a process of its own"
    assert threads_later <= threads + 1
    assert keys_later <= keys + len(PassKind)
    assert "Traceback" not in engine.log_text(), "a task could not write"
    deployment.wait_for_beats("e1", beats=10)
    committed = ("weft_workflow_turns_total", (("outcome", "committed"), ("type", "once")))
    assert deployment.weft.store.counters.read()[committed] == TASKS / BATCH, "each child wrote what it counted, once"


def keys_of(redis: LocalRedis) -> list[bytes]:
    """What is in the broker, without the messages under way."""
    with redis.client() as client:
        return [key for key in client.scan_iter("*") if b"unacked" not in key]
