"""pytest-celery's `celery_setup` on local processes: nodes answer, die with their pools, freeze and come back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from celery import Celery
from pytest_celery import CeleryTestSetup

from weft_tasks.testing.celery_commands import WorkerProcess, celery_beat, celery_worker
from weft_tasks.testing.cluster import WorkerNode
from weft_tasks.testing.waiting import wait_until

HERE = Path(__file__).parent


@pytest.fixture
def setup(celery_setup: CeleryTestSetup) -> CeleryTestSetup:
    assert celery_setup.ready(ping=False, control=True, docker=True)
    return celery_setup


def answering(app: Celery) -> set[str]:
    """The nodes that answer a ping. The connection is new, because a pooled one does not survive its Redis."""
    with app.connection_for_write() as connection:
        return {node for answer in app.control.ping(timeout=0.5, connection=connection) for node in answer}


def wait_for_answers(app: Celery, *nodes: str) -> None:
    wait_until(lambda: answering(app) == set(nodes), what=f"answers of exactly {nodes}")


def add(app: Celery) -> int:
    result: int = app.send_task("plain.add", (2, 3)).get(timeout=20)
    return result


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_two_real_workers_answer_and_work(setup: CeleryTestSetup) -> None:
    assert len(setup) == 4
    assert [worker.hostname() for worker in setup.worker_cluster] == ["e1@local", "e2@local"]
    wait_for_answers(setup.app, "e1@local", "e2@local")
    assert add(setup.app) == 5


def test_a_prefork_pool_stays_in_the_process_group_of_its_worker(setup: CeleryTestSetup) -> None:
    process = setup.worker.process
    assert {os.getpgid(pid) for pid in process.child_pids()} == {process.pid}


def test_a_killed_worker_dies_with_its_pool_while_the_other_answers_and_comes_back(setup: CeleryTestSetup) -> None:
    first: WorkerNode = setup.worker_cluster[0]
    pool = first.process.child_pids()
    assert len(pool) == 2
    first.kill()
    assert first.container.status == "exited"
    assert all(map(is_gone, pool))
    wait_for_answers(setup.app, "e2@local")
    assert add(setup.app) == 5
    first.restart()
    wait_for_answers(setup.app, "e1@local", "e2@local")


def test_killing_the_main_process_alone_takes_its_prefork_pool_with_it(setup: CeleryTestSetup) -> None:
    first: WorkerNode = setup.worker_cluster[0]
    pool = first.process.child_pids()
    first.kill_main_only()
    wait_until(lambda: all(map(is_gone, pool)), what="the end of the pool")


def test_a_frozen_worker_is_silent_until_it_thaws(setup: CeleryTestSetup) -> None:
    first: WorkerNode = setup.worker_cluster[0]
    first.freeze()
    assert {psutil.Process(pid).status() for pid in first.process.member_pids()} == {psutil.STATUS_STOPPED}
    wait_for_answers(setup.app, "e2@local")
    first.thaw()
    wait_for_answers(setup.app, "e1@local", "e2@local")


def test_a_terminated_worker_shuts_down_warmly(setup: CeleryTestSetup) -> None:
    first: WorkerNode = setup.worker_cluster[0]
    first.terminate()
    assert first.process.wait() == 0
    assert "Warm shutdown" in first.logs()


@pytest.mark.parametrize("way", ["restart", "kill and restart", "empty"])
def test_workers_work_again_after_redis_came_back(setup: CeleryTestSetup, way: str) -> None:
    url = setup.broker.config()["url"]
    if way == "empty":
        setup.broker.redis.restart(empty=True)
    else:
        if way == "kill and restart":
            setup.broker.kill()
            assert setup.broker.container.status == "exited"
        setup.broker.restart()
    assert setup.broker.config()["url"] == url
    wait_for_answers(setup.app, "e1@local", "e2@local")
    assert add(setup.app) == 5


def test_beat_ticks_reach_a_worker(setup: CeleryTestSetup, process_env: dict[str, str], tmp_path: Path) -> None:
    beat = celery_beat("plain_app:app", log_folder=tmp_path, env=process_env, import_paths=[HERE])
    with beat:
        wait_until(
            lambda: any("plain.tick" in worker.logs() for worker in setup.worker_cluster), what="a tick at a worker"
        )
    assert not beat.is_running


class TestWorkersAsTheModuleWantsThem:
    """One solo worker with a queue of its own, in place of conftest's two."""

    @pytest.fixture
    def worker_processes(self, process_env: dict[str, str], tmp_path: Path) -> Sequence[WorkerProcess]:
        env = {**process_env, "PLAIN_SETTING": "value"}
        extra = ("--without-gossip", "--without-mingle")
        return [
            celery_worker(
                "plain_app:app",
                node="alone@%h",
                queues=["own", "spare"],
                pool="solo",
                concurrency=1,
                log_folder=tmp_path,
                env=env,
                cwd=HERE,
                extra=extra,
            )
        ]

    def test_it_consumes_its_own_queue_in_its_main_process(self, setup: CeleryTestSetup) -> None:
        worker: WorkerNode = setup.worker
        assert worker.worker_queue == "own"
        assert worker.hostname() == f"{worker.worker_name}@{worker.container.id}"
        assert psutil.Process(worker.process.pid).environ()["PLAIN_SETTING"] == "value"
        wait_for_answers(setup.app, worker.hostname())
        assert setup.app.send_task("plain.pool_pid", queue="own").get(timeout=20) == worker.process.pid
