"""What a fleet costs while nothing happens: statements, processor time and memory, by the number of parked workflows.

python -m benchmarks.idle_fleet [--parked 10000] [--seconds 20]

Two engines, a maintenance worker and beat with the default settings. PostgreSQL logs every statement; the same fleet is
looked at before and after the workflows have been parked.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import psutil

from benchmarks.cluster import Cluster, cluster
from benchmarks.measuring import Report, Row, main
from benchmarks.stores import park

SETTLING_S = 11
"""Until each pass has run twice, and every process has what it keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Of the whole fleet, over a while."""

    statements_s: float
    core_share: float
    memory_mb: float
    threads: int


def look(found: Cluster, seconds: float) -> Seen:
    family = [psutil.Process(pid) for process in found.processes for pid in {process.pid, *process.member_pids()}]
    log = found.postgres.process.log_path
    lines, cpu, begun = _statements(log), sum(map(_cpu, family)), time.monotonic()
    time.sleep(seconds)
    spent = time.monotonic() - begun
    return Seen(
        statements_s=round((_statements(log) - lines) / spent, 2),
        core_share=round((sum(map(_cpu, family)) - cpu) / spent, 4),
        memory_mb=round(sum(process.memory_full_info().uss for process in family) / 1e6, 1),
        threads=sum(process.num_threads() for process in family),
    )


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _statements(log: object) -> int:
    """Statements that did something: no BEGIN, COMMIT or ROLLBACK."""
    with open(str(log), errors="replace") as lines:
        logged = (line for line in lines if "statement: " in line or "execute " in line)
        return sum(not any(word in line for word in ("BEGIN", "COMMIT", "ROLLBACK")) for line in logged)


def measure(arguments: argparse.Namespace) -> Report:
    with cluster(engines=2, postgres={"log_statement": "all"}) as found:
        time.sleep(SETTLING_S)
        before = look(found, arguments.seconds)
        store = found.weft.store
        park(store, [store.engines.list()[0].id], arguments.parked, type_name="stamped")
        time.sleep(SETTLING_S)
        after = look(found, arguments.seconds)
    parked = f"{arguments.parked:,} parked"
    engines = len(found.engines)
    return Report(
        name="idle_fleet",
        rows=[
            Row(
                name="idle_statements", what=f"statements a second per engine, {parked}, the passes' included",
                reference="none parked", value=round(after.statements_s / engines, 2), unit="", bound="at most",
                goal=5, ours=after.statements_s, theirs=before.statements_s, measured_in="a second",
            ),
            Row(
                name="idle_cpu", what=f"processor time of all workers and beat, {parked}", reference="none parked",
                value=round(100 * after.core_share, 2), unit="% of a core", bound="at most", goal=2,
                ours=100 * after.core_share, theirs=100 * before.core_share, measured_in="%",
            ),
            Row(
                name="idle_threads", what=f"threads that {parked} add to the workers", reference="none parked",
                value=after.threads - before.threads, unit="", bound="at most", goal=0,
            ),
        ],
        details={"before": repr(before), "after": repr(after)},
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parked", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20)
    main("idle_fleet", measure, parser)
