"""What the tests of the passes are run against: a clock and ticks on demand, and targets made of plain functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from weft_tasks.passes.clock import Deadline
from weft_tasks.passes.pool import OrderedPool
from weft_tasks.passes.sweep import PassContext
from weft_tasks.passes.targets import SignalWait
from weft_tasks.results import Answer, PassKind, PassResult, ReclaimStatus, TakeoverAttempt

LIMIT = timedelta(milliseconds=10)
"""The deadline of tests in which something hangs: the pool looks at the manual clock this often in real time."""

LONG = timedelta(minutes=10)
"""The deadline of tests in which all threads come back, so that the pool looks at the clock when they have."""


class ManualClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.elapsed = timedelta(0)

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + self.elapsed

    def monotonic(self) -> float:
        return self.elapsed.total_seconds()

    def advance(self, by: timedelta = LONG) -> None:
        self.elapsed += by

    def deadline(self, limit: timedelta = LIMIT) -> Deadline:
        return Deadline.after(self, limit)


def join_pool_threads(name: str, *, but: Iterable[threading.Thread] = ()) -> None:
    """Waits until the threads of the pool `name` have brought their results and ended, but for those that hang."""
    for thread in threading.enumerate():
        is_of_pool = thread.name.startswith(f"weft-{name}-") and thread.is_alive()
        if is_of_pool and thread not in {*but, threading.current_thread()}:
            thread.join(10)


def context(clock: ManualClock | None = None, *, width: int = 16, deadline: timedelta = LIMIT) -> PassContext:
    pools = {kind: OrderedPool(kind.value, width=width) for kind in PassKind}
    return PassContext(clock=clock or ManualClock(), deadline=deadline, pools=pools)


def won(_reference: Any) -> Answer:
    return Answer.WON


def nothing() -> Sequence[Any]:
    return ()


def unreadable() -> Sequence[Any]:
    raise OSError("the store is away")


@dataclass
class RenewalFake:
    listing: Callable[[], Sequence[Any]] = nothing
    renew: Callable[[Any], Answer] = won

    def list_held_workflow_ids(self) -> Sequence[Any]:
        return self.listing()

    def renew_workflow_claim(self, reference: Any, /) -> Answer:
        return self.renew(reference)


@dataclass
class SliceRenewalFake(RenewalFake):
    renew_slice: Callable[[Sequence[Any]], Sequence[Answer]] = lambda references: [Answer.WON] * len(references)

    def renew_workflow_claims(self, references: Sequence[Any], /) -> Sequence[Answer]:
        return self.renew_slice(references)


def taken_over(_reference: Any) -> TakeoverAttempt:
    return TakeoverAttempt(status=ReclaimStatus.RECLAIMED)


@dataclass
class ReclaimFake:
    listing: Callable[[], Sequence[Any]] = nothing
    take_over: Callable[[Any], TakeoverAttempt] = taken_over

    def list_reclaim_candidate_workflow_ids(self) -> Sequence[Any]:
        return self.listing()

    def attempt_workflow_claim_takeover(self, reference: Any, /) -> TakeoverAttempt:
        return self.take_over(reference)


@dataclass
class SignalFake:
    listing: Callable[[], Sequence[Any]] = nothing
    wake: Callable[[Any], Answer] = won
    is_buffered: Callable[[Any], bool] = lambda wait: True

    def list_parked_signal_waits(self) -> Sequence[Any]:
        return self.listing()

    def has_buffered_signal(self, wait: Any, /) -> bool:
        return self.is_buffered(wait)

    def wake_workflow(self, wait: Any, /) -> Answer:
        return self.wake(wait)


@dataclass
class UpdateFake:
    listing: Callable[[], Sequence[Any]] = nothing
    drain: Callable[[Any], Answer] = won
    is_pending: Callable[[Any], bool] = lambda reference: True

    def list_held_workflow_ids(self) -> Sequence[Any]:
        return self.listing()

    def has_pending_updates(self, reference: Any, /) -> bool:
        return self.is_pending(reference)

    def drain_pending_updates(self, reference: Any, /) -> Answer:
        return self.drain(reference)


def waits(*workflow_ids: str) -> list[SignalWait]:
    return [SignalWait(workflow_id, "event") for workflow_id in workflow_ids]


@dataclass
class Tick:
    interval: timedelta
    callback: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class ManualScheduler:
    """Ticks when told to, on the caller's thread."""

    schedules: list[Tick] = field(default_factory=list)

    def every(self, interval: timedelta, callback: Callable[[], None], /) -> Tick:
        self.schedules.append(Tick(interval, callback))
        return self.schedules[-1]

    @property
    def active(self) -> list[Tick]:
        return [schedule for schedule in self.schedules if not schedule.is_cancelled]

    def tick(self, place: int = 0) -> None:
        self.active[place].callback()


@dataclass
class Heard:
    """A sink that keeps what it is told."""

    reports: list[Any] = field(default_factory=list)

    def __call__(self, report: Any) -> None:
        self.reports.append(report)

    @property
    def kinds(self) -> list[PassKind]:
        return [report.kind for report in self.reports]


def statuses(result: PassResult[Any]) -> list[tuple[str, str, str | None]]:
    return [(outcome.workflow_id, outcome.status.value, outcome.reason) for outcome in result.outcomes]
