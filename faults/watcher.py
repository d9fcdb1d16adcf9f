"""Who looks on: a few times a second it reads, past the product, who is due, who beats and who is deaf.

It needs its own look because the store keeps no trace of how long a workflow was idle, or when an engine last beat
before it lost a claim.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Self

from sqlalchemy import select

from faults.world import World
from weft_tasks.errors import StoreUnavailable
from weft_tasks.store.tables import engines, workflows

PAUSE_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time, by this machine's clock, in which a workflow was due and the same turn stood before it."""

    workflow: str
    turn: int
    began: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """An engine as one look saw it; `heartbeat_at` in seconds of the database's clock."""

    seen: float
    engine: str
    node: str
    status: str
    heartbeat_at: float
    is_deaf: bool


@dataclass(slots=True)
class Seen:
    """What was seen, and how often the store gave no answer."""

    stretches: list[Stretch] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)
    unanswered: int = 0


class Watcher:
    """Looks while the context lasts; `seen` is complete after it."""

    def __init__(self, world: World, prefix: str) -> None:
        self._world, self._prefix = world, prefix
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="watcher", daemon=True)
        self._due: dict[tuple[str, int], tuple[str, float]] = {}
        self.seen = Seen()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join(30)
        self._close_all(time.time())

    def _look_on(self) -> None:
        while not self._over.wait(PAUSE_S):
            try:
                self._look()
            except StoreUnavailable:
                self.seen.unanswered += 1

    def _look(self) -> None:
        now = time.time()
        with self._world.weft.store.database.reading() as connection:
            rows = connection.execute(select(engines)).all()
            due = connection.execute(
                select(workflows.c.id, workflows.c.run_id, workflows.c.turn, workflows.c.not_before_at).where(
                    workflows.c.due,
                    workflows.c.status == "running",
                    workflows.c.id.startswith(self._prefix + "/", autoescape=True),
                )
            ).all()
        self.seen.beats.extend(
            Beat(
                seen=now,
                engine=row.id,
                node=row.node.partition("@")[0],
                status=row.status,
                heartbeat_at=row.heartbeat_at / 1000,
                is_deaf=row.deaf,
            )
            for row in rows
        )
        current = {(row.run_id, row.turn): row.id for row in due if (row.not_before_at or 0) / 1000 <= now}
        for key in [key for key in self._due if key not in current]:
            self._close(key, now)
        for key, id in current.items():
            self._due.setdefault(key, (id, now))

    def _close(self, key: tuple[str, int], now: float) -> None:
        id, began = self._due.pop(key)
        self.seen.stretches.append(Stretch(workflow=id, turn=key[1], began=began, ended=now))

    def _close_all(self, now: float) -> None:
        for key in list(self._due):
            self._close(key, now)
