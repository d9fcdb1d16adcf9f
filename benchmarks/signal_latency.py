"""From `weft.signal` to its handler in another process, against a bare Celery task on that worker and against DBOS.

python -m benchmarks.signal_latency [--samples 300] [--burst 600] [--parked 200]

Spaced 20 ms, a signal and a bare task in turn; the handler and the task note when they began. Then a burst: signals to
parked workflows as fast as one sender can. DBOS does both on the same server, a `send` to a `recv` parked in another
process, with LISTEN/NOTIFY; if it is not installed (`pip install '.[bench]'`), its rows say so.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.cluster import Cluster, cluster
from benchmarks.measuring import Report, Row, main, percentile
from weft_tasks.testing.databases import libpq_url
from weft_tasks.testing.waiting import wait_until

GAP_S = 0.02
LIST_MS = 1e6


def spaced(found: Cluster, samples: int, parked: int) -> tuple[list[float], list[float]]:
    """Milliseconds of signals, to one parked workflow after the other, and of bare tasks."""
    from benchmarks.app import BARE, WOKEN, stamp

    found.redis.delete(WOKEN, BARE)
    numbers = itertools.count()
    sends: list[Callable[[], object]] = [
        lambda: found.weft.signal(f"parked-{next(numbers) % parked}", "go", time.monotonic_ns()),
        lambda: stamp.delay(time.monotonic_ns()),
    ]
    for _ in range(samples):
        for send in random.sample(sends, 2):
            send()
            time.sleep(GAP_S)
    return _noted(found, WOKEN, samples), _noted(found, BARE, samples)


def burst(found: Cluster, signals: int, parked: int) -> list[float]:
    from benchmarks.app import WOKEN

    found.redis.delete(WOKEN)
    for number in range(signals):
        found.weft.signal(f"parked-{number % parked}", "go", time.monotonic_ns())
    return _noted(found, WOKEN, signals)


def _noted(found: Cluster, key: str, count: int) -> list[float]:
    wait_until(lambda: found.redis.llen(key) >= count, what=f"{count} entries of {key}")
    return [int(entry) / LIST_MS for entry in found.redis.lrange(key, 0, -1)]


def from_dbos(url: str, samples: int, signals: int, parked: int) -> dict[str, list[float]]:
    """The same from `dbos_peer.py`, whose processes share the database server."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.dbos_peer", "latency", url, str(samples), str(signals), str(parked)],
        check=True,
        capture_output=True,
        text=True,
        timeout=150,
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(arguments: argparse.Namespace) -> Report:
    with cluster(passes=False) as found:
        for number in range(arguments.parked):
            found.weft.start("stamped", id=f"parked-{number}")
        wait_until(
            lambda: all(not info.is_due for info in found.weft.list(type="stamped", limit=10_000)), what="parking"
        )
        spaced(found, 20, arguments.parked)
        woken, bare = spaced(found, arguments.samples, arguments.parked)
        rushed = burst(found, arguments.burst, arguments.parked)
        dbos: dict[str, list[float]] = {}
        if importlib.util.find_spec("dbos") is not None:
            url = libpq_url(found.postgres.create_database())
            dbos = from_dbos(url, arguments.samples, arguments.burst, arguments.parked)
    return Report(
        name="signal_latency",
        rows=[
            *(_against_bare(woken, bare, share) for share in (0.5, 0.95)),
            *(_against_dbos("spaced 20 ms", woken, dbos.get("spaced"), share, 1.0) for share in (0.5, 0.95)),
            _against_dbos(f"burst of {arguments.burst} to {arguments.parked}", rushed, dbos.get("burst"), 0.5, 0.1),
        ],
        details={"samples": len(woken), "burst_ms_p95": percentile(rushed, 0.95)},
    )


def _against_bare(ours: list[float], theirs: list[float], share: float) -> Row:
    one, other = percentile(ours, share), percentile(theirs, share)
    return Row(
        name=f"signal_p{share * 100:g}_bare", what=f"signal to handler, spaced 20 ms, p{share * 100:g}",
        reference="a bare Celery task on the same worker", value=round(one / other, 3), unit="x", bound="at most",
        goal=1.5, ours=round(one, 3), theirs=round(other, 3), measured_in="ms",
    )  # fmt: skip


def _against_dbos(what: str, ours: list[float], theirs: list[float] | None, share: float, goal: float) -> Row:
    fields: dict[str, Any] = {
        "name": f"signal_{'burst' if goal < 1 else f'p{share * 100:g}'}_dbos",
        "what": f"signal to handler, {what}, p{share * 100:g}",
        "reference": "DBOS send/recv with LISTEN/NOTIFY",
        "unit": "x",
        "bound": "at most",
        "goal": goal,
        "measured_in": "ms",
    }
    if theirs is None:
        return Row(value=None, note="dbos is not installed", **fields)
    one, other = percentile(ours, share), percentile(theirs, share)
    return Row(value=round(one / other, 3), ours=round(one, 3), theirs=round(other, 3), **fields)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--burst", type=int, default=600)
    parser.add_argument("--parked", type=int, default=200)
    main("signal_latency", measure, parser)
