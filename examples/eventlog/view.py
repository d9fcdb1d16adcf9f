"""The live view: a table at the bottom of a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from examples.eventlog.ledger import EngineState, Progress
from weft_tasks import StoreUnavailable

LOOK_EVERY_S = 0.5
PLAIN_LINE_EVERY_S = 3.0
BAR = 40


class View(Protocol):
    """Where progress is shown and what happens is said. Called from several threads."""

    def say(self, text: str) -> None: ...

    def show(self, progress: Progress) -> None: ...


@contextmanager
def view(*, events: int, workflows: int) -> Iterator[View]:
    """The view that fits where the output goes."""
    if sys.stdout.isatty():
        with Live(console=Console(), refresh_per_second=4, transient=True) as live:
            yield TerminalView(live, events=events, workflows=workflows)
    else:
        yield PlainView(events=events, workflows=workflows)


@contextmanager
def watching(look: Callable[[], Progress], shown: View) -> Iterator[None]:
    """Look and show, twice a second, from a thread. What the store does not answer is looked at again."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(LOOK_EVERY_S):
            try:
                shown.show(look())
            except StoreUnavailable:
                continue

    thread = threading.Thread(target=watch, name="demo-view", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class PlainView:
    """One line for each event, and one for the progress every few seconds."""

    def __init__(self, *, events: int, workflows: int) -> None:
        self._events, self._workflows = events, workflows
        self._began = time.monotonic()
        self._next_line = self._began

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def show(self, progress: Progress) -> None:
        if time.monotonic() < self._next_line:
            return
        self._next_line = time.monotonic() + PLAIN_LINE_EVERY_S
        claims = "  ".join(f"{_short(node)} {state.claims}" for node, state in sorted(progress.engines.items()))
        self.say(
            f"  sent {progress.sent}/{self._events}  taken {progress.consumed}"
            f"  completed {progress.completed}/{self._workflows}  claims: {claims or '-'}"
            f"  takeovers {progress.takeovers}  refused {progress.refused}"
        )


class TerminalView:
    """Events scroll by above a table that is redrawn."""

    def __init__(self, live: Live, *, events: int, workflows: int) -> None:
        self._live = live
        self._events, self._workflows = events, workflows
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        self._live.console.print(f"{time.monotonic() - self._began:6.1f} s  {text}", highlight=False, markup=False)

    def show(self, progress: Progress) -> None:
        self._live.update(Group(self._counts(progress), _engines(progress.engines)))

    def _counts(self, progress: Progress) -> str:
        return (
            f"signals sent {progress.sent}/{self._events}, taken {progress.consumed}"
            f" · workflows started {progress.started}, completed {progress.completed}/{self._workflows}"
            f" · takeovers {progress.takeovers} · stale commits refused {progress.refused}"
        )


def _engines(engines: Mapping[str, EngineState]) -> Table:
    table = Table("engine", "state", "claims", "")
    most = max((state.claims for state in engines.values()), default=0)
    for node, state in sorted(engines.items()):
        bar = "█" * round(BAR * state.claims / most) if most else ""
        table.add_row(node, _state(state), str(state.claims), bar.ljust(BAR))
    return table


def _state(state: EngineState) -> str:
    if state.is_silent and state.status == "live":
        return f"silent for {state.silence.total_seconds():.0f} s"
    return state.status


def _short(node: str) -> str:
    return node.partition("@")[0]
