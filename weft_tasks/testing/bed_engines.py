"""The engines of a bed: rows in its store and runners in this process, one turn at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import delete, insert

from weft_tasks.store import Store
from weft_tasks.store.tables import engine_types
from weft_tasks.testing.bed_time import Beat
from weft_tasks.workflows.registry import Registry
from weft_tasks.workflows.runner import TurnRunner

SLOTS = 4


@dataclass(slots=True, kw_only=True, eq=False)
class BedEngine:
    """An engine as its bed knows it: which code it has, and what it has in hand."""

    id: str
    registry: Registry
    runner: TurnRunner
    in_hand: list[str] = field(default_factory=list)
    told: dict[str, frozenset[int]] | None = None
    """The types and versions that its rows name; None before it is registered."""

    @property
    def beat(self) -> Beat:
        return Beat(engine_id=self.id, free_slots=max(SLOTS - len(self.in_hand), 0), in_hand=tuple(self.in_hand))

    def can_run(self, type_name: str, version: int) -> bool:
        return version in self.registry.versions.get(type_name, ())

    def make_known(self, store: Store) -> None:
        """Write its rows, or bring them up to what has been registered since."""
        versions = dict(self.registry.versions)
        if versions == self.told:
            return
        if self.told is None:
            store.engines.register(
                self.id, node=self.id, host="bed", pid=0, types=versions, versions=versions, slots=SLOTS
            )
        else:
            _rewrite_types(store, self.id, versions)
        self.told = versions


def _rewrite_types(store: Store, engine_id: str, versions: Mapping[str, frozenset[int]]) -> None:
    rows = [
        {"engine_id": engine_id, "type": name, "version": version}
        for name, numbers in versions.items()
        for version in sorted(numbers)
    ]
    with store.database.transaction() as connection:
        connection.execute(delete(engine_types).where(engine_types.c.engine_id == engine_id))
        connection.execute(insert(engine_types), rows)
