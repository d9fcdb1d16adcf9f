"""The soak: rounds of work under a fault every ten seconds, and whether anything grew meanwhile.

What ended is purged soon after its round, so that tables can be flat. Each round is judged before its rows are gone.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self

import psutil
import redis

from faults.checks import Finding
from faults.scene import Scene
from faults.schedule import Entry, one
from faults.world import World
from weft_tasks.errors import StoreUnavailable
from weft_tasks.store.tables import metadata
from weft_tasks.testing.processes import LocalProcess

ROUND_S = 60.0
FAULT_EVERY_S = 10.0
SAMPLE_EVERY_S = 5.0
RETENTION_S = 150
SETTINGS: Mapping[str, Any] = {
    "weft_retention": RETENTION_S,
    "weft_history_retention": RETENTION_S,
    # Those of the bench's own task.
    "result_expires": RETENTION_S,
}
SHORTEST_S = 4 * RETENTION_S
GROWTH = 1.25
"""The median of the last third may be that much of the median of the second, ..."""
SLACK: Mapping[str, float] = {"MB": 15, "files": 12, "threads": 4, "connections": 15, "keys": 20, "rows": 150}
"""... and that much more, for what comes and goes with the workload and with processes that were just started again."""


@dataclass(slots=True)
class Sampler:
    """Memory, open files and threads of every process and server, connections, keys and rows, every few seconds."""

    world: World
    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(30)

    def flatness(self, lasted_s: float) -> Iterator[Finding]:
        """One finding for each kind of figure; none if it was too short for rows to be purged again."""
        if lasted_s < SHORTEST_S:
            return
        by_unit: dict[str, list[str]] = defaultdict(list)
        for name, values in self.samples.items():
            third = len(values) // 3
            unit = name.rpartition(" ")[2]
            if third < 2:
                continue
            before, after = median(values[third : 2 * third]), median(values[2 * third :])
            is_flat = after <= GROWTH * before + SLACK[unit]
            by_unit[unit] += [] if is_flat else [f"{name}: {before:g} became {after:g}"]
        for unit, grown in by_unit.items():
            yield Finding(check=f"flat at the end: {unit}", broken=tuple(grown))

    def figures(self) -> dict[str, Any]:
        """Of each figure the median of each third, and the largest."""
        shown = {}
        for name, values in sorted(self.samples.items()):
            third = max(len(values) // 3, 1)
            medians = [
                round(median(part), 1)
                for part in (values[:third], values[third : 2 * third], values[2 * third :])
                if part
            ]
            shown[name] = f"{' '.join(f'{value:g}' for value in medians)}, at most {max(values):g}"
        return shown

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_EVERY_S):
            for name, process in self.world.processes.items():
                self._of_family(name, process)
            self._of_family("redis", self.world.redis.process)
            if self.world.postgres is not None:
                self._of_family("postgres", self.world.postgres.process)
            with suppress(redis.RedisError), self.world.redis.client() as client:
                self.samples["redis keys"].append(client.dbsize())
            with suppress(StoreUnavailable):
                self._of_store()

    def _of_family(self, name: str, process: LocalProcess) -> None:
        """Memory is what is resident and no file's or shared segment's. A page that main and pool processes have shared
        since the fork counts in each: otherwise an engine would seem to grow by half when its collector first goes
        through all of its objects, and their pages become each process's own."""
        memory = files = threads = 0.0
        for member in _family(process):
            with suppress(psutil.Error):
                held = member.memory_info()
                memory += (held.rss - held.shared) / 1e6
                files += member.num_fds()
                threads += member.num_threads()
        if memory:
            self.samples[f"{name} MB"].append(round(memory, 1))
            self.samples[f"{name} open files"].append(files)
            self.samples[f"{name} threads"].append(threads)

    def _of_store(self) -> None:
        for table in metadata.tables:
            self.samples[f"{table} rows"].append(self.world.query(f"SELECT count(*) FROM {table}")[0][0])
        if self.world.postgres is not None:
            open_now = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'weft_tasks'"
            self.samples["postgres connections"].append(self.world.query(open_now)[0][0])


def _family(process: LocalProcess) -> list[psutil.Process]:
    """Asked of the system anew: what the process itself knows of its family belongs to the thread that kills it."""
    try:
        head = psutil.Process(process.pid)
        return [head, *head.children(recursive=True)]
    except psutil.Error:
        return []


def soak(world: World, seconds: float, seed: int) -> Iterator[tuple[Scene, float]]:
    """Each round with its time; the last one carries the figures and the findings about flatness."""
    rng = random.Random(f"soak {seed} {world.database}")
    ends = time.monotonic() + seconds
    with Sampler(world) as sampler:
        number = 0
        while time.monotonic() < ends:
            number += 1
            scene = Scene(world=world, prefix=f"soak-{number}", seed=seed + number)
            began = time.monotonic()
            with scene.workload(ROUND_S, rate=3):
                scene.play(_faults(rng, world.database))
            if time.monotonic() >= ends:
                scene.figures.update(sampler.figures())
                scene.findings = (*scene.findings, *sampler.flatness(seconds))
            yield scene, time.monotonic() - began


def _faults(rng: random.Random, database: str) -> tuple[Entry, ...]:
    """One every ten seconds."""
    entries = []
    for index in range(int(ROUND_S // FAULT_EVERY_S)):
        entry = one(rng, database, at=index * FAULT_EVERY_S + 1, longest=FAULT_EVERY_S - 2)
        entries.append(entry)
    return tuple(entries)
