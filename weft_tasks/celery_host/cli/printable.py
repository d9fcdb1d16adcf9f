"""What users made, on its way to a terminal: nothing in it moves the cursor, changes colours or hides other text."""

from __future__ import annotations

import json
import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_WIDE = frozenset({"W", "F"})


def printable(text: str) -> str:
    """`text` with every control, format, line-separating and unassigned character written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(character) if _is_unsafe(character) else character for character in text)


def printable_json(value: object) -> str:
    """`value` as JSON on one line, other scripts as they are, and still JSON where a character is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isascii() and text.isprintable():
        return text
    return "".join(json.dumps(character)[1:-1] if _is_unsafe(character) else character for character in text)


def width(text: str) -> int:
    """The columns of a terminal that printable text takes."""
    if text.isascii():
        return len(text)
    return sum(_width_of(character) for character in text)


def _is_unsafe(character: str) -> bool:
    return unicodedata.category(character) in _UNSAFE


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _width_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1
