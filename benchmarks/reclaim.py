"""Reclaiming 10,000 orphans to three engines against one set-based statement that does the same.

python -m benchmarks.reclaim [--rounds 3] [--orphans 10000]

Ours is the whole pass: it lists the orphans, moves each under its own condition and with its own outcome, and hands a
message for each due one to a dispatcher that only counts them. The reference moves them all, round robin over the live
engines, with claims and history, in one transaction, and reads back what it moved.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from datetime import timedelta
from typing import Any

import psycopg
from sqlalchemy import text

from benchmarks.measuring import Report, Row, compared, interleave, main, parser_of
from benchmarks.renewal import context
from benchmarks.stores import TYPE, fill, open_store, plain_connection, postgres, tidy
from weft_tasks.passes.reclaim import reclaim_claims
from weft_tasks.results import ReclaimStatus
from weft_tasks.store import Store
from weft_tasks.store.targets import StoreReclaim

LIVE = 3
REFERENCE = """
WITH targets AS (SELECT id, row_number() OVER () - 1 AS n FROM weft_engines WHERE status = 'live'),
orphans AS (
    SELECT id, row_number() OVER (ORDER BY id) AS n
    FROM (
        SELECT w.id FROM weft_workflows AS w JOIN weft_engines AS e ON e.id = w.engine_id
        WHERE w.status = 'running' AND e.status = 'stopped' ORDER BY w.id FOR UPDATE OF w
    ) AS locked
),
moved AS (
    UPDATE weft_workflows AS w SET engine_id = t.id, epoch = w.epoch + 1, attempt_open = false, dispatches = 0,
        unanswered = 0, dispatched_witnessed = 0, deposed_engine_id = w.engine_id, deposed_witnessed = 0
    FROM orphans AS o, targets AS t WHERE w.id = o.id AND t.n = o.n % 3
    RETURNING w.id, w.run_id, w.engine_id, w.epoch, w.turn
),
claimed AS (
    UPDATE weft_claims AS c SET engine_id = m.engine_id, epoch = m.epoch, expires_at = 0, claimed_at = 0
    FROM moved AS m WHERE c.workflow_id = m.id
),
noted AS (
    INSERT INTO weft_history (at, workflow_id, run_id, event, engine_id, epoch, detail)
    SELECT 0, id, run_id, 'taken-over', engine_id, epoch, '{}' FROM moved
)
SELECT * FROM moved
"""


class Orphans:
    """A store whose workflows belong to an engine that has stopped, and are due."""

    def __init__(self, store: Store, count: int) -> None:
        self.store, self.count = store, count
        fill(store, count, engines=1)
        store.engines.stop("engine-0")
        for number in range(1, LIVE + 1):
            store.engines.register(f"live-{number}", node=f"live{number}", host="here", pid=1, types=[TYPE], slots=8)

    def orphan(self) -> None:
        """Back to the stopped engine, all due."""
        with self.store.database.transaction() as connection:
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("UPDATE weft_workflows SET engine_id = 'engine-0', epoch = 1, due = true"))
            connection.execute(text("UPDATE weft_workflows SET dispatched_witnessed = 0, deposed_engine_id = NULL"))
            connection.execute(text("UPDATE weft_claims SET engine_id = 'engine-0', epoch = 1"))
            connection.execute(text("DELETE FROM weft_history"))
        tidy(self.store)
        for number in range(1, LIVE + 1):
            self.store.engines.heartbeat(f"live-{number}", free_slots=8, in_hand=[])


def reclaim(orphans: Orphans, sent: list[str | None]) -> None:
    store = orphans.store

    def send_turn(message: Any) -> bool:
        sent.append(message.engine_id)
        return True

    target = StoreReclaim(
        workflows=store.workflows,
        claims=store.claims,
        engines=store.engines,
        send_turn=send_turn,
        rng=random.Random(1),
    )
    result = reclaim_claims(target, context())
    assert result.count(ReclaimStatus.RECLAIMED) == orphans.count, result.counts


def set_based(connection: psycopg.Connection[Any], count: int) -> None:
    assert len(connection.execute(REFERENCE).fetchall()) == count


def measure(arguments: argparse.Namespace) -> Report:
    with postgres() as server:
        store = open_store(
            server.create_database(), claim_ttl=timedelta(minutes=10), renew_interval=timedelta(minutes=1)
        )
        orphans = Orphans(store, arguments.orphans)
        sent: list[str | None] = []

        def ours() -> None:
            sent.clear()
            reclaim(orphans, sent)

        with plain_connection(store) as connection:
            spent = interleave(
                {"ours": ours, "reference": lambda: set_based(connection, arguments.orphans)},
                rounds=arguments.rounds,
                before=orphans.orphan,
            )
        store.database.dispose()
    loads = Counter(sent)
    share = arguments.orphans / LIVE
    uneven = max(abs(loads[f"live-{number}"] - share) for number in range(1, LIVE + 1)) / share
    what = f"reclaim of {arguments.orphans:,} orphans to {LIVE} engines"
    return Report(
        name="reclaim",
        rows=[
            compared(
                spent,
                name="reclaim",
                what=what,
                reference="one set-based statement that does the same",
                bound="at most",
                goal=5,
            ),
            Row(
                name="reclaim_dispatched", what=f"{what}: dispatched", reference="all", value=len(sent), unit="",
                bound="exactly", goal=arguments.orphans,
            ),
            Row(
                name="reclaim_even", what=f"{what}: farthest from an even share", reference="-",
                value=round(100 * uneven, 2), unit="%", bound="at most", goal=10,
            ),
        ],
        details={"loads": dict(loads)},
    )  # fmt: skip


if __name__ == "__main__":
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--orphans", type=int, default=10_000)
    main("reclaim", measure, parser)
