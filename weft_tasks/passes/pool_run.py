"""One run of the pool: jobs are handed to threads under one lock until the jobs, or the time, are used up."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic

from weft_tasks.passes.clock import Deadline
from weft_tasks.passes.hung_threads import Hanging
from weft_tasks.passes.work import NOT_REACHED, TRY_ALONE, Item, NotReached, PoolReport, Result, TryAlone, Work
from weft_tasks.results import reason_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(Generic[Result]):
    """What a run leaves: its report, the threads still in a call with their items' keys, and where the next goes on."""

    report: PoolReport[Result]
    left_over: Mapping[threading.Thread, frozenset[Hashable]]
    resume_at: int


class PoolRun(Generic[Item, Result]):
    """A job is a range of items: a slice, or a single one. A thread takes jobs until there is none left to begin.

    The caller hires, waits and closes. What a thread brings after that finds the run over and is dropped.
    """

    def __init__(
        self,
        items: Sequence[Item],
        work: Work[Item, Result],
        deadline: Deadline,
        hanging: Hanging,
        *,
        name: str,
        width: int,
        resume_at: int,
    ) -> None:
        self._items, self._work, self._deadline, self._hanging = items, work, deadline, hanging
        self._name, self._width = name, width
        starts = range(0, len(items), 1 if work.attempt_slice is None else work.slice_size)
        self._planned = _jobs(starts, len(items), resume_at)
        self._open = len(starts)
        self._singles: deque[range] = deque()

        self._changed = threading.Condition()
        self._threads = 0
        self._in_hand: dict[threading.Thread, range] = {}
        self._is_over = False
        self._results: list[Result | NotReached] = [NOT_REACHED] * len(items)
        self._split_slices = 0
        self._split_reason: str | None = None

    # -- the caller's side -------------------------------------------------------------------------------------------

    def hire(self) -> None:
        """Starts threads until every open job has one or there are `width`. Fewer are slower; none is an error."""
        while (thread := self._next_thread()) is not None:
            try:
                thread.start()
            except RuntimeError:  # The process gets no more threads.
                if self._dismiss() == 0 and self._has_work():
                    raise
                return

    def wait(self) -> None:
        """Returns when no thread works any more, or at the deadline."""
        with self._changed:
            while self._threads and not self._deadline.is_reached():
                self._changed.wait(min(self._deadline.remaining().total_seconds(), threading.TIMEOUT_MAX))

    def close(self) -> Ending[Result]:
        """Ends the run for good: from here on nothing begins, and nothing is recorded."""
        with self._changed:
            self._is_over = True
            ending = Ending(
                report=PoolReport(
                    results=self._results, split_slices=self._split_slices, split_reason=self._split_reason
                ),
                left_over={thread: self._keys(job) for thread, job in self._in_hand.items()},
                resume_at=self._first_unbegun(),
            )
            self._items, self._results = (), []  # A hung thread holds on to this run, not to all that was in it.
            return ending

    # -- a thread's side ---------------------------------------------------------------------------------------------

    def _take_jobs(self) -> None:
        attempt_slice = self._work.attempt_slice
        while (taken := self._take()) is not None:
            job, items = taken
            if attempt_slice is None or len(job) == 1:
                # Not even an exit may cost the thread, and with it the items behind this one.
                self._record(job, [self._work.try_item(items[0], self._hanging, catch=BaseException)])
            else:
                self._try_slice(job, items, attempt_slice)

    def _try_slice(
        self, job: range, items: Sequence[Item], attempt_slice: Callable[[Sequence[Item]], Sequence[Result | TryAlone]]
    ) -> None:
        try:
            self._hanging.refuse_slice(map(self._work.key, items))
            results = attempt_slice(items)
            if len(results) != len(items):
                raise ValueError(f"{len(results)} results for a slice of {len(items)}")
        except BaseException as error:
            self._split(job, reason_of(error))
            self.hire()
        else:
            self._record_slice(job, results)
            self.hire()

    # -- under the lock ----------------------------------------------------------------------------------------------

    def _next_thread(self) -> threading.Thread | None:
        with self._changed:
            if not self._has_work() or self._threads >= min(self._width, self._open + len(self._in_hand)):
                return None
            self._threads += 1
            name = f"weft-{self._name}-{self._threads}"
            return threading.Thread(target=self._take_jobs, name=name, daemon=True)

    def _take(self) -> tuple[range, Sequence[Item]] | None:
        with self._changed:
            self._in_hand.pop(threading.current_thread(), None)
            job = self._next_job()
            if job is None:
                self._dismiss()
                return None
            self._open -= 1
            self._in_hand[threading.current_thread()] = job
            return job, self._items[job.start : job.stop]

    def _next_job(self) -> range | None:
        if not self._has_work():
            return None
        return next(self._planned, None) or self._singles.popleft()

    def _has_work(self) -> bool:
        return self._open > 0 and not self._is_over and not self._deadline.is_reached()

    def _dismiss(self) -> int:
        with self._changed:
            self._threads -= 1
            self._changed.notify_all()
            return self._threads

    def _record(self, job: range, results: Sequence[Result | NotReached]) -> None:
        with self._changed:
            if not self._is_over:
                self._results[job.start : job.stop] = results

    def _record_slice(self, job: range, results: Sequence[Result | TryAlone]) -> None:
        with self._changed:
            self._record(job, [NOT_REACHED if result is TRY_ALONE else result for result in results])
            self._leave_alone([index for index, result in zip(job, results, strict=True) if result is TRY_ALONE])

    def _leave_alone(self, indices: Sequence[int]) -> None:
        if not self._is_over:
            self._singles.extend(range(index, index + 1) for index in indices)
            self._open += len(indices)

    def _split(self, job: range, reason: str) -> None:
        with self._changed:
            if self._is_over:
                return
            self._leave_alone(job)
            self._split_slices += 1
            self._split_reason = self._split_reason or reason

    def _first_unbegun(self) -> int:
        return (next(self._planned, None) or self._singles[0]).start if self._open else 0

    def _keys(self, job: range) -> frozenset[Hashable]:
        return frozenset(self._work.key(item) for item in self._items[job.start : job.stop])


def _jobs(starts: range, end: int, resume_at: int) -> Iterator[range]:
    """The items cut into jobs, from the job that holds item `resume_at` once round."""
    turned = resume_at // starts.step % len(starts)
    for start in chain(starts[turned:], starts[:turned]):
        yield range(start, min(start + starts.step, end))
