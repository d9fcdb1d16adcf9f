"""A finding: one thing that was looked at, what it is like, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works, but less well than it could, or something waits for a decision."""
    ERROR = "error"
    """Something does not work, or will not for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`topic` is stable, for machines; whatever is not OK has a remedy."""

    level: Level
    topic: str
    text: str
    remedy: str | None = None


def ok(topic: str, text: str) -> Finding:
    return Finding(level=Level.OK, topic=topic, text=text)


def warning(topic: str, text: str, remedy: str) -> Finding:
    return Finding(level=Level.WARNING, topic=topic, text=text, remedy=remedy)


def error(topic: str, text: str, remedy: str) -> Finding:
    return Finding(level=Level.ERROR, topic=topic, text=text, remedy=remedy)
