"""Measure what the parts of passes cost, with the real passes on a real PostgreSQL, for costs.json.

python -m benchmarks.scaling.calibrate [--claims 100000] [--write]

Parked workflows of 200 live engines, on a server of its own with durable commits and without autovacuum. Counted is the
processor time of this process and of all processes of the server, and what the server writes to its log, so that other
work on the machine hardly matters. Prints the JSON; --write keeps it in benchmarks/scaling/costs.json.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, Self

import psutil
from sqlalchemy import text

from benchmarks.measuring import machine
from benchmarks.renewal import context, renew
from benchmarks.scaling.costs import MEASURED, Work
from benchmarks.stores import fill, open_store, plain_connection, postgres, tidy
from weft_tasks.passes.reclaim import reclaim_claims
from weft_tasks.results import PassResult, ReclaimStatus
from weft_tasks.settings import Settings
from weft_tasks.store import Store, heart_limits_of
from weft_tasks.store.targets import StoreReclaim
from weft_tasks.testing.local_postgres import LocalPostgres

ENGINES = 200
HELD_BY_ONE = 20_000
BEATS, BEATING = 400, 16
IDLE_ROUNDS = 20
PATIENT: dict[str, Any] = {
    "claim_ttl": timedelta(minutes=30),
    "renew_interval": timedelta(minutes=10),
    "statement_timeout": timedelta(minutes=10),
}
"""Nobody falls silent while this is measured, and no statement is cut off."""


class Meter:
    """Counts while it is entered: `spent` in all, and `seconds` on the clock."""

    def __init__(self, server: LocalPostgres, store: Store) -> None:
        self._server, self._store = server, store
        self.spent = Work(client_s=0, server_s=0)
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._begun, self._before = time.perf_counter(), self._now()
        return self

    def __exit__(self, *_error: object) -> None:
        self.seconds = time.perf_counter() - self._begun
        self.spent = self._now() + self._before * -1

    def _now(self) -> Work:
        with plain_connection(self._store) as connection:
            row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        client = time.process_time()
        return Work(client_s=client, server_s=_processor_time(self._server.process.pid), log_bytes=float(row[0]))


def _processor_time(pid: int) -> float:
    """Of the server's processes, those that have ended included."""
    postmaster = psutil.Process(pid)
    total = float(sum(postmaster.cpu_times()[:4]))
    for child in postmaster.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return total


def calibrate(claims: int) -> dict[str, Any]:
    """Everything that `Costs` reads, and the hearts' rate, measured now."""
    with postgres(shared_buffers="512MB") as server:
        url = server.create_database()
        store = open_store(url, **PATIENT)
        ids = fill(store, claims, engines=ENGINES)
        each = {"idle": _idle(server, store), "renewal": _renewal(server, store, claims)}
        each["heartbeat"], rate = _heartbeats(server, store, url, ids)
        each["counted"] = _metered(server, store, store.workflows.list_engines_taking_work) * (1 / claims)
        each["counted"] = replace(each["counted"], log_bytes=0.0)
        each |= _reclaim(server, store, claims)
        each["release"] = _release(server, store)
        store.database.dispose()
    return {
        "command": f"python -m benchmarks.scaling.calibrate --claims {claims}",
        "machine": machine(),
        "claims": claims,
        "engines": ENGINES,
        "each": {name: {key: float(f"{value:.4g}") for key, value in asdict(work).items()}
            for name, work in each.items()
        },
        "heartbeats_a_second": round(rate),
    }  # fmt: skip


def _metered(server: LocalPostgres, store: Store, call: Any) -> Work:
    with Meter(server, store) as meter:
        call()
    return meter.spent


def _idle(server: LocalPostgres, store: Store) -> Work:
    def passes() -> None:
        for _ in range(IDLE_ROUNDS):
            assert not reclaim(store).outcomes
            store.signals.list_ready()
            store.updates.list_held_with_pending()
            store.lifecycle.list_overdue_ends()
            for kind in ("renewal", "reclaim", "signal-poll", "update-poll"):
                store.pass_marks.begin(kind, "token", even_if_recent=True)
                store.pass_marks.finish(kind, "token", "{}", took=timedelta(0))

    return _metered(server, store, passes) * (1 / IDLE_ROUNDS)


def _renewal(server: LocalPostgres, store: Store, claims: int) -> Work:
    """The second pass: the first one has made room in the pages."""
    renew(store, context(), claims)
    return _metered(server, store, lambda: renew(store, context(), claims)) * (1 / claims)


def _heartbeats(server: LocalPostgres, store: Store, url: str, ids: list[str]) -> tuple[Work, float]:
    """From 16 hearts at once; each opens a connection for each beat, as hearts do."""
    settings = Settings(database_url=url, **PATIENT)
    hearts = Store.open(settings, limits=heart_limits_of(settings))

    def beat(number: int) -> None:
        hearts.engines.heartbeat(ids[number % ENGINES], free_slots=8, in_hand=[])

    with Meter(server, store) as meter, ThreadPoolExecutor(BEATING) as pool:
        list(pool.map(beat, range(BEATS)))
    return meter.spent * (1 / BEATS), BEATS / meter.seconds


def _reclaim(server: LocalPostgres, store: Store, claims: int) -> dict[str, Work]:
    """Nobody's workflows, as after a clean stop of all: listed, planned, and moved. The store's part of the list goes
    with all that wait, because it chooses among them."""
    disown(store)
    target = target_of(store)
    listed: list[Any] = []
    planning = _metered(server, store, lambda: listed.extend(target.list_reclaim_candidate_workflow_ids()))
    whole = _metered(server, store, lambda: reclaim(store))
    return {
        "waiting": Work(client_s=0.0, server_s=planning.server_s / claims),
        "listed": Work(client_s=planning.client_s / len(listed), server_s=0.0),
        "move": (whole + planning * -1) * (1 / len(listed)),
    }


def _release(server: LocalPostgres, store: Store) -> Work:
    (engine_id,) = fill(store, HELD_BY_ONE, engines=1)
    return _metered(server, store, lambda: store.claims.release_all(engine_id)) * (1 / HELD_BY_ONE)


def reclaim(store: Store) -> PassResult[ReclaimStatus]:
    """One reclaim pass as a tick runs it; its messages go nowhere."""
    return reclaim_claims(target_of(store), context())


def target_of(store: Store) -> StoreReclaim:
    return StoreReclaim(
        workflows=store.workflows,
        claims=store.claims,
        engines=store.engines,
        send_turn=lambda _message: True,
        rng=random.Random(1),
    )


def disown(store: Store) -> None:
    """Nobody holds anything."""
    with store.database.transaction() as connection:
        connection.execute(text("UPDATE weft_workflows SET engine_id = NULL"))
        connection.execute(text("DELETE FROM weft_claims"))
        connection.execute(text("DELETE FROM weft_history"))
    tidy(store)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help="keep it in costs.json")
    arguments = parser.parse_args()
    found = json.dumps(calibrate(arguments.claims), indent=2)
    print(found)
    if arguments.write:
        MEASURED.write_text(found + "\n", encoding="utf-8")
