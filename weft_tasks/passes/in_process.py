"""The suite for hosts without Celery: the same four passes, ticked inside the host's own process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

from weft_tasks.errors import SettingsError
from weft_tasks.passes.clock import Clock
from weft_tasks.passes.run_once import run_in_order, run_part
from weft_tasks.passes.scheduler import Scheduler, ThreadScheduler
from weft_tasks.passes.sink import PassSink, log_pass
from weft_tasks.passes.slots import SharedCall, Slots
from weft_tasks.passes.sweep import PassContext
from weft_tasks.passes.targets import Targets
from weft_tasks.results import PassFailed, PassKind, PassResult, RunOnceResult


class ClaimRenewalTask:
    """Ticks each pass that has a target every `interval`, in a slot of its own, so that a slow pass delays no other.

    A pass may take `deadline`, three intervals by default. A tick that finds its own pass running, from an earlier tick
    or from `run_once`, is skipped and counted. Nothing that a pass or the sink raises ends the ticks. Every method may
    be called from any thread.
    """

    def __init__(
        self,
        targets: Targets,
        clock: Clock,
        interval: timedelta,
        *,
        deadline: timedelta | None = None,
        scheduler: Scheduler | None = None,
        on_pass_complete: PassSink = log_pass,
    ) -> None:
        if interval <= timedelta(0):
            raise SettingsError(f"ticks need an interval above zero, got {interval}")
        self._targets, self._interval, self._on_pass_complete = targets, interval, on_pass_complete
        self._context = PassContext(clock=clock, deadline=3 * interval if deadline is None else deadline)
        self._scheduler: Scheduler = ThreadScheduler() if scheduler is None else scheduler
        self._slots = Slots()
        self._shared_run = SharedCall("run_once", self._run_in_order)
        self._starting_or_stopping = threading.Lock()
        self._schedules: ExitStack | None = None

    @property
    def skipped_ticks(self) -> Mapping[PassKind, int]:
        """How many ticks found their own pass running, by pass, since this object was made."""
        return self._slots.skipped()

    def start(self) -> None:
        """Begins to tick. Does nothing if it ticks already; may follow a `stop`."""
        with self._starting_or_stopping:
            if self._schedules is None:
                self._slots.take_ticks(True)
                self._schedules = self._schedule()

    def stop(self, timeout: timedelta | None = None) -> bool:
        """Ends the ticks and lets what is running finish, for at most `timeout`. Returns whether all of it has.

        Called from inside a pass (a sink, say) it waits for nothing, since it would wait for itself.
        """
        with self._starting_or_stopping:
            self._slots.take_ticks(False)
            if self._schedules is not None:
                self._schedules.close()
                self._schedules = None
        return self._slots.wait_until_free(timeout)

    def run_once(self) -> RunOnceResult:
        """The four passes now, in sequence. Callers that overlap share one run and get the same result.

        Needs no `start`, and waits for no tick. Raises RuntimeError if called from inside its own run.
        """
        return self._shared_run()

    def _schedule(self) -> ExitStack:
        with ExitStack() as schedules:
            for kind in self._targets.kinds:
                ticks = self._scheduler.every(self._interval, partial(self._slots.tick, kind, partial(self._run, kind)))
                schedules.callback(ticks.cancel)
            return schedules.pop_all()

    def _run_in_order(self) -> RunOnceResult:
        with self._slots.entered("run-once"):
            return run_in_order(self._run_in_slot, self._context.clock)

    def _run_in_slot(self, kind: PassKind) -> PassResult[Any] | PassFailed | None:
        with self._slots.entered(kind):
            return self._run(kind)

    def _run(self, kind: PassKind) -> PassResult[Any] | PassFailed | None:
        return run_part(kind, self._targets, self._context, self._on_pass_complete)
