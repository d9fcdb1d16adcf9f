"""Ticks that meet their own running pass, a pass that hangs, and `run_once` beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from deployment import INTERVAL, SLACK, Deployment
from pytest_celery import CeleryTestSetup
from sqlalchemy import text
from task_events import TaskEvents

from weft_tasks.celery_host.names import RUN_ONCE
from weft_tasks.locks import RedisSingleFlight, mint_token
from weft_tasks.results import PassKind
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.waiting import wait_until

LONG = timedelta(seconds=30)


@contextmanager
def held_by_hand(deployment: Deployment, redis: LocalRedis, token: str) -> Iterator[dict[str, bytes]]:
    """Take the four passes' locks under one token, as somebody whose passes run long."""
    locks = deployment.weft.locks
    assert isinstance(locks, RedisSingleFlight)
    keys = [locks.key_of(kind) for kind in PassKind]
    with redis.client() as client:
        for key in keys:
            wait_until(lambda key=key: client.set(key, token, nx=True, px=LONG), what=f"the lock {key}")
        yield {key: client.get(key) for key in keys}  # type: ignore[misc]
        tokens_now = {client.get(key) for key in keys}
        client.delete(*keys)
    assert tokens_now == {token.encode()}, "a tick touched a lock that was not its own"


@contextmanager
def locked_candidates(deployment: Deployment, prefix: str, count: int = 40) -> Iterator[list[str]]:
    """Workflows that the reclaim pass must place and cannot, for their rows are locked: it hangs to its deadline."""
    store, ids = deployment.weft.store, [f"{prefix}-{n}" for n in range(count)]
    for id in ids:
        store.workflows.start(id, "once", "null")
    with store.database.engine.connect() as connection, connection.begin():
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        connection.execute(text("SELECT 1 FROM weft_workflows WHERE id LIKE :ids FOR UPDATE"), {"ids": f"{prefix}-%"})
        wait_until(lambda: len(store.workflows.list_reclaim_candidates()) >= count, what="the candidates to be overdue")
        yield ids


def test_a_tick_that_meets_its_own_running_pass_is_a_quiet_counted_skip_that_names_the_holder(
    setup: CeleryTestSetup, deployment: Deployment, local_redis: LocalRedis
) -> None:
    token = mint_token("another-host", datetime(2026, 5, 1, 12, 0, tzinfo=UTC))
    with TaskEvents(deployment.weft.app) as events:

        def skips(kind: PassKind) -> list[dict[str, object]]:
            return [result for result in events.of_pass(kind) if result.get("skipped") == "running"]

        with held_by_hand(deployment, local_redis, token):
            counted = {kind: deployment.weft.store.pass_marks.read(kind).skipped for kind in PassKind}
            wait_until(lambda: all(len(skips(kind)) >= 2 for kind in PassKind), what="two skips of each pass")
            began = {kind: deployment.weft.store.pass_marks.read(kind).began_at for kind in PassKind}
        for kind in PassKind:
            skip = skips(kind)[-1]
            assert (skip["holder"], skip["since"]) == ("another-host", "2026-05-01T12:00:00+00:00")
            assert deployment.weft.store.pass_marks.read(kind).skipped >= counted[kind] + 2
        wait_until(
            lambda: all(deployment.weft.store.pass_marks.read(kind).began_at != began[kind] for kind in PassKind),
            what="all passes to run again",
        )
    assert events.failed == []


def test_a_foreign_token_is_shown_as_it_is(
    setup: CeleryTestSetup, deployment: Deployment, local_redis: LocalRedis
) -> None:
    with TaskEvents(deployment.weft.app) as events, held_by_hand(deployment, local_redis, "somebody else"):
        wait_until(
            lambda: any(result.get("holder") == "somebody else" for result in events.of_pass(PassKind.RENEWAL)),
            what="a skip that names the foreign holder",
        )
    assert events.failed == []


def test_a_reclaim_pass_that_hangs_delays_neither_renewals_nor_polls(
    setup: CeleryTestSetup, deployment: Deployment
) -> None:
    others = [kind for kind in PassKind if kind is not PassKind.RECLAIM]
    began: dict[PassKind, set[datetime | None]] = {kind: set() for kind in PassKind}

    def count_begins() -> bool:
        for kind, mark in deployment.weft.store.pass_marks.read_all().items():
            if kind in began:
                began[PassKind(kind)].add(mark.began_at)
        return all(len(began[kind]) >= 4 for kind in others)

    with TaskEvents(deployment.weft.app) as events, locked_candidates(deployment, "hung") as ids:
        wait_until(
            lambda: "'reclaim', 'status': 'deadline-reached'" in str(events.succeeded), what="a cut reclaim pass"
        )
        for begins in began.values():
            begins.clear()
        wait_until(count_begins, what="three more passes of each other kind", timeout=3 * INTERVAL + SLACK)
    assert events.failed == []
    deployment.wait_for_all(ids)


def test_two_run_once_at_once_are_one_run_whose_result_both_get(setup: CeleryTestSetup, deployment: Deployment) -> None:
    with locked_candidates(deployment, "twice"):
        calls = [deployment.call(RUN_ONCE) for _ in range(2)]
        results = [call.get(timeout=20) for call in calls]
    joined = [result.pop("joined", None) for result in results]
    assert results[0] == results[1]
    assert sum(holder is not None for holder in joined) == 1
    assert [part["pass"] for part in results[0]["run_once"]] == ["renewal", "reclaim", "signal-poll", "update-poll"]


def test_run_once_from_the_command_line_is_joined_by_a_task(
    setup: CeleryTestSetup, deployment: Deployment, local_redis: LocalRedis
) -> None:
    locks = deployment.weft.locks
    command = deployment.command("weft", "run-once", "--json", name="run-once")
    with locked_candidates(deployment, "by-hand"):
        command.start()
        wait_until(lambda: locks.holder("run-once"), what="the command to run the passes")
        joined = deployment.call(RUN_ONCE).get(timeout=20)
    assert command.wait() == 0
    assert f"(pid {command.pid}," in joined.pop("joined")
    assert json.loads(command.log_text()[command.log_text().index("{") :]) == joined


def test_run_once_ignores_the_locks_of_the_four_passes(
    setup: CeleryTestSetup, deployment: Deployment, local_redis: LocalRedis
) -> None:
    with held_by_hand(deployment, local_redis, "somebody else"):
        result = deployment.call(RUN_ONCE).get(timeout=20)
    assert [(part["pass"], part["status"]) for part in result["run_once"]] == [
        (kind.value, "completed") for kind in PassKind
    ]
    assert result["failed"] == []
