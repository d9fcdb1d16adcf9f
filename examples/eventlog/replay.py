"""The client of the demo, a process of its own: starts a workflow for each case, and sends the events in log order.

    python -m examples.eventlog.replay sample.csv --receipts receipts.csv

It knows neither engines nor faults. A store that does not answer is asked again, under the same id or key.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from examples.eventlog.app import weft
from examples.eventlog.log import EventLog, read_log
from weft_tasks import SignalReceipt, StoreUnavailable, WorkflowAlreadyExists
from weft_tasks.model import Json

T = TypeVar("T")

AHEAD = 150
"""So many cases are open before their first event: parked workflows, for an engine to lose."""
SLOW_CASES = 100
SLOW_WORK_MS = 150
"""About so many cases take long over each event, so that some engine always has a turn in hand."""
PATIENCE_S = 60.0
LONGEST_PAUSE_S = 2.0


def replay(log: EventLog, *, prefix: str, seconds: float) -> Iterator[SignalReceipt]:
    """Send the log, over at least `seconds`; yields the receipt of each event. Raises StoreUnavailable after a minute
    of asking."""
    openings, slow = _openings(log), frozenset(list(log.cases)[:: max(1, len(log.cases) // SLOW_CASES)])
    began = time.monotonic()
    for index, event in enumerate(log.events):
        for case_id in openings.get(index, ()):
            work_ms = SLOW_WORK_MS if case_id in slow else 0
            _start(prefix + case_id, {"events": len(log.cases[case_id]), "work_ms": work_ms})
        time.sleep(max(0.0, began + seconds * index / len(log.events) - time.monotonic()))
        yield _send(prefix + event.case_id, event.activity, key=f"line-{index}")


def _openings(log: EventLog) -> Mapping[int, Sequence[str]]:
    """The cases to start, by the event before which they are."""
    first: dict[str, int] = {}
    for index, event in enumerate(log.events):
        first.setdefault(event.case_id, index)
    firsts = list(first.values())
    openings: dict[int, list[str]] = {}
    for place, case_id in enumerate(first):
        openings.setdefault(firsts[max(0, place - AHEAD)], []).append(case_id)
    return openings


def _start(workflow_id: str, case: Json) -> None:
    def start() -> None:
        try:
            weft.start("case", workflow_id, input=case)
        except WorkflowAlreadyExists:
            # An earlier try arrived after all.
            return

    _until_answered(start)


def _send(workflow_id: str, activity: str, *, key: str) -> SignalReceipt:
    return _until_answered(lambda: weft.signal(workflow_id, "event", activity, key=key))


def _until_answered(call: Callable[[], T]) -> T:
    ends, pause = time.monotonic() + PATIENCE_S, 0.1
    while True:
        try:
            return call()
        except StoreUnavailable as error:
            if time.monotonic() > ends:
                raise
            print(f"asking again in {pause:g} s: {error}", file=sys.stderr)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="CSV: case_id,activity,timestamp")
    parser.add_argument("--receipts", type=Path, required=True, help="where to note what the store acknowledged")
    parser.add_argument("--prefix", default="", help="what the workflow ids begin with, before the case id")
    parser.add_argument("--seconds", type=float, default=0.0, help="take at least so long")
    options = parser.parse_args(arguments)
    log = read_log(options.log)
    # Line by line, so that the file says what was acknowledged however this process ends.
    with options.receipts.open("w", encoding="utf-8", newline="", buffering=1) as file:
        receipts = csv.writer(file)
        receipts.writerow(("case_id", "number"))
        for event, receipt in zip(log.events, replay(log, prefix=options.prefix, seconds=options.seconds), strict=True):
            receipts.writerow((event.case_id, receipt.number))


if __name__ == "__main__":
    main()
