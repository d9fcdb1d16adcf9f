"""Workflows started and finished a second, one turn each, against DBOS, Procrastinate and bare Celery tasks.

python -m benchmarks.throughput [--count 400] [--rounds 3]

Ours and bare Celery run on the same worker (two pool processes), in turn. One client sends from 4 threads, and the
time goes from the first send until the last has ended. DBOS runs one-step workflows and Procrastinate no-op jobs (at
its best concurrency of 1, 10 and 50) on the same server; one that is not installed (`pip install '.[bench]'`) is said
so.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.cluster import Cluster, cluster
from benchmarks.measuring import Bound, Report, Row, interleave, main, parser_of
from weft_tasks.testing.databases import libpq_url
from weft_tasks.testing.waiting import wait_until

SENDERS = 4
ENDED = "SELECT count(*) FROM weft_workflows WHERE type = 'one-turn' AND status = 'completed'"


def workflows(found: Cluster, count: int) -> None:
    import psycopg

    with psycopg.connect(libpq_url(found.environment["DATABASE_URL"]), autocommit=True) as connection:

        def ended() -> int:
            row = connection.execute(ENDED).fetchone()
            return 0 if row is None else int(row[0])

        before = ended()
        _from_threads(count, lambda number: found.weft.start("one-turn", id=uuid.uuid4().hex, input=number))
        wait_until(lambda: ended() >= before + count, what=f"{count} ended workflows")


def bare_tasks(found: Cluster, count: int) -> None:
    from benchmarks.app import nothing

    found.redis.delete("bench:done")
    _from_threads(count, lambda number: nothing.delay(number))
    wait_until(lambda: int(found.redis.get("bench:done") or 0) >= count, what=f"{count} tasks")


def _from_threads(count: int, send: Callable[[int], object]) -> None:
    with ThreadPoolExecutor(SENDERS) as senders:
        for _ in senders.map(send, range(count)):
            pass


def dbos(found: Cluster, count: int) -> float | None:
    """Workflows a second, or None if it is not installed."""
    if importlib.util.find_spec("dbos") is None:
        return None
    url = libpq_url(found.postgres.create_database())
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.dbos_peer", "throughput", url, str(count)],
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return float(json.loads(done.stdout.splitlines()[-1])["per_second"])


def procrastinate(found: Cluster, count: int) -> float | None:
    """Jobs a second at the best of three concurrencies, or None if it is not installed."""
    if importlib.util.find_spec("procrastinate") is None:
        return None
    return asyncio.run(_run_procrastinate(libpq_url(found.postgres.create_database()), count))


async def _run_procrastinate(url: str, count: int) -> float:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=url, max_size=20))

    @app.task(name="nothing")
    async def nothing(number: int) -> int:
        return number

    rates = []
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for concurrency in (1, 10, 50):
            await nothing.batch_defer_async(*({"number": number} for number in range(count)))
            begun = time.perf_counter()
            await app.run_worker_async(concurrency=concurrency, wait=False, install_signal_handlers=False)
            rates.append(count / (time.perf_counter() - begun))
    return max(rates)


def measure(arguments: argparse.Namespace) -> Report:
    count: int = arguments.count
    with cluster(passes=False) as found:
        spent = interleave(
            {"ours": lambda: workflows(found, count), "bare": lambda: bare_tasks(found, count)},
            rounds=arguments.rounds,
        )
        ours = count / statistics.median(spent["ours"])
        bare = [b / a for a, b in zip(spent["ours"], spent["bare"], strict=True)]
        rows = [
            _row(ours, count / statistics.median(spent["bare"]), "bare Celery tasks", 0.4, statistics.median(bare)),
            _row(ours, dbos(found, count), "DBOS one-step workflows", 2.0),
            _row(ours, procrastinate(found, count), "Procrastinate jobs at its best concurrency", 1.0),
        ]
    return Report(name="throughput", rows=rows)


def _row(ours: float, theirs: float | None, reference: str, goal: float, ratio: float | None = None) -> Row:
    bound: Bound = "at least"
    fields: dict[str, Any] = {"what": "workflows started and finished a second", "unit": "x", "bound": bound}
    name = f"throughput_{reference.split()[0].lower()}"
    if theirs is None:
        return Row(name=name, reference=reference, value=None, goal=goal, note="it is not installed", **fields)
    return Row(
        name=name, reference=reference, value=round(ratio or ours / theirs, 3), goal=goal, ours=round(ours, 1),
        theirs=round(theirs, 1), measured_in="a second", **fields,
    )  # fmt: skip


if __name__ == "__main__":
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--count", type=int, default=400)
    main("throughput", measure, parser)
