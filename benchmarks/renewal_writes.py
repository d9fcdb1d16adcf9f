"""What renewals write: WAL bytes for each, the share of heap-only updates, and whether the table grows.

python -m benchmarks.renewal_writes [--passes 20] [--claims 10000]

With PostgreSQL's own autovacuum running, as in production. The WAL is measured over passes after a checkpoint and
a first pass that pays for the full-page images.
"""

from __future__ import annotations

import argparse

from benchmarks.measuring import Report, Row, main
from benchmarks.renewal import context, renew
from benchmarks.stores import fill, open_store, plain_connection, postgres
from weft_tasks.testing.waiting import wait_until

SIZE = "SELECT pg_relation_size('weft_claims')"
COUNTED = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'weft_claims'"


def measure(arguments: argparse.Namespace) -> Report:
    with postgres(autovacuum="on") as server:
        store = open_store(server.create_database())
        fill(store, arguments.claims)
        pass_context = context()
        with plain_connection(store) as connection:

            def value(query: str) -> int:
                row = connection.execute(query).fetchone()
                assert row is not None
                return int(row[0])

            connection.execute("CHECKPOINT")
            renew(store, pass_context, arguments.claims)
            size_before = value(SIZE)
            connection.execute("SELECT pg_stat_reset_single_table_counters('weft_claims'::regclass)")
            wal_before = value("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")
            for _ in range(arguments.passes):
                renew(store, pass_context, arguments.claims)
            wal = value("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')") - wal_before
            size = value(SIZE)
            # The sessions of the pool report what they did when they end, or after a while.
            store.database.dispose()
            wait_until(
                lambda: value(COUNTED) >= 0.9 * arguments.claims * arguments.passes, what="the statistics of the passes"
            )
            counted = connection.execute(COUNTED).fetchone()
            assert counted is not None
            updated, hot = counted
    renewals = arguments.claims * arguments.passes
    what = f"{arguments.passes} renewal passes over {arguments.claims:,} claims"
    return Report(
        name="renewal_writes",
        rows=[
            Row(
                name="renewal_wal", what=f"{what}: WAL a renewal", reference="-", value=round(wal / renewals, 1),
                unit="bytes", bound="at most", goal=110,
            ),
            Row(
                name="renewal_hot", what=f"{what}: heap-only updates", reference="-",
                value=round(100 * hot / updated, 2), unit="%", bound="at least", goal=99,
            ),
            Row(
                name="renewal_size", what=f"{what}: size of the table afterwards", reference="before",
                value=round(size / size_before, 3), unit="x", bound="at most", goal=1.1,
                ours=size / 1e6, theirs=size_before / 1e6, measured_in="MB",
            ),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--claims", type=int, default=10_000)
    main("renewal_writes", measure, parser)
