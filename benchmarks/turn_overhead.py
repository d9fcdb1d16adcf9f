"""What a turn costs in round trips: to the store, and to Redis; counted, not timed.

python -m benchmarks.turn_overhead [--turns 50]

The store's are counted in this process, where the same runner as in a worker runs turns that consume a signal and
park again: each statement, and each BEGIN and COMMIT of a transaction with several. Redis's are counted by its MONITOR
while a worker runs such turns: what the worker sends for a turn beyond what it sends while it is idle; commands that
travel together count once. The signal itself (its transaction, and the message to the owner) is the sender's, and
listed apart.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, event

from benchmarks.cluster import Cluster, cluster
from benchmarks.measuring import Report, Row, main
from benchmarks.stores import open_store
from weft_tasks.model import WorkflowStatus
from weft_tasks.store import Store
from weft_tasks.store.turns import BegunTurn, TurnOutcome
from weft_tasks.testing.waiting import wait_until

IDLE_S = 3.0


@contextmanager
def round_trips(store: Store) -> Iterator[list[str]]:
    """What goes to the store meanwhile, one entry for each round trip."""
    seen: list[str] = []
    engine = store.database.engine

    def on_statement(_connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(" ".join(statement.split()[:2]))

    def is_transaction(connection: Connection) -> bool:
        return not connection.connection.dbapi_connection.autocommit  # type: ignore[union-attr]

    def on_begin(connection: Connection) -> None:
        if is_transaction(connection):
            seen.append("BEGIN")

    def on_commit(connection: Connection) -> None:
        if is_transaction(connection):
            seen.append("COMMIT")

    listeners = (("before_cursor_execute", on_statement), ("begin", on_begin), ("commit", on_commit))
    for name, listener in listeners:
        event.listen(engine, name, listener)
    try:
        yield seen
    finally:
        for name, listener in listeners:
            event.remove(engine, name, listener)


def of_the_store(url: str) -> dict[str, list[str]]:
    """The round trips of a signal, of a turn that consumes it and parks, and of a workflow's first and last turn."""
    store = open_store(url)
    store.engines.register("engine", node="e", host="here", pid=1, types=["t"], slots=2)
    parks = TurnOutcome(status=WorkflowStatus.RUNNING, state_json="{}", waits=(("go", None),))
    found = {}

    def turn(message: Any, outcome: TurnOutcome) -> None:
        begun = store.turns.begin(message, "task")
        assert isinstance(begun, BegunTurn), begun
        store.turns.commit(begun, replace(outcome, consumed=tuple(signal.number for signal in begun.signals)))

    with round_trips(store) as seen:
        message = store.workflows.start("w", "t", "{}")
        found["start"] = list(seen)
        seen.clear()
        grant = store.claims.acquire("w", message.run_id, message.epoch, "engine")
        found["acquire"] = list(seen)
        turn(replace(message, engine_id="engine", epoch=grant.epoch), parks)
        seen.clear()
        sent = store.signals.send("w", "go", "1", key=None)
        found["signal"] = list(seen)
        seen.clear()
        turn(sent.message, parks)
        found["turn"] = list(seen)
        sent = store.signals.send("w", "go", "1", key=None)
        seen.clear()
        turn(sent.message, TurnOutcome(status=WorkflowStatus.COMPLETED, state_json="{}"))
        found["last turn"] = list(seen)
    store.database.dispose()
    return found


def of_redis(found: Cluster, turns: int) -> tuple[float, float]:
    """Round trips for a turn, and for a bare Celery task on the same worker, beyond those of the worker's idling."""
    from benchmarks.app import BARE, stamp  # Reads the environment of the cluster.

    found.weft.start("stamped", id="w")
    wait_until(lambda: not found.weft.describe("w").is_due, what="parking")
    found.weft.signal("w", "go", time.monotonic_ns())
    wait_until(lambda: found.weft.describe("w").turn == 2, what="a turn")

    with _monitored(found) as idle:
        time.sleep(IDLE_S)
    idle_rate = len(idle) / IDLE_S

    def run_turn(number: int) -> None:
        found.weft.signal("w", "go", time.monotonic_ns())
        wait_until(lambda: found.weft.describe("w").turn == 3 + number, what="a turn")

    def run_task(number: int) -> None:
        stamp.delay(time.monotonic_ns())
        wait_until(lambda: found.redis.llen(BARE) == 1 + number, what="a task")

    return _of_each(found, run_turn, turns, idle_rate), _of_each(found, run_task, turns, idle_rate)


def _of_each(found: Cluster, run: Callable[[int], None], count: int, idle_rate: float) -> float:
    begun = time.monotonic()
    with _monitored(found) as busy:
        for number in range(count):
            run(number)
    return (len(busy) - idle_rate * (time.monotonic() - begun)) / count


@contextmanager
def _monitored(found: Cluster) -> Iterator[list[str]]:
    """The commands of others: one entry for each round trip. What notes the latency is the benchmark's own."""
    seen: list[str] = []
    is_over = threading.Event()
    monitor = found.redis.monitor()
    monitor.__enter__()

    def listen() -> None:
        is_inside = False
        for entry in monitor.listen():
            command = entry["command"].split()[0].upper()
            if is_over.is_set():
                return
            if not is_inside and command not in ("RPUSH", "LLEN", "PING"):
                seen.append(command)
            is_inside = command == "MULTI" or (is_inside and command != "EXEC")

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield seen
    finally:
        is_over.set()
        found.redis.ping()
        listener.join(5)
        monitor.connection.disconnect()


def measure(arguments: argparse.Namespace) -> Report:
    with cluster(passes=False, concurrency=1) as found:
        store = of_the_store(found.postgres.create_database())
        redis, bare = of_redis(found, arguments.turns)
    return Report(
        name="turn_overhead",
        rows=[
            Row(
                name="turn_store", what="round trips to the store for a turn (begin to commit)", reference="-",
                value=len(store["turn"]), unit="", bound="at most", goal=4, note=", ".join(store["turn"]),
            ),
            Row(
                name="turn_redis",
                what="round trips to Redis for a turn, the sender's message included",
                reference="a bare Celery task on the same worker",
                value=round(redis, 1),
                unit="",
                bound="at most",
                goal=2,
                ours=round(redis, 1),
                theirs=round(bare, 1),
                measured_in="round trips",
            ),
        ],
        details=store,
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=50)
    main("turn_overhead", measure, parser)
