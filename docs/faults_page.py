"""Writes docs/faults.md from the cases of the fault bench: `python docs/faults_page.py`.

The page is kept in the repository, where it is read too; a test fails while it is not as this writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from faults.case import BOTH, Case  # noqa: E402
from faults.cases import ALL, GROUPS  # noqa: E402
from faults.checks import SLACK, sentences  # noqa: E402
from faults.schedule import kinds  # noqa: E402

PAGE = Path(__file__).parent / "faults.md"

INTRODUCTION = """\
# Faults

<!-- Written by docs/faults_page.py from the cases in faults/. -->

What the fault bench does to a deployment, and what is expected of it. The bench has real processes: three engines, a
worker for maintenance, two beats, Redis, and PostgreSQL or SQLite. T is 4 s in it, R 1 s, G 2 s. Three client processes
start workflows that take signals and updates, wait for timers, call tasks and start children, and keep a receipt for
everything that was accepted. Each side effect is a line in a ledger outside the product, with engine, epoch and time.
Nothing that the product says about itself counts.

<!-- not run: the cases take twenty minutes -->
```sh
make faults                                # every case, one after the other, about twenty minutes
make faults CASE=engine-frozen             # one
make faults SEED=7 DATABASE=sqlite         # a mixed schedule: the same seed draws the same one
make soak                                  # twenty minutes with a fault every ten seconds, and what grew
```

Each run ends with a report, as text and in `var/faults/` as JSON: what was done to the system and when, what was
accepted, what became of it, the longest recovery, and every check. The logs of a run that does not hold are kept there.

## Checked after every run

"""


ELSEWHERE = """
## What is shown elsewhere

| what | where |
|---|---|
| every order of the statements of two actors, and orders of three drawn from a seed, on both databases | `tests/race` |
| the store against a small model, with crashes at any moment | `tests/property/test_ownership.py` |
| messages that strangers wrote | `tests/property/test_forged_messages.py` |
| hostile ids, names and payloads | `tests/property/test_hostile_input.py` |
| pickle, garbage, lost and doubled messages on real queues | `tests/cluster/standing/test_messages.py` |
| an owner killed at each moment of a turn, in the middle of its code | `tests/cluster/worst_moments` |
| damaged rows, one column after the other | `tests/workflows/test_damaged_rows.py` |
| two versions side by side | `tests/cluster/test_rolling_deploy.py`, `tests/cluster/releases` |
"""


def page() -> str:
    return "".join(_lines())


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    for sentence in sentences():
        yield f"- {sentence[0].upper()}{sentence[1:]}.\n"
    yield (
        "\nA workflow's bound is T + G + 3R, 9 s here, unless its case says otherwise, and "
        f"{SLACK.total_seconds():g} s for a pass and a busy machine. Times in which nobody could work, because Redis "
        "was away for example, do not count.\n"
    )
    for group in GROUPS:
        yield f"\n## {group.group}\n\n| case | what is expected |\n|---|---|\n"
        for case in group.all:
            yield f"| `{case.name}` | {case.expected}{_note(case)} |\n"
    yield "\n## The mixed schedule\n\nDrawn from these, one after the other and on top of each other:\n\n"
    for kind in kinds():
        yield f"- {kind}\n"
    yield f"\n{len(ALL)} cases in all.\n{ELSEWHERE}"


def _note(case: Case) -> str:
    return "" if case.databases == BOTH else f" ({_NAMES[case.databases[0]]} only)"


_NAMES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
