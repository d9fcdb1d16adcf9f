"""The check at the end: what was committed, against the log and against what the client was acknowledged.

Pure: values in, counts out.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from examples.eventlog.log import EventLog


class Receipt(NamedTuple):
    """The store acknowledged this signal to the client."""

    case_id: str
    number: int


class Step(NamedTuple):
    """An event in a case's committed state, with the number of the signal that brought it."""

    number: int
    activity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedCase:
    """A case as the store has it in the end: its state, and under which epoch each of its turns was committed."""

    is_completed: bool
    steps: tuple[Step, ...]
    epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Counts that must be equal, or 0."""

    workflows: int
    events: int
    completed: int
    mismatched: int
    """Cases whose committed sequence is not the log's."""
    lost_signals: int
    """Acknowledged signals that are in no committed state."""
    duplicate_commits: int
    """Signals committed more than once, and commits by an owner of an earlier epoch after one of a later."""


def verify(log: EventLog, receipts: Collection[Receipt], committed: Mapping[str, CommittedCase]) -> Findings:
    """Compare. A case that the store does not have at all is neither completed nor matched."""
    return Findings(
        workflows=len(log.cases),
        events=len(log.events),
        completed=sum(case.is_completed for case_id, case in committed.items() if case_id in log.cases),
        mismatched=sum(_sequence(committed.get(case_id)) != tuple(log.cases[case_id]) for case_id in log.cases),
        lost_signals=len(set(receipts) - _taken(committed)),
        duplicate_commits=sum(_repeats(case) + _commits_of_deposed(case) for case in committed.values()),
    )


def read_receipts(path: Path) -> tuple[Receipt, ...]:
    """The file that the client wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(Receipt(row["case_id"], int(row["number"])) for row in csv.DictReader(file))


def _sequence(case: CommittedCase | None) -> tuple[str, ...]:
    return () if case is None else tuple(step.activity for step in case.steps)


def _taken(committed: Mapping[str, CommittedCase]) -> set[Receipt]:
    return {Receipt(case_id, step.number) for case_id, case in committed.items() for step in case.steps}


def _repeats(case: CommittedCase) -> int:
    return sum(times - 1 for times in Counter(step.number for step in case.steps).values())


def _commits_of_deposed(case: CommittedCase) -> int:
    return sum(later < earlier for earlier, later in pairwise(case.epochs))
