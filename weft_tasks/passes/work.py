"""What a pool is asked to do and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from weft_tasks.passes.hung_threads import Hanging

Item = TypeVar("Item")
Result = TypeVar("Result")


class NotReached(Enum):
    """The type of `NOT_REACHED`, the result of an item that time did not allow: not begun, or not come back."""

    NOT_REACHED = "not-reached"


NOT_REACHED: Final = NotReached.NOT_REACHED


class TryAlone(Enum):
    """The type of `TRY_ALONE`, a slice's result for an item that it leaves to an attempt of its own."""

    TRY_ALONE = "try-alone"


TRY_ALONE: Final = TryAlone.TRY_ALONE


SLICE: Final = 1_000
"""Items that one call handles, unless the pass says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Generic[Item, Result]):
    """What a run does with its items.

    `attempt` handles one item and returns its result; `failure` makes the result of an item whose attempt raised, there
    and then, so that a hundred thousand errors do not keep their tracebacks. `key` names an item to later runs.

    With `attempt_slice`, `slice_size` neighbours are handled by one call that returns a result for each, in the same
    order. A slice that raises, or returns another number of results, is retried item by item after the slices that
    were not tried yet, and so are the items for which it returns TRY_ALONE. So items must bear to be tried twice.
    """

    attempt: Callable[[Item], Result | NotReached]
    failure: Callable[[Item, BaseException], Result]
    key: Callable[[Item], Hashable]
    attempt_slice: Callable[[Sequence[Item]], Sequence[Result | TryAlone]] | None = None
    slice_size: int = SLICE

    def try_item(self, item: Item, hanging: Hanging, *, catch: type[BaseException]) -> Result | NotReached:
        """One item's result, whatever comes of it, without a second call beside one that hangs."""
        try:
            hanging.refuse_item(self.key(item))
            return self.attempt(item)
        except catch as error:
            return self.failure(item, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport(Generic[Result]):
    """One result per item, in input order; how many slices were split, and why the first one was."""

    results: Sequence[Result | NotReached]
    split_slices: int = 0
    split_reason: str | None = None
