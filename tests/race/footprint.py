"""The footprint of a step: which tables it reads, shares and locks, read off its SQL; and whether two steps commute.

Steps that commute need not be tried in both orders. The view is coarse (tables, not rows), so it errs to the safe side.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from functools import lru_cache

BEGINS_WRITING = "BEGIN IMMEDIATE"
"""The statement at which SQLite lets one writer in and makes the others wait."""
ENDS = frozenset({"COMMIT", "ROLLBACK"})

_TABLE = re.compile(r"\bweft_[a-z_]+\b")
_WRITE = re.compile(r"^(?:UPDATE|INSERT INTO|DELETE FROM) (weft_[a-z_]+)\b")
_ROW_LOCK = re.compile(r"\bFOR (SHARE|UPDATE|NO KEY UPDATE)\b(?: OF (weft_[a-z_]+))?")
_NOBODY_READS = frozenset({"weft_history"})
"""Rows that are only ever added, under numbers of their own: their order is nothing."""
_EVERYTHING = frozenset({"*"})


@dataclass(frozen=True, slots=True)
class Footprint:
    """Tables by what is done to them. `*` stands for all there are."""

    reads: frozenset[str] = frozenset()
    shares: frozenset[str] = frozenset()
    locks: frozenset[str] = frozenset()

    @property
    def touches(self) -> frozenset[str]:
        return self.reads | self.shares | self.locks

    @property
    def holds(self) -> frozenset[str]:
        """What its transaction keeps others from, until it ends."""
        return self.shares | self.locks

    def __or__(self, other: Footprint) -> Footprint:
        return Footprint(self.reads | other.reads, self.shares | other.shares, self.locks | other.locks)


NOTHING = Footprint()


@lru_cache(maxsize=1000)
def footprint_of(statement: str) -> Footprint:
    """What this statement does to which tables; to all of them if it is none of the four kinds that we know."""
    tables = frozenset(_TABLE.findall(statement)) - _NOBODY_READS
    if written := _WRITE.match(statement):
        return Footprint(reads=tables, locks=frozenset(written.groups()) - _NOBODY_READS)
    if not statement.startswith("SELECT weft_"):
        return Footprint(reads=_EVERYTHING, locks=_EVERYTHING)
    if row_lock := _ROW_LOCK.search(statement):
        locked = frozenset({row_lock[2]}) if row_lock[2] else tables
        return Footprint(reads=tables, **{"shares" if row_lock[1] == "SHARE" else "locks": locked})
    return Footprint(reads=tables)


def meet(one: Set[str], other: Set[str]) -> bool:
    """Whether two sets of tables have one in common."""
    return bool(one & other) or (bool(one) and "*" in other) or (bool(other) and "*" in one)
