"""Everything that is in the database, as plain rows: taken before a race, put back, and compared after it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

_RANDOM_ID = re.compile(r"\b[0-9a-f]{32}\b")


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of every table, by its name."""

    tables: Mapping[str, tuple[Mapping[str, Any], ...]]

    def changed_since(self, other: Rows) -> tuple[str, ...]:
        """The tables whose rows differ, in whatever order they were read."""
        return tuple(name for name in self.tables if _sorted(self.tables[name]) != _sorted(other.tables[name]))

    def all(self, table: str) -> list[SimpleNamespace]:
        """The rows of `weft_<table>`."""
        return [SimpleNamespace(**row) for row in self.tables[f"weft_{table}"]]

    def workflow(self, workflow_id: str = "w") -> SimpleNamespace:
        return next(row for row in self.all("workflows") if row.id == workflow_id)

    def engine(self, engine_id: str) -> SimpleNamespace:
        return next(row for row in self.all("engines") if row.id == engine_id)

    def claim(self, workflow_id: str = "w") -> SimpleNamespace | None:
        return next((row for row in self.all("claims") if row.workflow_id == workflow_id), None)

    def owner(self, workflow_id: str = "w") -> tuple[str | None, int]:
        """Who holds the workflow, under which epoch."""
        row = self.workflow(workflow_id)
        return row.engine_id, row.epoch

    def with_copies(self, workflow_id: str, *copies: str) -> Rows:
        """These rows, and the workflow once more under each of these ids, with a run of its own; no history."""
        return Rows(
            {
                name: (
                    *rows,
                    *(_renamed(row, copy) for copy in copies for row in rows if _belongs(row, workflow_id, name)),
                )
                for name, rows in self.tables.items()
            }
        )

    def known_ids(self) -> frozenset[str]:
        """The random ids in these rows."""
        return frozenset(_RANDOM_ID.findall(repr(self.tables)))

    def fingerprint(self, known_ids: Iterable[str]) -> str:
        """The rows as text that is the same for the same outcome: no sequence numbers, no order, no new random ids."""
        lines = [
            f"{table}: {sorted((column, value) for column, value in row.items() if (table, column) not in _SEQUENCES)}"
            for table, rows in self.tables.items()
            for row in rows
        ]
        return without_random_ids("\n".join(sorted(lines)), known_ids)


def _belongs(row: Mapping[str, Any], workflow_id: str, table: str) -> bool:
    key = "id" if table == "weft_workflows" else "workflow_id"
    return table != "weft_history" and row.get(key) == workflow_id


def _renamed(row: Mapping[str, Any], workflow_id: str) -> dict[str, Any]:
    fresh = {"workflow_id": workflow_id, "run_id": hashlib.md5(workflow_id.encode()).hexdigest()}
    if "workflow_id" not in row and "id" in row:
        fresh["id"] = workflow_id
    return {column: fresh.get(column, value) for column, value in row.items()}


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


_SEQUENCES = frozenset({("weft_history", "id")})


def without_random_ids(shown: str, known_ids: Iterable[str]) -> str:
    """`shown` with every random id that was made during a play replaced by a word."""
    known = frozenset(known_ids)
    return _RANDOM_ID.sub(lambda found: found.group() if found.group() in known else "a-new-id", shown)
