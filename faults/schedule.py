"""A mixed schedule from a seed: which fault when and for how long. The same seed draws the same schedule."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from faults.kinds import (
    ConnectionsReset,
    ConnectionsTerminated,
    Cut,
    DatabaseGone,
    DatabaseRestarted,
    DatabaseSetting,
    Fault,
    Frozen,
    Killed,
    MainKilled,
    PoolProcessKilled,
    RedisCommand,
    RedisGone,
    RedisSilent,
    Slow,
    Stopped,
    TableLocked,
)
from faults.world import BEATS, ENGINES, FAR_ENGINE, MAINTENANCE

FIRST_AT_S = 2.0
PAUSES_S = (1.5, 5.0)
LONGEST_S = 9.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A fault, from and to how many seconds after the beginning."""

    fault: Fault
    begins_s: float
    ends_s: float

    def __str__(self) -> str:
        return f"{self.begins_s:5.1f} s to {self.ends_s:5.1f} s  {self.fault}"


def draw(seed: int, database: str, seconds: float) -> tuple[Entry, ...]:
    """Faults one after the other and on top of each other; never two at a time that touch the same subject."""
    rng = random.Random(f"{seed} {database}")
    busy: dict[str, float] = {}
    entries: list[Entry] = []
    at = FIRST_AT_S
    while at < seconds:
        subject, make, shortest, longest = rng.choice(_menu(rng, database))
        lasts = round(rng.uniform(shortest, longest), 1)
        if busy.get(subject, 0) <= at and not _leaves_nobody(subject, busy, at):
            entries.append(Entry(fault=make(), begins_s=round(at, 1), ends_s=round(at + lasts, 1)))
            busy[subject] = at + lasts + 1
        at += rng.uniform(*PAUSES_S)
    return tuple(entries)


def one(rng: random.Random, database: str, *, at: float, longest: float) -> Entry:
    """One fault at a time, for at most so long."""
    _subject, make, shortest, lasts = rng.choice(_menu(rng, database))
    return Entry(fault=make(), begins_s=at, ends_s=round(at + min(rng.uniform(shortest, lasts), longest), 1))


def kinds() -> tuple[str, ...]:
    """In words, what a schedule is drawn from."""
    menu = _menu(random.Random(0), "postgres")
    return tuple(dict.fromkeys(_ANY.sub(r"\1 N", str(make())) for _subject, make, *_times in menu))


_ANY = re.compile(r"\b(engine|beat)-\d")


def _leaves_nobody(subject: str, busy: dict[str, float], at: float) -> bool:
    """Whether no engine would be left that is well."""
    return subject in ENGINES and sum(busy.get(engine, 0) > at for engine in ENGINES) >= len(ENGINES) - 1


def _menu(rng: random.Random, database: str) -> list[tuple[str, Callable[[], Fault], float, float]]:
    """Subject, fault, and its shortest and longest time in seconds."""
    engine, beat = rng.choice(ENGINES), rng.choice(BEATS)
    way = rng.choice(("to-server", "to-client", "both"))
    menu: list[tuple[str, Callable[[], Fault], float, float]] = [
        (engine, lambda: Killed(engine), 0.5, LONGEST_S),
        (engine, lambda: MainKilled(engine), 0.5, LONGEST_S),
        (engine, lambda: PoolProcessKilled(engine), 0.5, 1),
        (engine, lambda: Frozen(engine), 1, LONGEST_S),
        (engine, lambda: Stopped(engine), 1, 4),
        (MAINTENANCE, lambda: Killed(MAINTENANCE), 0.5, 4),
        (MAINTENANCE, lambda: Stopped(MAINTENANCE), 1, 3),
        (beat, lambda: Killed(beat), 0.5, LONGEST_S),
        (beat, lambda: Frozen(beat), 1, LONGEST_S),
        ("redis", RedisGone, 0.2, 4),
        ("redis", RedisSilent, 0.5, 5),
        ("redis", lambda: RedisCommand(("FLUSHALL",)), 0.5, 1),
        ("redis", lambda: RedisCommand(("SCRIPT", "FLUSH")), 0.5, 1),
        ("database", TableLocked, 0.5, 4),
        (FAR_ENGINE, lambda: Cut("redis", way), 1, LONGEST_S),  # type: ignore[arg-type]
        (FAR_ENGINE, lambda: ConnectionsReset("redis"), 0.5, 1),
        (FAR_ENGINE, lambda: Slow("redis", 0.2), 1, LONGEST_S),
    ]
    if database == "postgres":
        menu += [
            ("database", DatabaseGone, 0.2, 4),
            ("database", DatabaseRestarted, 0.2, 0.5),
            ("database", ConnectionsTerminated, 0.2, 0.5),
            ("database", lambda: DatabaseSetting("default_transaction_read_only", "on"), 0.5, 4),
            (FAR_ENGINE, lambda: Cut("database", way), 1, LONGEST_S),  # type: ignore[arg-type]
            (FAR_ENGINE, lambda: ConnectionsReset("database"), 0.5, 1),
            (FAR_ENGINE, lambda: Slow("database", 0.05), 1, LONGEST_S),
        ]
    return menu
