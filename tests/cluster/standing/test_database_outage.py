"""PostgreSQL away for two TTLs: nobody can write, so nothing moves, and everything goes on afterwards (O2, O4, O8)."""

from __future__ import annotations

from functools import partial

import psycopg
import pytest
from deployment import BEATS_PER_TTL, SLACK, TTL, Deployment, NewLines
from pytest_celery import CeleryTestSetup

from weft_tasks.errors import StoreUnavailable
from weft_tasks.testing.databases import libpq_url
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.waiting import wait_until


@pytest.mark.parametrize("way", ["stopped", "frozen"])
def test_no_claim_moves_while_the_database_is_away_and_a_turn_in_hand_commits_when_it_is_back(
    setup: CeleryTestSetup, deployment: Deployment, local_postgres: LocalPostgres, way: str
) -> None:
    ids, long = [f"database-{way}-{n}" for n in range(10)], f"database-{way}-long"
    deployment.park(*ids)
    gate = deployment.gate(long)
    deployment.weft.start("stay", long, str(gate.path))
    gate.wait_for()
    before = deployment.claims(long, *ids)
    logs = [NewLines(worker.process) for worker in setup.worker_cluster]
    hearts = logs[:2]
    local_postgres.process.stop() if way == "stopped" else local_postgres.pause()
    try:
        # A stopped server refuses at once, one beat every R/2; a frozen one makes each beat wait for its limits.
        beats = 2 * BEATS_PER_TTL if way == "stopped" else 2
        for log in hearts:
            log.wait_for(f"in_a_row={beats} ")
        gate.open()
        for log in hearts:
            log.wait_for(f"in_a_row={beats + 2} ")
    finally:
        local_postgres.start() if way == "stopped" else local_postgres.resume()

    for log in hearts:
        log.wait_for("weft.heart.back")
    wait_until(lambda: deployment.weft.describe(long).turn == 1, what="the turn to commit", timeout=TTL + SLACK)
    assert deployment.claims(long, *ids) == before
    for id in (long, *ids):
        deployment.weft.signal(id, "event", "closed")
    deployment.wait_for_all(before)
    assert deployment.events("taken-over", *before) == []
    assert not any("Traceback" in log.text for log in logs), "an outage is a line for each tick"
    assert len(gate.comings) == 1


def test_turns_survive_that_the_server_ends_every_connection_again_and_again(
    setup: CeleryTestSetup, deployment: Deployment, local_postgres: LocalPostgres
) -> None:
    ids = [f"terminated-{n}" for n in range(30)]
    deployment.park(*ids)
    before = deployment.claims(*ids)
    for n, id in enumerate(ids):
        wait_until(partial(signalled, deployment, id), what="the store to take the signal", timeout=SLACK)
        if n % 5 == 0:
            end_all_connections(local_postgres)
    deployment.wait_for_all(ids)
    assert [deployment.committed_turns(id) for id in ids] == [[(0, before[id][1]), (1, before[id][1])] for id in ids]


def signalled(deployment: Deployment, id: str) -> bool:
    """Whether the store has it: this client's connections are among those that are ended, so it tries with one key."""
    try:
        deployment.weft.signal(id, "event", "closed", key=id)
    except StoreUnavailable:
        return False
    return True


def end_all_connections(postgres: LocalPostgres) -> None:
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname LIKE 'weft%'"
    )
    with psycopg.connect(libpq_url(postgres.url())) as connection:
        connection.execute(others)
