"""A thread that talks to a server that may be silent, for callers who must not be.

Its caller waits only so long. While the thread is stuck further jobs are given up at once: somebody else makes up for
them later.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from weft_tasks.results import reason_of

BACKLOG = 1000
"""Jobs that may wait for the thread before further ones are given up."""


@dataclass(slots=True, eq=False)
class _Job:
    run: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    error: str | None = None
    is_given_up: bool = False


class BoundedThread:
    """One daemon thread, started with its first job; jobs run in order. `timeout` is in seconds."""

    def __init__(self, name: str, timeout: float, *, waits_for: str) -> None:
        self._name = name
        self._timeout = timeout
        self._server = waits_for
        self._jobs: queue.Queue[_Job] = queue.Queue(maxsize=BACKLOG)
        self._busy_since: float | None = None
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def call(self, run: Callable[[], Any]) -> str | None:
        """None once the job is done; else why that is not known: it may still be done later. Never raises."""
        if self._is_stuck():
            return f"{self._server} does not answer"
        self._start()
        job = _Job(run)
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            return f"{BACKLOG} jobs are waiting for {self._server}"
        if job.done.wait(self._timeout):
            return job.error
        job.is_given_up = True
        return f"{self._server} did not answer within {self._timeout:g} s"

    def _is_stuck(self) -> bool:
        busy_since = self._busy_since
        return busy_since is not None and time.monotonic() - busy_since > self._timeout

    def _start(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job.is_given_up:
                continue
            self._busy_since = time.monotonic()
            try:
                job.run()
            except Exception as error:
                job.error = reason_of(error)
            self._busy_since = None
            job.done.set()
