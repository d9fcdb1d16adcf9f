"""The files of an engine for probes: what they say while the store is away, the engine frozen, draining and stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from deployment import INTERVAL, SLACK, Deployment

from weft_tasks.celery_host.health_files import ALIVE, READY
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.waiting import wait_until

FRESH = 3 * INTERVAL
"""Six heartbeats, and more than one that waits in vain for the store takes."""


@pytest.fixture
def local_postgres() -> Iterator[LocalPostgres]:
    with LocalPostgres(durable=False) as server:
        yield server


@pytest.fixture
def database_url(local_postgres: LocalPostgres) -> str:
    return local_postgres.create_database()


def age(file: Path) -> timedelta:
    """Infinite for a file that is not there."""
    try:
        return timedelta(seconds=time.time() - file.stat().st_mtime)
    except FileNotFoundError:
        return timedelta.max


def test_the_files_tell_a_living_engine_from_a_dead_one_and_a_useful_one_from_a_useless_one(
    deployment: Deployment, local_postgres: LocalPostgres, start: Callable[..., None], tmp_path: Path
) -> None:
    folder = tmp_path / "health"
    deployment.weft.migrate()
    engine = deployment.worker("e1", env={"WEFT_HEALTH_FOLDER": str(folder)})
    start(engine)
    alive, ready = folder / ALIVE, folder / READY
    wait_until(lambda: age(ready) < FRESH, what="a ready engine")
    assert age(alive) < FRESH

    local_postgres.pause()
    wait_until(lambda: not ready.exists(), what="the end of readiness without a store")
    silence = time.monotonic() + 2 * FRESH.total_seconds()
    ages = []
    wait_until(lambda: ages.append(age(alive)) or time.monotonic() > silence, what="a while without a store")
    assert max(ages) < FRESH + SLACK
    assert not ready.exists()
    local_postgres.resume()
    wait_until(ready.exists, what="readiness with the store")

    engine.freeze()
    wait_until(lambda: age(alive) > FRESH + SLACK, what="an old file of a frozen engine")
    engine.thaw()
    wait_until(lambda: age(alive) < FRESH, what="a new file of the engine awake")

    gate = deployment.gate("long")
    deployment.weft.start("gate", "long", os.fspath(gate.path))
    gate.wait_for()
    engine.terminate()
    wait_until(lambda: not ready.exists(), what="the end of readiness in a drain")
    wait_until(lambda: age(alive) < FRESH, what="a beat of the draining engine")
    gate.open()
    engine.wait()
    assert list(folder.iterdir()) == []
