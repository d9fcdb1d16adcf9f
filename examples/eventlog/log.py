"""An event log: a CSV file with the columns case_id, activity and timestamp, in the order in which things happened."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

COLUMNS = ("case_id", "activity", "timestamp")


class LogError(ValueError):
    """A file that is no event log, or has no events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line. Its time is not read: the lines are in order."""

    case_id: str
    activity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLog:
    """The events in their order, and by case."""

    events: Sequence[Event]
    cases: Mapping[str, Sequence[str]]
    """The activities of each case, in order; the cases in the order of their first events."""


def read_log(path: Path) -> EventLog:
    """Read the whole file. Raises LogError."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
            if missing:
                raise LogError(f"{path} has no column {', '.join(missing)}: an event log is case_id,activity,timestamp")
            return _log_of([Event(case_id=row["case_id"], activity=row["activity"]) for row in rows], path)
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror}") from None


def _log_of(events: Sequence[Event], path: Path) -> EventLog:
    if not events:
        raise LogError(f"{path} has no events")
    cases: dict[str, list[str]] = {}
    for event in events:
        cases.setdefault(event.case_id, []).append(event.activity)
    return EventLog(events=events, cases=cases)
