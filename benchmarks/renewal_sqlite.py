"""A renewal pass on SQLite against one set-based statement, and how long a turn's commit waits beside it.

python -m benchmarks.renewal_sqlite [--rounds 7] [--claims 10000]

The commit beside it is a write transaction of one statement in a thread of its own, again and again while passes run.
"""

from __future__ import annotations

import argparse
import sqlite3
import threading
import time

from sqlalchemy import make_url, update

from benchmarks.measuring import Report, Row, compared, interleave, main, parser_of, percentile
from benchmarks.renewal import context, renew
from benchmarks.stores import fill, open_store, sqlite
from weft_tasks.store import Store
from weft_tasks.store.tables import workflows

REFERENCE = """
UPDATE weft_claims SET expires_at = (SELECT heartbeat_at + 30000 FROM weft_engines WHERE id = weft_claims.engine_id)
RETURNING workflow_id
"""


def waits_beside(store: Store, work: threading.Event) -> list[float]:
    """The seconds that each of many small commits took, until `work` is over."""
    waited = []
    one = update(workflows).where(workflows.c.id == "workflow-10000000").values(updated_at=workflows.c.updated_at + 1)
    while not work.is_set():
        begun = time.perf_counter()
        with store.database.transaction() as connection:
            connection.execute(one)
        waited.append(time.perf_counter() - begun)
        time.sleep(0.005)
    return waited


def measure(arguments: argparse.Namespace) -> Report:
    count: int = arguments.claims
    with sqlite() as url:
        store = open_store(url)
        fill(store, count)
        pass_context = context()
        plain = sqlite3.connect(str(make_url(url).database), isolation_level=None)
        plain.execute("PRAGMA synchronous = FULL")

        def reference() -> None:
            plain.execute("BEGIN IMMEDIATE")
            assert len(plain.execute(REFERENCE).fetchall()) == count
            plain.execute("COMMIT")

        spent = interleave(
            {"ours": lambda: renew(store, pass_context, count), "reference": reference}, rounds=arguments.rounds
        )
        over, waited = threading.Event(), list[float]()
        beside = threading.Thread(target=lambda: waited.extend(waits_beside(store, over)))
        beside.start()
        for _ in range(arguments.rounds):
            renew(store, pass_context, count)
        over.set()
        beside.join()
        plain.close()
        store.database.dispose()
    return Report(
        name="renewal_sqlite",
        rows=[
            compared(
                spent,
                name="renewal_sqlite",
                what=f"renewal pass on SQLite, {count:,} claims",
                reference="one set-based UPDATE … RETURNING",
                bound="at most",
                goal=2,
            ),
            Row(
                name="renewal_sqlite_wait",
                what="the longest wait of a commit beside such passes",
                reference="-",
                value=round(1000 * max(waited), 1),
                unit="ms",
                bound="at most",
                goal=250,
            ),
        ],
        details={"commits": len(waited), "wait_ms_p50": round(1000 * percentile(waited, 0.5), 2)},
    )


if __name__ == "__main__":
    parser = parser_of(__doc__, rounds=7)
    parser.add_argument("--claims", type=int, default=10_000)
    main("renewal_sqlite", measure, parser)
