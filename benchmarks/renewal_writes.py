"""What renewals write, and what each setting of `weft_claims` is worth.

python -m benchmarks.renewal_writes [--passes 20] [--claims 10000] [--no-settings]

WAL bytes for each renewal, the share of heap-only updates, and the size of the table: as the migration makes it, and
beside it with one setting changed, each in a database of its own. The engines beat before each pass, so that every
renewal writes a new expiry. The WAL is measured over passes after a checkpoint and a first pass that pays for the
full-page images.

Then twice as many passes, with one claim in twenty deleted and another one made before each, as workflows that end and
start do: what they leave is autovacuum's to clean up. It looks every second here instead of every minute, because the
passes follow each other at once instead of every five seconds, and is waited for after as many passes as a minute has.
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
VACUUMED_EVERY = 12
"""Passes until autovacuum has come by again: those that a minute has."""
WORTH: tuple[tuple[str, str, str, str, str, Bound, float], ...] = (
    ("renewal_wal_fillfactor_100", "fillfactor 50: WAL a renewal", "fillfactor 100", "wal", "bytes", "at least", 2),
    ("renewal_size_fillfactor_70", "fillfactor 50: size of the table", "fillfactor 70", "mb", "MB", "at least", 1.1),
    (
        "renewal_wal_index", "no index on expires_at: WAL a renewal", "an index on expires_at", "wal", "bytes",
        "at least", 2,
    ),
    ("renewal_wal_bucket", "the column bucket: WAL a renewal", "no bucket", "wal", "bytes", "at most", 1.1),
    (
        "renewal_size_no_autovacuum", "autovacuum as it is: size of the table when claims come and go",
        "no autovacuum", "mb_churned", "MB", "at least", 1.5,
    ),
    (
        "renewal_size_more_autovacuum", "autovacuum as it is: size of the table when claims come and go",
        "more autovacuum", "mb_churned", "MB", "at most", 1.5,
    ),
)  # fmt: skip
"""What is compared: name, what it shows, with which table, which figure of `Written`, its unit, bound and goal."""
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
        # A look at the workflows, at whichever moment it comes, would write half as much as the renewals.
        connection.execute("ALTER TABLE weft_workflows SET (autovacuum_enabled = false)")
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

    def churn(self, passes: int, *, vacuumed: bool) -> None:
        """Passes between which claims here and there on the pages end, and as many begin."""
        for number in range(1, passes + 1):
            self._connection.execute(REPLACE, {"n": str(self._passes), "count": self.count // REPLACED})
            self.renew()
            if vacuumed and number % VACUUMED_EVERY == 0:
                self._wait_for_autovacuum()

    def _wait_for_autovacuum(self) -> None:
        visits = "SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = 'weft_claims'"
        self.updates()
        before = self._value(visits)
        wait_until(lambda: self._value(visits) > before, what="autovacuum")

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


def write(server: LocalPostgres, name: str, arguments: argparse.Namespace, *, churn: bool) -> Written:
    store = open_store(server.create_database())
    with plain_connection(store) as connection:
        claims = Claims(store, connection, arguments.claims, CHANGED[name])
        claims.renew()
        mb_before, (updated_before, hot_before) = claims.mb(), claims.updates()
        wal_before = claims.wal()
        claims.renew(arguments.passes)
        wal, mb, (updated, hot) = claims.wal() - wal_before, claims.mb(), claims.updates()
        if churn:
            claims.churn(2 * arguments.passes, vacuumed=name != "no autovacuum")
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
        found = {name: write(server, name, arguments, churn=arguments.settings and name in CHURNED) for name in names}
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
        rows=rows + (_worth(found) if arguments.settings else []),
        details={name: asdict(written) for name, written in found.items()},
    )


def _worth(found: Mapping[str, Written]) -> list[Row]:
    """What each setting is worth: `at least` so many times less than without it, `at most` so many times as much."""
    rows = []
    for name, what, other, figure, unit, bound, goal in WORTH:
        ours, theirs = getattr(found[MIGRATED], figure), getattr(found[other], figure)
        rows.append(
            Row(
                name=name,
                what=what,
                reference=other,
                value=round(ours / theirs if bound == "at most" else theirs / ours, 3),
                unit="x",
                bound=bound,
                goal=goal,
                ours=ours,
                theirs=theirs,
                measured_in=unit,
            )
        )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--claims", type=int, default=10_000)
    parser.add_argument("--no-settings", dest="settings", action="store_false", help="only the table as it is")
    main("renewal_writes", measure, parser)
