"""Four shards with real workers and beat: their passes start, wake and recover the workflows of their own part."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deployment import GRACE, INTERVAL, SLACK, TTL, Deployment, NewLines

from weft_tasks.celery_host.names import MAINTENANCE_QUEUE, TURNS_QUEUE
from weft_tasks.model import NewWorkflow
from weft_tasks.shards import Shard, shards_of
from weft_tasks.testing.celery_commands import WorkerProcess
from weft_tasks.testing.waiting import wait_until

SHARDS = shards_of(4)
PASSES = ("renewal", "reclaim", "signal-poll", "update-poll")
OF_EACH = 6
"""Workflows of each shard."""


@pytest.fixture
def deployment(process_env: dict[str, str], database_url: str, tmp_path: Path) -> Deployment:
    env = {**process_env, "DATABASE_URL": database_url}
    return Deployment(env=env, folder=tmp_path, celery={"weft_shards": len(SHARDS)})


@pytest.fixture
def engines(deployment: Deployment) -> tuple[WorkerProcess, WorkerProcess]:
    first, second = (deployment.worker(node, queues=("celery", TURNS_QUEUE)) for node in ("e1", "e2"))
    return first, second


@pytest.fixture
def maintenance(deployment: Deployment) -> WorkerProcess:
    """With the slots that docs/operating.md gives to four shards."""
    return deployment.worker("m", queues=(MAINTENANCE_QUEUE,), pool="threads", concurrency=4 * len(SHARDS) + 1)


def ids_of(shard: Shard) -> list[str]:
    return [id for id in (f"w{number}" for number in range(100)) if shard.has(id)][:OF_EACH]


IDS = [id for shard in SHARDS for id in ids_of(shard)]


def test_four_shards_start_wake_and_recover_what_is_in_them(
    deployment: Deployment,
    engines: tuple[WorkerProcess, WorkerProcess],
    maintenance: WorkerProcess,
    start: Callable[..., None],
) -> None:
    start(*engines, maintenance, deployment.beat())
    _start_without_messages(deployment)
    deployment.wait_until_parked(*IDS)

    killed, successor = (deployment.engine(node).id for node in ("e1", "e2"))
    held = deployment.held_by(killed)
    by_shard = Counter(shard for shard in SHARDS for id in held if shard.has(id))
    assert set(by_shard) == set(SHARDS), "the engine that is killed holds nothing of some shard"
    before = deployment.claims()
    since = NewLines(maintenance)
    engines[0].kill()
    killed_at = time.monotonic()
    wait_until(lambda: not deployment.held_by(killed), what="the claims to move")
    assert time.monotonic() - killed_at < (TTL + GRACE + INTERVAL + SLACK).total_seconds()
    assert deployment.claims() == {
        id: (successor, epoch + 1) if id in held else (holder, epoch) for id, (holder, epoch) in before.items()
    }
    wait_until(lambda: _reclaimed(since) == by_shard, what="a line of each shard's pass that moved its claims")

    _signal_without_messages(deployment)
    deployment.wait_for_all(IDS)
    _expect_recent_marks(deployment)


def _start_without_messages(deployment: Deployment) -> None:
    """As if each start's message had been lost: only a pass of the workflow's shard finds it."""
    for id in IDS:
        deployment.weft.store.workflows.start_new(NewWorkflow(id=id, type="permit", input_json="null"))


def _signal_without_messages(deployment: Deployment) -> None:
    """As if each push had been lost: only a pass of the workflow's shard finds it."""
    for id in IDS:
        deployment.weft.store.signals.send(id, "event", json.dumps("closed"), key=None)


def _reclaimed(lines: NewLines) -> Counter[Shard]:
    """How many each shard's reclaim passes have moved, by the log of their worker."""
    of_shard = {shard.named("reclaim"): shard for shard in SHARDS}
    found: Counter[Shard] = Counter()
    for name, count in re.findall(r"weft\.pass\.completed pass='(reclaim\S+)' .*\breclaimed=(\d+)", lines.text):
        found[of_shard[name]] += int(count)
    return found


def _expect_recent_marks(deployment: Deployment) -> None:
    """Every pass of every shard has run just now, and `weft status` shows them all and no other."""
    names = {shard.named(kind) for shard in SHARDS for kind in PASSES}

    def are_recent() -> bool:
        ages = {mark.kind: mark.began_ago for mark in deployment.weft.overview().passes}
        return all((age := ages[name]) is not None and age < INTERVAL + SLACK for name in names)

    wait_until(are_recent, what="a pass of every kind in every shard")
    status = deployment.command("weft", "status", "--json", name="status")
    status.start()
    assert status.wait() == 0
    passes = {each["pass"]: each["began_ago_s"] for each in json.loads(status.log_text())["passes"]}
    assert set(passes) == names | {"run-once"}
    assert all(passes[name] is not None for name in names)
