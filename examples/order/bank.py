"""A payment provider, as far as the example needs one: whatever is asked twice under one key happens once.

Each key is a file. Real providers take such a key too, usually in a header `Idempotency-Key`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

REFUNDED = "refunded"


class PaymentRefused(Exception):
    """For good: trying again would not help."""


def charge(key: str, amount: int, card: str) -> str:
    """Take the money and return the receipt."""
    if card == "declined":
        raise PaymentRefused("card declined")
    if card == "slow":
        _answer_too_late(key)
    try:
        with _payment(key).open("x") as file:
            file.write(str(amount))
    except FileExistsError:
        if _payment(key).read_text() == REFUNDED:
            raise PaymentRefused("refunded before it was charged") from None
    return f"receipt {key[:8]}"


def refund(key: str) -> None:
    """Give back what was charged under the key, and let nothing be charged under it any more."""
    _payment(key).write_text(REFUNDED)


def _answer_too_late(key: str) -> None:
    """A provider that hangs until nobody wants the money any more, or for half a minute."""
    ends = time.monotonic() + 30
    while not _payment(key).exists() and time.monotonic() < ends:
        time.sleep(0.1)


def _payment(key: str) -> Path:
    folder = Path(os.environ.get("EXAMPLE_FOLDER", "var")) / "payments"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / key
