"""The ordered bounded pool: many items, few threads, results in input order, and an end that no hung call delays.

Its threads are daemons that nobody joins. An executor would wait for a hung one twice: its context manager does, and
so does the hook that `concurrent.futures` sets for the end of the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from weft_tasks.errors import SettingsError
from weft_tasks.passes.clock import Deadline
from weft_tasks.passes.hung_threads import Hanging, HungThreads
from weft_tasks.passes.pool_run import PoolRun
from weft_tasks.passes.work import NOT_REACHED, Item, NotReached, PoolReport, Result, Work

DEFAULT_WIDTH: Final = 16


class OrderedPool:
    """Runs items on at most `width` threads per run. Between runs it remembers what hangs and where to go on.

    - The deadline ends the run, not the items. A call that hangs keeps its daemon thread, `weft-<name>-<n>`; it holds
      up neither its neighbours nor the end of the run, and what it returns later goes nowhere.
    - While a call hangs, later runs do not try its item again (the result is the failure with a TimeoutError), and they
      take the items of a slice that hangs one by one. So one hung item costs two threads and two late passes at most.
    - A run that finds `max_leftover` such threads (2 x width by default) raises TooManyHungThreads.
    - A run that was cut is taken up by the next one where it stopped. Otherwise items at the head of the list that fail
      slowly every time would keep those behind them from ever being reached.
    - One item or none runs on the caller's thread. Then the deadline decides only whether the item begins; how long it
      hangs is up to the time limit of the call itself, as it is for the reading of the work list.
    """

    def __init__(self, name: str, *, width: int = DEFAULT_WIDTH, max_leftover: int | None = None) -> None:
        limit = 2 * width if max_leftover is None else max_leftover
        if width < 1 or limit < 1:
            raise SettingsError(f"a pool needs width and max_leftover of at least 1, got {width} and {limit}")
        self._name, self._width, self._limit = name, width, limit
        self._hung = HungThreads(name, limit)
        self._resume_at = 0

    @property
    def hung_threads(self) -> int:
        """How many threads of earlier runs are still in a call."""
        return self._hung.count()

    def anew(self) -> Self:
        """A pool like this one that remembers nothing."""
        return type(self)(self._name, width=self._width, max_leftover=self._limit)

    def run(self, items: Sequence[Item], work: Work[Item, Result], deadline: Deadline) -> PoolReport[Result]:
        """Tries every item that the deadline allows. Raises TooManyHungThreads before it tries any."""
        hanging = self._hung.hanging()
        if len(items) <= 1:
            return _run_here(items, work, deadline, hanging)
        run = PoolRun(items, work, deadline, hanging, name=self._name, width=self._width, resume_at=self._resume_at)
        try:
            run.hire()
            run.wait()
        finally:
            ending = run.close()
            self._hung.add(ending.left_over)
        self._resume_at = ending.resume_at
        return ending.report


def _run_here(
    items: Sequence[Item], work: Work[Item, Result], deadline: Deadline, hanging: Hanging
) -> PoolReport[Result]:
    # Not BaseException: on this thread an exit or an interrupt is meant for the caller.
    results: list[Result | NotReached] = [
        NOT_REACHED if deadline.is_reached() else work.try_item(item, hanging, catch=Exception) for item in items
    ]
    return PoolReport(results=results)
