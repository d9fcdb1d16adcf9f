"""The ledger, outside the product: a file to which processes append one JSON line for each thing that happened.

Each line is one write to a file opened for appending, so lines of processes that are killed are there whole or not at
all, and the order of the file is the order in which things happened.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

VARIABLE = "FAULTS_LEDGER"


class Ledger:
    """Lines of facts; each has its time by this machine's clock, and its process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def from_environment(cls) -> Self:
        return cls(Path(os.environ[VARIABLE]))

    def note(self, **facts: Any) -> None:
        line = json.dumps({"at": time.time(), "pid": os.getpid(), **facts}).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def lines(self, since: int = 0) -> Iterator[dict[str, Any]]:
        """The lines from this position on."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(since)
            for line in file:
                yield json.loads(line)

    @property
    def end(self) -> int:
        """The position behind the last line."""
        return self.path.stat().st_size if self.path.exists() else 0
