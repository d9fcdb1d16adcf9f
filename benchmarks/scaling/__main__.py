"""A fleet in virtual time: 1,000,000 claims on 200 engines, with crashes and deploys.

python -m benchmarks.scaling [--claims 1000000] [--engines 200] [--shards 8] [--cores 8] [--docs]

The reclaim pass is the real one, over a store in memory that takes the time that benchmarks/scaling/costs.json says;
`python -m benchmarks.scaling.calibrate` measures that. Needs no server. Writes var/benchmarks/scaling.json and prints a
summary; --docs also draws the plots of docs/scaling.md and writes its tables. Some minutes and 2 GB at full size.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.measuring import REPORTS
from benchmarks.scaling.costs import read_costs
from benchmarks.scaling.scenarios import report_of

PICTURES = Path("docs/images/scaling")
PAGE = Path("docs/scaling.md")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--claims", type=int, default=1_000_000)
    parser.add_argument("--engines", type=int, default=200)
    parser.add_argument("--shards", type=int, default=8, help="each run is made with one shard and with these")
    parser.add_argument("--cores", type=float, default=8, help="of the store")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--docs", action="store_true", help="draw the plots and write the tables of docs/scaling.md")
    arguments = parser.parse_args()
    report = report_of(
        arguments.claims, arguments.engines, arguments.shards, arguments.cores, arguments.seed, read_costs()
    )
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / "scaling.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for run in report["runs"]:
        recovery = ", ".join(f"{name} {value} s" for name, value in run["recovery_s"].items())
        print(
            f"{run['name']}, {run['shards']} shards: {run['recovered']:,} recovered, {run['waiting']} wait; {recovery}"
        )
    if arguments.docs:
        from benchmarks.scaling.page import write

        write(report, PAGE, PICTURES)


if __name__ == "__main__":
    main()
