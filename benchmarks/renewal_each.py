"""A renewal pass against one compare-and-swap statement for each claim, through 16 connections.

python -m benchmarks.renewal_each [--rounds 3] [--claims 10000] [--node FOLDER]

The reference is what a renewal without slices does: 16 threads, each with a connection of its own in autocommit, take
claim after claim. The same from Node runs if `node` is there and FOLDER/node_modules has the package `pg`
(`npm install --prefix FOLDER pg`); else its row says so. For the rows with 2 ms added, both sides sleep 2 ms for each
round trip to the store, in the thread that makes it; the reference then runs on a tenth of the claims, ten times over.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Connection, event, make_url

from benchmarks.measuring import Report, Row, compared, interleave, main, parser_of
from benchmarks.renewal import claims_of, context, renew
from benchmarks.stores import fill, open_store, plain_connection, postgres, tidy
from weft_tasks.store import Store
from weft_tasks.testing.databases import libpq_url

WIDTH = 16
ADDED_S = 0.002
SWAP = """
UPDATE weft_claims SET expires_at = (SELECT heartbeat_at + 30000 FROM weft_engines WHERE id = %s)
WHERE workflow_id = %s AND engine_id = %s AND epoch = %s
"""
NODE_SCRIPT = Path(__file__).with_name("renewal_each.mjs")


def swap_each(connections: list[psycopg.Connection[Any]], claims: list[tuple[Any, ...]], added_s: float = 0.0) -> None:
    """One statement for each claim, the connections side by side. Raises unless every claim was renewed."""
    todo, lock = iter(claims), threading.Lock()
    renewed = [0] * len(connections)

    def work(number: int) -> None:
        while True:
            with lock:
                claim = next(todo, None)
            if claim is None:
                return
            workflow_id, engine_id, epoch = claim
            if added_s:
                time.sleep(added_s)
            renewed[number] += connections[number].execute(SWAP, (engine_id, workflow_id, engine_id, epoch)).rowcount

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(connections))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(renewed) == len(claims), sum(renewed)


@contextmanager
def slower_by(store: Store, seconds: float) -> Iterator[None]:
    """Every round trip takes so much longer: each statement, and each BEGIN and COMMIT of a transaction."""
    engine = store.database.engine

    def sleep(*_: Any) -> None:
        time.sleep(seconds)

    def sleep_in_transaction(connection: Connection) -> None:
        if connection.get_isolation_level() != "AUTOCOMMIT":
            time.sleep(seconds)

    listeners: list[tuple[str, Callable[..., None]]] = [
        ("before_cursor_execute", sleep),
        ("begin", sleep_in_transaction),
        ("commit", sleep_in_transaction),
    ]
    for name, listener in listeners:
        event.listen(engine, name, listener)
    try:
        yield
    finally:
        for name, listener in listeners:
            event.remove(engine, name, listener)


def from_node(url: str, count: int, folder: Path) -> float:
    """Seconds that Node's `pg` takes for one statement for each claim, through a pool of 16."""
    port, database = make_url(url).port, make_url(url).database
    done = subprocess.run(
        ["node", str(NODE_SCRIPT), str(folder.resolve()), str(port), str(database), str(count), str(WIDTH)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    result = json.loads(done.stdout)
    assert result["renewed"] == count, result
    return float(result["seconds"])


def measure(arguments: argparse.Namespace) -> Report:
    rows = []
    count: int = arguments.claims
    with postgres() as server:
        url = server.create_database()
        store = open_store(url)
        fill(store, count)
        pass_context = context()
        with plain_connection(store) as connection:
            claims = list(zip(*claims_of(connection), strict=True))
        connections = [psycopg.connect(libpq_url(url), autocommit=True) for _ in range(WIDTH)]
        # A sample of them, or the slow side alone would take longer than anybody waits.
        some = claims[: max(1, count // 10)]
        what = f"renewal pass, {count:,} claims"

        def ours() -> None:
            renew(store, pass_context, count)

        def reference() -> None:
            swap_each(connections, claims)

        def reference_slower() -> float:
            begun = time.perf_counter()
            swap_each(connections, some, ADDED_S)
            return (time.perf_counter() - begun) * count / len(some)

        try:
            spent = interleave(
                {"ours": ours, "reference": reference}, rounds=arguments.rounds, before=lambda: tidy(store)
            )
            rows.append(
                compared(
                    spent,
                    name="renewal_each",
                    what=what,
                    reference="one compare-and-swap per claim, 16 connections",
                    bound="at least",
                    goal=15,
                )
            )
            with slower_by(store, ADDED_S):
                spent = interleave(
                    {"ours": ours, "reference": reference_slower}, rounds=arguments.rounds, before=lambda: tidy(store)
                )
            rows.append(
                compared(
                    spent,
                    name="renewal_each_2ms",
                    what=f"{what}, 2 ms added to each round trip",
                    reference="the same, 2 ms added",
                    bound="at least",
                    goal=25,
                )
            )
        finally:
            for each in connections:
                each.close()
        rows.append(_node_row(store, url, ours, arguments, what))
        store.database.dispose()
    return Report(name="renewal_each", rows=rows)


def _node_row(store: Store, url: str, ours: Callable[[], None], arguments: argparse.Namespace, what: str) -> Row:
    folder = Path(arguments.node)
    reference = "one compare-and-swap per claim from Node with pg, pool of 16"
    if shutil.which("node") is None or not (folder / "node_modules" / "pg").is_dir():
        missing = "node is not installed" if shutil.which("node") is None else f"npm install --prefix {folder} pg"
        return Row(
            name="renewal_each_node", what=what, reference=reference, value=None, unit="x", bound="at least", goal=15,
            note=f"not measured: {missing}",
        )  # fmt: skip
    spent = interleave(
        {"ours": ours, "reference": lambda: from_node(url, arguments.claims, folder)},
        rounds=arguments.rounds,
        before=lambda: tidy(store),
    )
    return compared(spent, name="renewal_each_node", what=what, reference=reference, bound="at least", goal=15)


if __name__ == "__main__":
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--claims", type=int, default=10_000)
    parser.add_argument("--node", default="var/benchmarks/node", metavar="FOLDER")
    main("renewal_each", measure, parser)
