"""What renewals write, and what each setting of `weft_claims` is worth.

python -m benchmarks.renewal_writes [--passes 20] [--claims 10000] [--no-settings]

WAL bytes for each renewal, the share of heap-only updates, and the size of the table: as the migration makes it, and
beside it with one setting changed, each in a database of its own. The engines beat before each pass, so that every
renewal writes a new expiry. The WAL is measured over passes after a checkpoint and a first pass that pays for the
full-page images.

Then twice as many passes, with one claim in twenty deleted and another one made before each, as workflows that end and
start do: what they leave is autovacuum's to clean up. It looks every second here instead of every minute, because the
passes follow each other at once instead of every five seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import psycopg

from benchmarks.measuring import Bound, Report, Row, main
from benchmarks.renewal import context, renew
from benchmarks.stores import fill, open_store, plain_connection, postgres
from weft_tasks.store import Store
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.waiting import wait_until

MIGRATED = "as migrated"
CHANGED = {
    MIGRATED: "",
    "fillfactor 100": "ALTER TABLE weft_claims SET (fillfactor = 100)",
    "fillfactor 70": "ALTER TABLE weft_claims SET (fillfactor = 70)",
    "an index on expires_at": "CREATE INDEX ix_expires_at ON weft_claims (expires_at)",
    "no bucket": "ALTER TABLE weft_claims DROP COLUMN bucket",
    "no autovacuum": "ALTER TABLE weft_claims SET (autovacuum_enabled = false)",
    "more autovacuum": "ALTER TABLE weft_claims"
    " SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0)",
}
CHURNED = (MIGRATED, "no autovacuum", "more autovacuum")
"""What autovacuum is worth shows where claims come and go."""
REPLACED = 20
"""One claim in so many is another one at the next pass."""
REPLACE = """
WITH ended AS (
    DELETE FROM weft_claims
    WHERE workflow_id IN (SELECT workflow_id FROM weft_claims ORDER BY md5(workflow_id || %(n)s) LIMIT %(count)s)
    RETURNING *
)
INSERT INTO weft_claims (workflow_id, engine_id, bucket, epoch, claimed_at, expires_at)
SELECT md5(workflow_id || %(n)s), engine_id, bucket, epoch, claimed_at, expires_at FROM ended
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of one table of claims."""

    wal: float
    """Bytes a renewal."""
    hot: float
    """The share of heap-only updates, in percent."""
    mb_before: float
    mb: float
    mb_churned: float | None


class Claims:
    """A store whose claims are renewed, and what PostgreSQL says of their table."""

    def __init__(self, store: Store, connection: psycopg.Connection[Any], count: int, change: str) -> None:
        self.store, self.count = store, count
        self._connection = connection
        self._engines = fill(store, count)
        self._passes = 0
        if change:
            connection.execute(change)
        # The rows anew, as the changed table has them.
        connection.execute("VACUUM FULL weft_claims")
        connection.execute("VACUUM (ANALYZE) weft_claims")
        connection.execute("CHECKPOINT")

    def renew(self, passes: int = 1) -> None:
        for _ in range(passes):
            for engine_id in self._engines:
                self.store.engines.heartbeat(engine_id, free_slots=8, in_hand=[])
            renew(self.store, context(), self.count)
            self._passes += 1

    def replace(self) -> None:
        """Claims here and there on the pages end, and as many begin."""
        self._connection.execute(REPLACE, {"n": str(self._passes), "count": self.count // REPLACED})

    def wal(self) -> int:
        return int(self._value("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))

    def mb(self) -> float:
        return round(int(self._value("SELECT pg_relation_size('weft_claims')")) / 1e6, 3)

    def updates(self) -> tuple[int, int]:
        """All so far, and those of them that were heap-only."""
        # The sessions of the pool report what they did when they end, or after a while.
        self.store.database.dispose()
        counted = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'weft_claims'"
        wait_until(lambda: self._value(counted) >= self._passes * self.count, what="the statistics of the passes")
        row = self._connection.execute(counted).fetchone()
        assert row is not None
        return row[0], row[1]

    def _value(self, query: str) -> Any:
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return row[0]


def write(server: LocalPostgres, change: str, arguments: argparse.Namespace, *, churn: bool) -> Written:
    store = open_store(server.create_database())
    with plain_connection(store) as connection:
        claims = Claims(store, connection, arguments.claims, change)
        claims.renew()
        mb_before, (updated_before, hot_before) = claims.mb(), claims.updates()
        wal_before = claims.wal()
        claims.renew(arguments.passes)
        wal, mb, (updated, hot) = claims.wal() - wal_before, claims.mb(), claims.updates()
        for _ in range(2 * arguments.passes if churn else 0):
            claims.replace()
            claims.renew()
        churned = claims.mb() if churn else None
    store.database.dispose()
    return Written(
        wal=round(wal / (arguments.claims * arguments.passes), 1),
        hot=round(100 * (hot - hot_before) / (updated - updated_before), 2),
        mb_before=mb_before,
        mb=mb,
        mb_churned=churned,
    )


def measure(arguments: argparse.Namespace) -> Report:
    names = CHANGED if arguments.settings else (MIGRATED,)
    with postgres(autovacuum="on", autovacuum_naptime="1s") as server:
        found = {
            name: write(server, CHANGED[name], arguments, churn=arguments.settings and name in CHURNED)
            for name in names
        }
    what = f"{arguments.passes} renewal passes over {arguments.claims:,} claims"
    ours = found[MIGRATED]
    rows = [
        Row(
            name="renewal_wal", what=f"{what}: WAL a renewal", reference="-", value=ours.wal,
            unit="bytes", bound="at most", goal=110,
        ),
        Row(
            name="renewal_hot", what=f"{what}: heap-only updates", reference="-", value=ours.hot,
            unit="%", bound="at least", goal=99,
        ),
        Row(
            name="renewal_size", what=f"{what}: size of the table afterwards", reference="before",
            value=round(ours.mb / ours.mb_before, 3), unit="x", bound="at most", goal=1.1,
            ours=ours.mb, theirs=ours.mb_before, measured_in="MB",
        ),
    ]  # fmt: skip
    return Report(
        name="renewal_writes",
        rows=rows + (_settings(found) if arguments.settings else []),
        details={name: asdict(written) for name, written in found.items()},
    )


def _settings(found: Mapping[str, Written]) -> list[Row]:
    """What each setting is worth: `at least` so many times less than without it, `at most` so many times as much."""
    wal, size = "WAL a renewal", "size of the table when claims come and go"

    def wal_row(name: str, what: str, other: str, bound: Bound, goal: float) -> Row:
        return _compared(f"renewal_wal_{name}", f"{what}: {wal}", other, bound, goal, "bytes", found, "wal")

    def size_row(name: str, other: str, bound: Bound, goal: float) -> Row:
        what = f"autovacuum as PostgreSQL has it: {size}"
        return _compared(f"renewal_size_{name}", what, other, bound, goal, "MB", found, "mb_churned")

    return [
        wal_row("fillfactor_100", "fillfactor 50", "fillfactor 100", "at least", 2),
        wal_row("fillfactor_70", "fillfactor 50", "fillfactor 70", "at least", 1.05),
        wal_row("index", "no index on expires_at", "an index on expires_at", "at least", 2),
        wal_row("bucket", "the column bucket", "no bucket", "at most", 1.05),
        size_row("no_autovacuum", "no autovacuum", "at least", 1.5),
        size_row("more_autovacuum", "more autovacuum", "at most", 1.3),
    ]


def _compared(
    name: str, what: str, other: str, bound: Bound, goal: float, unit: str, found: Mapping[str, Written], figure: str
) -> Row:
    ours, theirs = getattr(found[MIGRATED], figure), getattr(found[other], figure)
    return Row(
        name=name, what=what, reference=other, value=round(ours / theirs if bound == "at most" else theirs / ours, 3),
        unit="x", bound=bound, goal=goal, ours=ours, theirs=theirs, measured_in=unit,
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--claims", type=int, default=10_000)
    parser.add_argument("--no-settings", dest="settings", action="store_false", help="only the table as it is")
    main("renewal_writes", measure, parser)
