"""One client process: sends its share of signals and updates to random workflows, and writes down what it was told.

python -m benchmarks.exactly_once.client NUMBER SEED WORKFLOWS SIGNALS UPDATES RECEIPTS
"""

from __future__ import annotations

import json
import random
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.exactly_once.app import NAMES, weft
from weft_tasks.handles import UpdateHandle
from weft_tasks.testing import waiting

GIVE_UP_AFTER = timedelta(seconds=120)
persistently = partial(waiting.persistently, timeout=GIVE_UP_AFTER)


def main(number: int, seed: int, workflows: int, signals: int, updates: int, receipts: Path) -> None:
    rng = random.Random(seed * 1000 + number)
    kinds = ["signal"] * signals + ["update"] * updates
    rng.shuffle(kinds)
    pending: list[tuple[str, str, UpdateHandle]] = []
    with receipts.open("w") as out:
        for index, kind in enumerate(kinds):
            workflow_id, key = f"w{rng.randrange(workflows)}", f"{number}-{index}"
            if kind == "signal":
                name = rng.choice(NAMES)
                receipt = persistently(lambda w=workflow_id, n=name, k=key: weft.signal(w, n, k, key=k))
                note(out, kind=kind, workflow=workflow_id, name=name, key=key, number=receipt.number)
            else:
                pending.append(
                    (workflow_id, key, persistently(lambda w=workflow_id, k=key: weft.update(w, "add", k, key=k)))
                )
        for workflow_id, key, handle in pending:
            answer = persistently(lambda h=handle: h.result(timeout=GIVE_UP_AFTER))
            note(out, kind="update", workflow=workflow_id, key=key, answer=answer)


def note(out: Any, **facts: Any) -> None:
    out.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:6]), receipts=Path(sys.argv[6]))
