"""Messages are hints: lost, doubled and forged ones change nothing but how long it takes (O9, O10)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from deployment import INTERVAL, SLACK, Deployment, NewLines
from kombu import Connection
from pytest_celery import CeleryTestSetup

from weft_tasks.celery_host.names import RUN_TURN, TURNS_QUEUE
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.waiting import wait_until

CAPACITY = 4
"""Of an engine with two slots: as many again wait in its memory."""


@contextmanager
def occupied(deployment: Deployment, node: str, name: str) -> Iterator[None]:
    """Both slots of an engine taken, and as much as it may hold in memory: what comes now stays in its queue.

    A tick that came to this engine meanwhile has a place of one of ours, which then stays in the queue as well.
    """
    gate = deployment.gate(name)
    for _ in range(CAPACITY):
        deployment.call("suite.occupy", args=[str(gate.path)], queue=deployment.queue_of(node))
    wait_until(lambda: in_hand(deployment, node) == CAPACITY, what=f"{node} to be full")
    yield
    gate.open()


def in_hand(deployment: Deployment, node: str) -> int:
    """How many tasks the engine has taken and not finished."""
    name = f"{node}@local"
    with deployment.weft.app.connection_for_write() as connection:
        inspect = deployment.weft.app.control.inspect([name], connection=connection)
        replies = (inspect.active() or {}, inspect.reserved() or {})
    return sum(len(reply.get(name, ())) for reply in replies)


def test_a_lost_message_costs_at_most_two_intervals(
    setup: CeleryTestSetup, deployment: Deployment, local_redis: LocalRedis
) -> None:
    ids = deployment.park_on("e1", "lost", 3)
    before = deployment.claims(*ids)
    queue = deployment.queue_of("e1")
    with local_redis.client() as client, occupied(deployment, "e1", "lost"):
        left = client.llen(queue)
        for id in ids:
            deployment.weft.signal(id, "event", "closed")
        assert client.llen(queue) == left + 3
        client.delete(queue)
    deployment.wait_for_all(ids, timeout=2 * INTERVAL + SLACK)
    assert [deployment.committed_turns(id)[-1] for id in ids] == [(1, before[id][1]) for id in ids]


def test_a_new_workflow_whose_message_was_lost_runs_within_two_intervals(
    setup: CeleryTestSetup, deployment: Deployment
) -> None:
    deployment.weft.store.workflows.start("never-sent", "once", "null")
    deployment.wait_for("never-sent", timeout=2 * INTERVAL + SLACK)
    assert len(deployment.committed_turns("never-sent")) == 1


def test_a_doubled_message_runs_its_turn_once(
    setup: CeleryTestSetup, deployment: Deployment, local_redis: LocalRedis
) -> None:
    ids = deployment.park_on("e1", "doubled", 3)
    queue = deployment.queue_of("e1")
    log = NewLines(setup.worker_cluster[0].process)
    with local_redis.client() as client, occupied(deployment, "e1", "doubled"):
        left = client.llen(queue)
        for id in ids:
            deployment.weft.signal(id, "event", "closed")
        assert client.llen(queue) == left + 3
        messages = client.lrange(queue, 0, 2)
        client.rpush(queue, *messages)
    deployment.wait_for_all(ids)
    for id in ids:
        log.wait_for(f"weft.wake.discarded workflow={id!r}")
    assert [len(deployment.committed_turns(id)) for id in ids] == [2, 2, 2]


WELL_FORMED = {"workflow_id": "forged", "run_id": "r", "engine_id": None, "epoch": 1, "turn": 0}


@pytest.mark.parametrize(
    "message",
    [
        {},
        {**WELL_FORMED, "epoch": "1"},
        {**WELL_FORMED, "epoch": -1},
        {**WELL_FORMED, "epoch": 2**63},
        {**WELL_FORMED, "turn": True},
        {**WELL_FORMED, "turn": None},
        {**WELL_FORMED, "workflow_id": ["forged"]},
        {**WELL_FORMED, "workflow_id": "nul\0"},
        {**WELL_FORMED, "engine_id": 7},
        {**WELL_FORMED, "extra": "key"},
    ],
    ids=str,
)
def test_a_message_without_the_form_of_one_is_discarded_with_a_line(
    setup: CeleryTestSetup, deployment: Deployment, message: dict[str, Any]
) -> None:
    logs = [NewLines(worker.process) for worker in setup.worker_cluster]
    sent = deployment.call(RUN_TURN, kwargs=message, queue=TURNS_QUEUE)
    wait_until(
        lambda: any(sent.id in line and "malformed message" in line for log in logs for line in log.text.splitlines()),
        what="a line about the message",
    )


@pytest.mark.parametrize("wrong", ["workflow_id", "run_id", "engine_id", "epoch", "turn"])
def test_a_message_that_does_not_match_the_row_is_discarded_with_a_line(
    setup: CeleryTestSetup, deployment: Deployment, wrong: str
) -> None:
    id = f"forged-{wrong}"
    deployment.park(id)
    row = deployment.weft.describe(id)
    true = {
        "workflow_id": id,
        "run_id": row.run_id,
        "engine_id": row.engine_id,
        "epoch": row.epoch,
        "turn": row.turn,
    }
    value = f"another-{wrong}" if wrong.endswith("_id") else true[wrong] + 1  # type: ignore[operator]
    forged = {**true, wrong: value}
    # Of all engines, the one that holds it gets the message.
    log = NewLines(
        next(w.process for w in setup.worker_cluster if deployment.engine(w.worker_name).id == row.engine_id)
    )
    deployment.call(RUN_TURN, kwargs=forged, queue=f"weft.engine.{row.engine_id}")
    log.wait_for(f"weft.wake.discarded workflow={forged['workflow_id']!r}")
    after = deployment.weft.describe(id)
    assert (after.turn, after.epoch, after.engine_id) == (row.turn, row.epoch, row.engine_id)
    deployment.weft.signal(id, "event", "closed")
    deployment.wait_for(id)


def test_a_message_for_another_engine_begins_nothing(setup: CeleryTestSetup, deployment: Deployment) -> None:
    """A queue that a message was put back into by hand, or by kombu after the visibility timeout."""
    gate = deployment.gate("astray")
    store, holder = deployment.weft.store, deployment.engine("e1").id
    message = store.workflows.start("astray", "gate", json.dumps(str(gate.path)))
    grant = store.claims.acquire("astray", message.run_id, message.epoch, holder)
    log = NewLines(setup.worker_cluster[1].process)
    true = {
        "workflow_id": "astray",
        "run_id": message.run_id,
        "engine_id": holder,
        "epoch": grant.epoch,
        "turn": grant.turn,
    }
    deployment.call(RUN_TURN, kwargs=true, queue=deployment.queue_of("e2"))
    log.wait_for("weft.wake.discarded workflow='astray'")
    gate.open()
    deployment.wait_for("astray", timeout=2 * INTERVAL + SLACK)
    assert deployment.query("SELECT engine_id, attempt FROM weft_turns WHERE workflow_id = 'astray'") == [(holder, 1)]


def test_a_pickled_message_is_refused_and_the_next_one_handled(setup: CeleryTestSetup, deployment: Deployment) -> None:
    logs = [NewLines(worker.process) for worker in setup.worker_cluster[:2]]
    with Connection(deployment.env["BROKER_URL"]) as connection:
        connection.Producer(serializer="pickle").publish(
            [[], {}, {}], routing_key=TURNS_QUEUE, exchange="", headers={"task": RUN_TURN, "id": "pickled"}
        )
    wait_until(
        lambda: any("Refusing to deserialize" in log.text or "ContentDisallowed" in log.text for log in logs),
        what="a line about the pickled message",
    )
    for n in range(8):
        deployment.weft.start("once", f"after-pickle-{n}")
    for n in range(8):
        deployment.wait_for(f"after-pickle-{n}")


def test_a_message_of_garbage_leaves_the_worker_alive(
    setup: CeleryTestSetup, deployment: Deployment, local_redis: LocalRedis
) -> None:
    properties = {
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": TURNS_QUEUE},
        "delivery_tag": "t",
    }
    unreadable = {
        "body": "bm90IGpzb24=",
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"task": RUN_TURN, "id": "garbage"},
        "properties": {**properties, "body_encoding": "base64"},
    }
    with local_redis.client() as client:
        client.rpush(TURNS_QUEUE, json.dumps(unreadable))
        wait_until(lambda: client.llen(TURNS_QUEUE) == 0, what="the garbage to be taken")
    for n in range(8):
        deployment.weft.start("once", f"after-garbage-{n}")
    for n in range(8):
        deployment.wait_for(f"after-garbage-{n}")
    assert all(worker.process.is_running for worker in setup.worker_cluster)
