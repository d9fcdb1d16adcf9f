"""Numbers with their nouns, as people read them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 workflow`, `2 workflows`: for nouns whose plural ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
