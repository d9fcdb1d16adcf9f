"""What a command prints: one JSON document, or tables; with rich on a terminal, aligned text anywhere else.

Everything in a table is data: no markup is read from it, and what is not printable is escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import click

from weft_tasks.celery_host.cli.printable import printable, width

if TYPE_CHECKING:
    from rich.console import RenderableType

GAP = "  "
INDENT = "  "


class Mood(StrEnum):
    """How a terminal colours a cell."""

    GOOD = "green"
    ODD = "yellow"
    BAD = "red"


@dataclass(frozen=True, slots=True)
class Marked:
    """A cell that is coloured on a terminal."""

    value: object
    mood: Mood | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a title. Without any row, `empty` is printed in their place."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    empty: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names with their values, one a line; those that are None are left out."""

    title: str
    facts: Sequence[tuple[str, object]]


Part = Table | Facts | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where a command prints."""

    as_json: bool

    def show(self, document: Any, *parts: Part) -> None:
        """The JSON document if it was asked for, else the parts."""
        if self.as_json:
            click.echo(json.dumps(document, indent=2))
        elif has_rich_terminal():
            from rich.console import Console

            console = Console(highlight=False, markup=False, emoji=False)
            for renderable in rich_of(parts):
                console.print(renderable)
        else:
            click.echo(plain_of(parts))

    def note(self, text: str) -> None:
        """A line beside the output, on stderr, so that it disturbs no machine."""
        click.echo(printable(text), err=True)


def has_rich_terminal() -> bool:
    """Whether stdout is a terminal and rich (`weft-tasks[cli]`) is installed."""
    if not sys.stdout.isatty():
        return False
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


def plain_of(parts: Iterable[Part]) -> str:
    """The parts as aligned text."""
    return "\n".join("\n".join(_plain_lines(part)) for part in parts)


def rich_of(parts: Iterable[Part]) -> list[RenderableType]:
    """The parts as rich shows them. Every text is a `Text`, in which rich reads no markup."""
    return [_rich(part) for part in parts]


# -- cells


def text_of(value: object) -> str:
    """A cell's text, printable on one line."""
    match value:
        case Marked():
            return text_of(value.value)
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        case timedelta():
            return duration_of(value)
        case float():
            return f"{value:g}"
        case _:
            return printable(str(value))


def duration_of(duration: timedelta) -> str:
    """In the two largest units: 12 ms, 3.4 s, 2 min 5 s, 3 h 20 min, 5 d 2 h."""
    seconds = duration.total_seconds()
    if seconds < 0:
        return f"-{duration_of(-duration)}"
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    first = next(n for n, (_name, size) in enumerate(units) if seconds >= size)
    (name, size), (next_name, next_size) = units[first : first + 2]
    whole, rest = divmod(int(seconds), size)
    return f"{whole} {name}" + (f" {rest // next_size} {next_name}" if rest // next_size else "")


def _empty(table: Table) -> str:
    return f"{printable(table.title)}: {table.empty}"


# -- plain


def _plain_lines(part: Part) -> list[str]:
    if isinstance(part, str):
        return [printable(part)]
    if isinstance(part, Facts):
        given = [(name, text_of(value)) for name, value in part.facts if value is not None]
        longest = max((width(name) for name, _value in given), default=0)
        return [printable(part.title), *(f"{INDENT}{_padded(name, longest)}{GAP}{value}" for name, value in given), ""]
    if not part.rows:
        return [_empty(part), ""]
    cells = [list(part.columns), *([text_of(value) for value in row] for row in part.rows)]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lines = (GAP.join(map(_padded, row, widths)).rstrip() for row in cells)
    return [printable(part.title), *(f"{INDENT}{line}" for line in lines), ""]


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


# -- rich


def _rich(part: Part) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    if isinstance(part, str):
        return Text(printable(part))
    if isinstance(part, Facts):
        table = RichTable(box=box.SIMPLE, show_header=False, pad_edge=False)
        table.add_column(style="dim")
        table.add_column(overflow="fold")
        for name, value in part.facts:
            if value is not None:
                table.add_row(Text(name), _rich_cell(value))
    elif not part.rows:
        return Text(f"{_empty(part)}\n", style="bold")
    else:
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in part.columns:
            table.add_column(Text(column), overflow="fold")
        for row in part.rows:
            table.add_row(*map(_rich_cell, row))
    return Group(Text(printable(part.title), style="bold"), table)


def _rich_cell(value: object) -> RenderableType:
    from rich.text import Text

    mood = value.mood if isinstance(value, Marked) else None
    return Text(text_of(value), style="" if mood is None else mood.value)
