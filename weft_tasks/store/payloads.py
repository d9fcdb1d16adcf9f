"""Strict JSON for what users hand over, and the checks on ids and names, at the entrance (nothing is half done)."""

from __future__ import annotations

import json
import unicodedata
from datetime import timedelta
from typing import Any

from weft_tasks.errors import InvalidInput
from weft_tasks.model import Json

MAX_ID_LENGTH = 255
LONGEST_DURATION = timedelta(days=36525)


def encode(what: str, value: object, limit: int) -> str:
    """`value` as ASCII JSON of at most `limit` bytes. Raises InvalidInput for anything JSON cannot say exactly."""
    try:
        text = json.dumps(_exact(what, value), allow_nan=False, separators=(",", ":"))
    except InvalidInput:
        raise
    except RecursionError:
        raise InvalidInput(what, "is nested too deeply for JSON") from None
    except ValueError as error:
        raise InvalidInput(what, f"is not JSON: {error}") from None
    if len(text) > limit:
        raise InvalidInput(what, f"has {len(text)} bytes as JSON; the limit is {limit} (weft_payload_limit)")
    return text


def decode(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def say_the_same(one: str, other: str) -> bool:
    """Whether two JSON texts mean the same value, in whatever order their keys come."""
    return one == other or _in_order(one) == _in_order(other)


def _in_order(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


def _exact(what: str, value: object) -> Json:
    """`value` if it comes back from JSON as it went in; json.dumps alone would turn 1 into "1" as a key, in silence."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_exact(what, item) for item in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise InvalidInput(what, f"has a key that is not a string: {key!r}")
        return {key: _exact(what, item) for key, item in value.items()}
    raise InvalidInput(what, f"is not JSON: it holds a {type(value).__name__}; use str, numbers, lists and dicts")


def checked_name(what: str, value: object) -> str:
    """An id or name: 1 to 255 characters, none of them a control character. Raises InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput(what, f"must be a string, not {type(value).__name__}")
    if not value:
        raise InvalidInput(what, "must not be empty")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidInput(what, f"has {len(value)} characters; the limit is {MAX_ID_LENGTH}")
    for character in value:
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise InvalidInput(what, f"{value!r} holds the character {character!a}, which no id or name may have")
    return value


def checked_count(what: str, value: object, *, most: int) -> int:
    """A whole number from 1 to `most`. Raises InvalidInput."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(what, f"must be a whole number, not {type(value).__name__}")
    if not 1 <= value <= most:
        raise InvalidInput(what, f"must be from 1 to {most}" + ("" if abs(value) > 10**9 else f", not {value}"))
    return value


def checked_duration(what: str, value: object) -> timedelta:
    """A timedelta, or seconds as a number; not negative. Raises InvalidInput."""
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise InvalidInput(what, f"must be a timedelta or seconds, not {type(value).__name__}")
    try:
        duration = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise InvalidInput(what, f"cannot be {value!r} seconds") from None
    if not timedelta(0) <= duration <= LONGEST_DURATION:
        raise InvalidInput(what, f"must be from 0 to {LONGEST_DURATION.days} days, not {value!r}")
    return duration
