"""What the fleet has counted, as rows that every process adds to: their sum is right however processes come and go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from sqlalchemy import select

from weft_tasks.errors import StoreUnavailable
from weft_tasks.store.database import Database
from weft_tasks.store.tables import counters

Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a counter, and its labels sorted by their names."""


class Counters:
    """The verbs on the counters of the fleet. Each is one statement and raises StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, counted: Mapping[Series, float]) -> bool:
        """Add to the rows, and make those that are missing: all of it in one statement, or nothing.

        False means that it is not known whether the rows have it: the commit was sent and not answered. Raises
        StoreUnavailable when they certainly do not.
        """
        if not counted:
            return True
        is_sent = False
        # By their keys: two processes that add to the same rows in another order would wait for each other.
        rows = [
            {"name": name, "labels": json.dumps(dict(labels)), "value": value}
            for (name, labels), value in sorted(counted.items())
        ]
        try:
            with self._database.transaction() as connection:
                adding = self._database.insert_into(counters).values(rows)
                connection.execute(
                    adding.on_conflict_do_update(
                        index_elements=[counters.c.name, counters.c.labels],
                        set_={"value": counters.c.value + adding.excluded.value},
                    )
                )
                is_sent = True
        except StoreUnavailable:
            if not is_sent:
                raise
            return False
        return True

    def read(self) -> Mapping[Series, float]:
        """Every counter there is."""
        with self._database.reading() as connection:
            rows = connection.execute(select(counters)).all()
        return {(row.name, tuple(sorted(json.loads(row.labels).items()))): row.value for row in rows}
