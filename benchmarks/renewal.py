"""A renewal pass, with an outcome for each claim, against one set-based UPDATE … RETURNING over the same rows.

python -m benchmarks.renewal [--rounds 7] [--sizes 1000,10000,100000]

Ours is the whole pass as a tick runs it: the list of claims is read from the store, sliced, renewed through the pool of
16, and every claim gets its outcome. The reference is given the claims, and fetches one row for each renewed one.
"""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

import psycopg

from benchmarks.measuring import Report, compared, interleave, main, parser_of
from benchmarks.stores import fill, open_store, plain_connection, postgres, tidy
from weft_tasks.passes.clock import SystemClock
from weft_tasks.passes.renewal import renew_claims
from weft_tasks.passes.sweep import PassContext
from weft_tasks.results import RenewalStatus
from weft_tasks.store import Store
from weft_tasks.store.targets import StoreRenewal

REFERENCE = """
UPDATE weft_claims AS c SET expires_at = e.heartbeat_at + 30000
FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS h (workflow_id, engine_id, epoch), weft_engines AS e
WHERE c.workflow_id = h.workflow_id AND c.engine_id = h.engine_id AND c.epoch = h.epoch AND e.id = c.engine_id
RETURNING c.workflow_id
"""


def context() -> PassContext:
    return PassContext(clock=SystemClock(), deadline=timedelta(minutes=5))


def renew(store: Store, pass_context: PassContext, count: int) -> None:
    """One pass; raises unless every claim was renewed."""
    result = renew_claims(StoreRenewal(store.claims), pass_context)
    assert result.count(RenewalStatus.RENEWED) == count, result.counts
    assert result.split_slices == 0, result.split_reason


def set_based(connection: psycopg.Connection[Any], claims: tuple[list[Any], ...], count: int) -> None:
    """The reference, for claims that it is given."""
    renewed = connection.execute(REFERENCE, claims).fetchall()
    assert len(renewed) == count


def claims_of(connection: psycopg.Connection[Any]) -> tuple[list[Any], ...]:
    rows = connection.execute("SELECT workflow_id, engine_id, epoch FROM weft_claims").fetchall()
    return tuple(list(column) for column in zip(*rows, strict=True))


def measure(arguments: argparse.Namespace) -> Report:
    rows = []
    with postgres() as server:
        store = open_store(server.create_database())
        pass_context = context()
        with plain_connection(store) as connection:
            for count in (int(size) for size in arguments.sizes.split(",")):
                fill(store, count)
                claims = claims_of(connection)

                def ours(count: int = count) -> None:
                    renew(store, pass_context, count)

                def reference(count: int = count, claims: tuple[list[Any], ...] = claims) -> None:
                    set_based(connection, claims, count)

                spent = interleave(
                    {"ours": ours, "reference": reference}, rounds=arguments.rounds, before=lambda: tidy(store)
                )
                rows.append(
                    compared(
                        spent,
                        name=f"renewal_{count}",
                        what=f"renewal pass, {count:,} claims, with an outcome for each",
                        reference="one set-based UPDATE … RETURNING",
                        bound="at most",
                        # At 1,000 the fixed cost of a pass shows; there is no goal for it, so this is generous.
                        goal=1.5 if count >= 10_000 else 3.0,
                    )
                )
        store.database.dispose()
    return Report(name="renewal", rows=rows)


if __name__ == "__main__":
    parser = parser_of(__doc__, rounds=7)
    parser.add_argument("--sizes", default="1000,10000,100000")
    main("renewal", measure, parser)
