"""The polls when little is due among many parked workflows, and a reclaim pass with nothing to reclaim.

python -m benchmarks.polls [--rounds 15] [--sizes 1000,10000,100000]

Ten workflows have a signal that they wait for, or an update. The lists of the polls are read as the passes read them;
waking ten workflows costs the same whatever is parked, and would hide the difference. All sizes are stores side by side
in one server, read in turn.
"""

from __future__ import annotations

import argparse
from functools import partial
from random import Random

from sqlalchemy import text

from benchmarks.measuring import Report, Row, compared, interleave, main, ms, parser_of
from benchmarks.renewal import context
from benchmarks.stores import fill, open_store, postgres, tidy
from weft_tasks.passes.reclaim import reclaim_claims
from weft_tasks.store import Store
from weft_tasks.store.targets import StoreReclaim

DUE = 10


def make_due(store: Store) -> None:
    """Signals and updates whose pushes were lost: they are there, and nobody was told."""
    step = "(SELECT count(*) FROM weft_workflows) / 10"
    is_picked = f"CAST(substr(id, 11) AS integer) % ({step}) = 0"
    picked = f"SELECT id, run_id, bucket FROM weft_workflows WHERE {is_picked} LIMIT {DUE}"
    with store.database.transaction() as connection:
        connection.execute(
            text(
                "INSERT INTO weft_signals (run_id, number, workflow_id, bucket, name, payload, is_failure, sent_at) "
                f"SELECT run_id, 1, id, bucket, 'go', 'null', :no, 0 FROM ({picked}) AS picked"
            ),
            {"no": False},
        )
        connection.execute(
            text(
                "INSERT INTO weft_updates "
                "(run_id, number, workflow_id, bucket, key, name, payload, status, begun, sent_at) "
                f"SELECT run_id, 2, id, bucket, id, 'ask', 'null', 'pending', 0, 0 FROM ({picked}) AS picked"
            )
        )


def poll_signals(store: Store) -> None:
    assert len(store.signals.list_ready()) == DUE


def poll_updates(store: Store) -> None:
    assert len(store.updates.list_held_with_pending()) == DUE


def reclaim_nothing(store: Store) -> None:
    target = StoreReclaim(
        workflows=store.workflows, claims=store.claims, engines=store.engines, send_turn=lambda _: True, rng=Random(1)
    )
    result = reclaim_claims(target, context())
    assert not result.outcomes, result.counts


def measure(arguments: argparse.Namespace) -> Report:
    sizes = [int(size) for size in arguments.sizes.split(",")]
    rows = []
    with postgres() as server:
        stores = {size: open_store(server.create_database()) for size in sizes}
        engines = {size: fill(store, size) for size, store in stores.items()}
        largest = stores[sizes[-1]]

        def beat() -> None:
            for engine_id in engines[sizes[-1]]:
                largest.engines.heartbeat(engine_id, free_slots=8, in_hand=[])

        idle = interleave({"ours": lambda: reclaim_nothing(largest)}, rounds=arguments.rounds, before=beat)
        for store in stores.values():
            make_due(store)
            tidy(store)
        for name, poll in (("signal", poll_signals), ("update", poll_updates)):
            spent = interleave(
                {str(size): partial(poll, store) for size, store in stores.items()}, rounds=arguments.rounds
            )
            rows += [
                compared(
                    {"ours": spent[str(size)], "reference": spent[str(sizes[0])]},
                    name=f"{name}_poll_{size}",
                    what=f"{name} poll, {DUE} due among {size:,} parked",
                    reference=f"the poll among {sizes[0]:,}",
                    bound="at most",
                    goal=2,
                )
                for size in sizes[1:]
            ]
        rows.append(
            Row(
                name="reclaim_idle",
                what=f"reclaim pass with nothing to reclaim, {sizes[-1]:,} live claims",
                reference="-",
                value=ms(idle["ours"]),
                unit="ms",
                bound="at most",
                goal=10,
            )
        )
        for store in stores.values():
            store.database.dispose()
    return Report(name="polls", rows=rows)


if __name__ == "__main__":
    parser = parser_of(__doc__, rounds=15)
    parser.add_argument("--sizes", default="1000,10000,100000")
    main("polls", measure, parser)
