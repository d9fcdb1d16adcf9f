"""The peak memory of a renewal pass over 100,000 claims, beyond what the process has when it is idle.

python -m benchmarks.memory [--claims 100000]

In a process of its own, which has run a pass over few claims before: what it has loaded by then is not the pass's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.measuring import Report, Row, main
from benchmarks.stores import fill, open_store, postgres

PASS = """
import gc, json, resource, sys
from benchmarks.renewal import context, renew
from benchmarks.stores import open_store

def peak_kb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

small, large, count = sys.argv[1:]
pass_context = context()
renew(open_store(small), pass_context, 1000)
gc.collect()
before = peak_kb()
renew(open_store(large), pass_context, int(count))
print(json.dumps({"idle_kb": before, "peak_kb": peak_kb()}))
"""


def measure(arguments: argparse.Namespace) -> Report:
    with postgres() as server:
        urls = []
        for count in (1000, arguments.claims):
            urls.append(server.create_database())
            store = open_store(urls[-1])
            fill(store, count)
            store.database.dispose()
        done = subprocess.run(
            [sys.executable, "-c", PASS, *urls, str(arguments.claims)], check=True, capture_output=True, text=True
        )
    found = json.loads(done.stdout)
    return Report(
        name="memory",
        rows=[
            Row(
                name="memory",
                what=f"peak memory of a renewal pass over {arguments.claims:,} claims, beyond idle",
                reference="-",
                value=round((found["peak_kb"] - found["idle_kb"]) / 1024, 1),
                unit="MB",
                bound="at most",
                goal=60,
            )
        ],
        details=found,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=100_000)
    main("memory", measure, parser)
