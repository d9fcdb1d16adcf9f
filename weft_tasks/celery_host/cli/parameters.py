"""What commands take: durations such as 90s or 1h30m, and payloads as JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)?\s*")
Command = TypeVar("Command", bound=Callable[..., Any])


class Duration(click.ParamType):  # type: ignore[type-arg]
    """`30s`, `5m`, `1h30m`, `3d`, or a number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        pieces = list(_PIECE.finditer(value.strip()))
        whole = "".join(piece.group() for piece in pieces) == value.strip()
        if not pieces or not whole or (len(pieces) > 1 and not all(piece[2] for piece in pieces)):
            self.fail(f"{value!r} is no duration; write 30s, 5m, 1h30m, 3d, or a number of seconds", param, ctx)
        try:
            return timedelta(seconds=sum(float(piece[1]) * _UNITS[piece[2] or "s"] for piece in pieces))
        except OverflowError:
            self.fail(f"{value!r} is too long", param, ctx)


DURATION = Duration()


def payload_parameters(command: Command) -> Command:
    """An argument PAYLOAD and an option `--text`, of which `payload_of` makes the payload."""
    command = click.option("--text", help="The payload is this text, which needs no quotes of JSON.")(command)
    return click.argument("payload", required=False)(command)


def payload_of(payload: str | None, text: str | None) -> Any:
    """What PAYLOAD or `--text` say; None without either. Raises UsageError."""
    if payload is not None and text is not None:
        raise click.UsageError("take PAYLOAD or --text, not both")
    return text if text is not None else json_from("PAYLOAD", payload)


def json_from(what: str, given: str | None) -> Any:
    """JSON as it was written, from a file with `@FILE`, or from stdin with `-`. Raises UsageError."""
    if given is None:
        return None
    try:
        return json.loads(_read(what, given))
    except ValueError as error:
        raise click.UsageError(
            f"{what} is not JSON ({error}). A text needs double quotes inside the shell's: '\"like this\"'"
        ) from None


def _read(what: str, given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{what}: {error.strerror}: {given[1:]}") from None
