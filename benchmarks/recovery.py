"""How soon parked workflows have a new owner: after kill -9 of their engine, and after its clean stop.

python -m benchmarks.recovery [--killed 200] [--stopped 1000]

Two engines, a maintenance worker and beat with the default settings. The bound after a kill is T + G + R and one pass
(45 s and a pass); nobody has to notice or to ask. What DBOS, Procrastinate and RedBeat do by default after the same
kill takes minutes to watch, and is not watched here.
"""

from __future__ import annotations

import argparse
import time

from sqlalchemy import text

from benchmarks.cluster import Cluster, cluster
from benchmarks.measuring import Report, Row, main
from benchmarks.stores import park
from weft_tasks.testing.processes import LocalProcess


def engine_of(found: Cluster, process: LocalProcess) -> str:
    return next(engine.id for engine in found.weft.store.engines.list() if engine.pid == process.pid)


def seconds_until_moved(found: Cluster, engine_id: str, count: int, limit_s: float) -> float:
    """From now until all of them have another holder."""
    begun = time.monotonic()
    query = text("SELECT count(*) FROM weft_claims WHERE engine_id <> :engine")
    while time.monotonic() < begun + limit_s:
        with found.weft.store.database.reading() as connection:
            if connection.execute(query, {"engine": engine_id}).scalar_one() >= count:
                return time.monotonic() - begun
        time.sleep(0.01)
    raise TimeoutError(f"not all of {count} workflows had moved after {limit_s} s")


def measure(arguments: argparse.Namespace) -> Report:
    with cluster(engines=2) as found:
        settings = found.weft.settings
        bound = (settings.claim_ttl + settings.grace + settings.renew_interval).total_seconds()
        first, second = found.engines
        leaver = engine_of(found, first)
        park(found.weft.store, [leaver], arguments.stopped, type_name="stamped")
        first.terminate()
        stopped = seconds_until_moved(found, leaver, arguments.stopped, bound)
        first.wait()
        first.start()
        first.wait_until_ready()
        with found.weft.store.database.transaction() as connection:
            connection.execute(text("DELETE FROM weft_claims"))
            connection.execute(text("DELETE FROM weft_workflows"))
        victim = engine_of(found, second)
        park(found.weft.store, [victim], arguments.killed, type_name="stamped")
        second.kill()
        killed = seconds_until_moved(found, victim, arguments.killed, bound + 30)
    return Report(
        name="recovery",
        rows=[
            Row(
                name="recovery_stopped",
                what=f"SIGTERM to {arguments.stopped:,} parked workflows with a new owner",
                reference="-",
                value=round(stopped, 3),
                unit="s",
                bound="at most",
                goal=1,
            ),
            Row(
                name="recovery_killed",
                what=f"SIGKILL to {arguments.killed:,} parked workflows with a new owner",
                reference=f"T + G + R = {bound:g} s and one pass",
                value=round(killed, 2),
                unit="s",
                bound="at most",
                goal=bound + 2,
            ),
        ],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--killed", type=int, default=200)
    parser.add_argument("--stopped", type=int, default=1000)
    main("recovery", measure, parser)
