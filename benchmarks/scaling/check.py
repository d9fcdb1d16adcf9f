"""The real passes once over a store of full size, beside what the model says of them, for checked.json.

python -m benchmarks.scaling.check [--claims 1000000] [--engines 50] [--write]

Compares processor time and time on the clock. The model is given this machine's cores for store and passes together.
Takes several minutes and 3 GB of disk. --write keeps the result in benchmarks/scaling/checked.json.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measuring import machine
from benchmarks.renewal import context, renew
from benchmarks.scaling.calibrate import PATIENT, Meter, disown, reclaim, target_of
from benchmarks.scaling.cores import Cores
from benchmarks.scaling.costs import Costs, Work, read_costs
from benchmarks.scaling.fleet import Machines
from benchmarks.stores import fill, open_store, postgres
from weft_tasks.errors import StoreUnavailable
from weft_tasks.results import ReclaimStatus
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.workflows import MOST_CANDIDATES
from weft_tasks.testing.local_postgres import LocalPostgres

CHECKED = Path(__file__).with_name("checked.json")


def check(claims: int, engines: int, costs: Costs) -> dict[str, Any]:
    orphans, most = claims // engines, min(claims, MOST_CANDIDATES)
    with postgres(shared_buffers="1GB") as server:
        url = server.create_database()
        store = open_store(url, **PATIENT)
        ids = fill(store, claims, engines=engines)
        renew(store, context(), claims)
        what = f"renewal pass, {claims:,} claims"
        rows = [_row(server, store, what, _renew(store, claims), [costs.renewal * claims])]
        store.engines.stop(ids[0])
        planned = [costs.waiting * orphans, costs.listed * orphans, costs.counted * claims, costs.move * orphans]
        what = f"reclaim pass, the {orphans:,} of one engine of {engines}"
        rows.append(_row(server, store, what, _reclaim(store, orphans), planned))
        disown(store)
        listing = [costs.waiting * claims, costs.listed * most]
        target = target_of(store)
        what = f"list and plan, {claims:,} wait"
        rows.append(_row(server, store, what, target.list_reclaim_candidate_workflow_ids, listing))
        in_time = _can_list_with_defaults(url)
        what = f"reclaim pass, {claims:,} wait"
        rows.append(_row(server, store, what, _reclaim(store, most), [*listing, costs.move * most]))
        store.database.dispose()
    return {
        "command": f"python -m benchmarks.scaling.check --claims {claims} --engines {engines}",
        "machine": machine(),
        "rows": rows,
        "listed_within_default_statement_timeout": in_time,
    }


def _row(
    server: LocalPostgres, store: Store, what: str, call: Callable[[], object], steps: Sequence[Work]
) -> dict[str, Any]:
    """The model's steps come one after the other, as in the pass."""
    with Meter(server, store) as meter:
        call()
    cores = Cores(os.cpu_count() or 1)
    both = Machines(store=cores, maintenance=cores, width=Settings().pool_width)
    clock = 0.0
    for step in steps:
        clock = both.spend(clock, step, 0)
    modelled = sum(steps, Work(client_s=0.0, server_s=0.0))
    return {
        "what": what,
        "processor_s": round(meter.spent.client_s + meter.spent.server_s, 2),
        "processor_model_s": round(modelled.client_s + modelled.server_s, 2),
        "clock_s": round(meter.seconds, 2),
        "clock_model_s": round(clock, 2),
        "log_mb": round(meter.spent.log_bytes / 1e6, 1),
        "log_model_mb": round(modelled.log_bytes / 1e6, 1),
    }


def _renew(store: Store, count: int) -> Callable[[], object]:
    return lambda: renew(store, context(), count)


def _reclaim(store: Store, count: int) -> Callable[[], object]:
    def run() -> None:
        result = reclaim(store)
        assert result.count(ReclaimStatus.RECLAIMED) == count, result.counts

    return run


def _can_list_with_defaults(url: str) -> bool:
    """Whether the list of all comes within the statement timeout that is the default."""
    hasty = Store.open(replace(Settings(database_url=url, **PATIENT), statement_timeout=Settings().statement_timeout))
    try:
        return bool(hasty.workflows.list_reclaim_candidates())
    except StoreUnavailable:
        return False
    finally:
        hasty.database.dispose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=1_000_000)
    parser.add_argument("--engines", type=int, default=50)
    parser.add_argument("--write", action="store_true", help="keep it in checked.json")
    arguments = parser.parse_args()
    found = json.dumps(check(arguments.claims, arguments.engines, read_costs()), indent=2)
    print(found)
    if arguments.write:
        CHECKED.write_text(found + "\n", encoding="utf-8")
