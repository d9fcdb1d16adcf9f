"""What the package adds to the start of a process that loads Celery anyway.

python -m benchmarks.start_time [--rounds 9]

`import weft_tasks` against `import celery` with the names that any application uses, and `celery -A weft_tasks --help`
against `celery --help`; each in a new process, in turn. What the name `Weft` costs, which a worker needs and loads
when it is first used, is in the details.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.measuring import Report, Row, interleave, main, ms, parser_of

CELERY = "from celery import Celery; Celery"
PAIRS = {
    "import": (["-c", f"{CELERY}; import weft_tasks"], ["-c", CELERY], "import weft_tasks"),
    "weft": (["-c", f"{CELERY}; from weft_tasks import Weft"], ["-c", CELERY], "from weft_tasks import Weft"),
    "help": (
        ["-m", "celery", "-A", "weft_tasks", "--help"],
        ["-m", "celery", "--help"],
        "celery -A weft_tasks --help",
    ),
}


def run(words: Sequence[str]) -> None:
    subprocess.run([sys.executable, *words], check=True, capture_output=True)


def measure(arguments: argparse.Namespace) -> Report:
    rows, details = [], {}
    for name, (ours, theirs, shown) in PAIRS.items():
        spent = interleave(
            {"ours": lambda words=ours: run(words), "reference": lambda words=theirs: run(words)},  # type: ignore[misc]
            rounds=arguments.rounds,
        )
        added = [1000 * (a - b) for a, b in zip(spent["ours"], spent["reference"], strict=True)]
        if name == "weft":
            details["importing Weft adds ms"] = round(statistics.median(added), 1)
            continue
        rows.append(
            Row(
                name=f"start_{name}",
                what=f"{shown}: what it adds",
                reference="the same without weft_tasks",
                value=round(statistics.median(added), 1),
                unit="ms",
                bound="at most",
                goal=150,
                ours=ms(spent["ours"]),
                theirs=ms(spent["reference"]),
                measured_in="ms",
                spread=tuple(round(each, 1) for each in added),
            )
        )
    return Report(name="start_time", rows=rows, details=details)


if __name__ == "__main__":
    main("start_time", measure, parser_of(__doc__, rounds=9))
