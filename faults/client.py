"""One client process: for some seconds it starts workflows, signals and updates them, and writes down what it was told.

python -m faults.client PREFIX NUMBER SEED SECONDS RATE RECEIPTS

What it does follows from the seed; how much of it fits into the seconds depends on the machine. It asks again, under
the same key, while the store does not answer.
"""

from __future__ import annotations

import os
import random
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from faults.app import NAMES, build
from faults.ledger import Ledger
from weft_tasks import Weft
from weft_tasks.handles import UpdateHandle
from weft_tasks.testing import waiting

COLLECTORS = 6
GIVE_UP_AFTER = timedelta(seconds=150)
persistently = partial(waiting.persistently, timeout=GIVE_UP_AFTER)
KINDS = ("signal",) * 12 + ("update",) * 3 + ("alarm",) + ("caller",)


class Client:
    """What it sends, and its receipts."""

    def __init__(self, weft: Weft, prefix: str, number: int, seed: int, receipts: Path) -> None:
        self._weft, self._prefix, self._number = weft, prefix, number
        self._rng = random.Random(f"{prefix} {seed} {number}")
        self._receipts = Ledger(receipts)
        self._pending: list[tuple[str, str, UpdateHandle]] = []
        self._sent = 0

    def run(self, seconds: float, rate: float) -> None:
        """Send, then wait for the answers to all updates."""
        for index in range(COLLECTORS):
            self._start("collector", self._collector(self._number, index))
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self._send(self._rng.choice(KINDS))
            time.sleep(self._rng.expovariate(rate))
        for workflow, key, handle in self._pending:
            answer = persistently(partial(handle.result, timeout=GIVE_UP_AFTER))
            self._receipts.note(kind="answer", workflow=workflow, key=key, answer=answer)

    def _collector(self, client: int, index: int) -> str:
        return f"{self._prefix}/collector-{client}-{index}"

    def _send(self, kind: str) -> None:
        self._sent += 1
        key = f"{self._number}-{self._sent}"
        # Somebody else's collectors too: client 0 has started its own before anybody sends.
        workflow = self._collector(self._rng.choice((0, self._number)), self._rng.randrange(COLLECTORS))
        if kind == "signal":
            name = self._rng.choice(NAMES)
            receipt = persistently(lambda: self._weft.signal_or_start("collector", workflow, name, key, key=key))
            self._receipts.note(kind="signal", workflow=workflow, name=name, key=key, number=receipt.number)
        elif kind == "update":
            workflow = self._collector(self._number, self._rng.randrange(COLLECTORS))
            handle = persistently(lambda: self._weft.update(workflow, "add", key, key=key))
            self._receipts.note(kind="update", workflow=workflow, key=key, number=handle.receipt.number)
            self._pending.append((workflow, key, handle))
        else:
            seconds = round(self._rng.uniform(0.5, 3), 2) if kind == "alarm" else None
            self._start(kind, f"{self._prefix}/{kind}-{key}", seconds)

    def _start(self, type_name: str, id: str, input: Any = None) -> None:
        persistently(lambda: self._weft.start(type_name, id, input, on_conflict="use-existing"))
        self._receipts.note(kind="start", type=type_name, workflow=id, input=input)


if __name__ == "__main__":
    prefix, number, seed, seconds, rate, receipts = sys.argv[1:]
    client = Client(build(os.environ), prefix, int(number), int(seed), Path(receipts))
    client.run(float(seconds), float(rate))
