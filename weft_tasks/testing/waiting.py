"""Waiting for a condition, or for an answer, with a deadline: what tests do instead of sleeping. The test bed's only
use of a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from weft_tasks.errors import StoreUnavailable
from weft_tasks.testing.errors import WaitTimedOut

T = TypeVar("T")

PATIENCE = timedelta(seconds=20)
"""How long to wait by default: far longer than anything takes on a busy machine with two cores."""

PAUSE = timedelta(milliseconds=20)
"""Between two looks at the condition."""

RETRY_PAUSE = timedelta(milliseconds=200)
"""Between two questions to a store that does not answer."""


def wait_until(look: Callable[[], T], *, what: str, timeout: timedelta = PATIENCE) -> T:
    """Call `look` until it returns something true, and return that. Raises WaitTimedOut, naming `what`."""
    deadline = time.monotonic() + timeout.total_seconds()
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise WaitTimedOut(what, timeout)
        time.sleep(PAUSE.total_seconds())
    return seen


def persistently(ask: Callable[[], T], *, timeout: timedelta) -> T:
    """Ask again while the store does not answer, as a client does under the key that it used before."""
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            return ask()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_PAUSE.total_seconds())
