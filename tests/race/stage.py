"""The stage: lets one actor do one step at a time, and sees who waits for whose lock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from .actor import Actor, Verb

PATIENCE = 20.0
"""Seconds until a play that stands still has failed; far more than any step takes on a busy machine."""
A_MOMENT = 0.002
"""Seconds that an actor gets to come back by itself before somebody asks whether it waits for a lock."""

Choose: TypeAlias = Callable[[Sequence[Actor]], Actor]


class Watcher(Protocol):
    """Who knows of locks what no actor can say of itself while it waits."""

    def blocked(self, moving: Sequence[Actor], everybody: Sequence[Actor]) -> set[str]:
        """The names of those among `moving` that wait for a lock of another actor."""


@dataclass(slots=True)
class Play:
    """How a play went: who did which step, whose changes were committed in which order, and who had to wait."""

    steps: list[tuple[str, str]] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    waited: set[str] = field(default_factory=set)
    has_deadlocked: bool = False

    def at(self, actor: str, fragment: str) -> int:
        """Which step was the first of this actor that has `fragment` in it."""
        return next(n for n, (name, step) in enumerate(self.steps) if name == actor and fragment in step)

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.steps), default=0)
        lines = [f"{name:>{width}}  {step[:150]}" for name, step in self.steps]
        return "\n".join(["the schedule:", *lines, *(["then a deadlock"] if self.has_deadlocked else [])])


class Stage:
    """Several actors and one database."""

    def __init__(self, actors: Sequence[Actor], watcher: Watcher) -> None:
        self.actors = tuple(actors)
        self._watcher = watcher

    def play(self, verbs: Mapping[str, Verb], choose: Choose, after_step: Callable[[str], None]) -> Play:
        """Play each verb by the actor of its name, in the order that `choose` picks from those who can go on.

        An actor that waits for a lock cannot, and the play goes on with the others. If all wait, the database is left
        to break the deadlock. `after_step` is called with each step once everybody stands still.
        """
        actors = [actor for actor in self.actors if actor.name in verbs]
        play = Play()
        try:
            for actor in actors:
                actor.ends = play.ends.append
                actor.enter(verbs[actor.name])
                self._settle(actors, play)
            while not all(actor.is_over for actor in actors):
                self._step(actors, choose, play, after_step)
        except BaseException:
            _clear(actors)
            raise
        return play

    def _step(self, actors: Sequence[Actor], choose: Choose, play: Play, after_step: Callable[[str], None]) -> None:
        ready = [actor for actor in actors if not actor.is_over and not actor.is_moving]
        if not ready:
            play.has_deadlocked = True
            _wait_for_any(actors)
            self._settle(actors, play)
            return
        actor = choose(ready)
        step = actor.step
        play.steps.append((actor.name, step))
        actor.let_go()
        self._settle(actors, play)
        after_step(step)

    def _settle(self, actors: Sequence[Actor], play: Play) -> None:
        """Wait until each actor has arrived or waits for a lock; one look at all of them at a time."""
        deadline = time.monotonic() + PATIENCE
        while moving := [actor for actor in actors if actor.is_moving]:
            if any(actor.has_arrived(A_MOMENT) for actor in moving):
                continue
            blocked = self._watcher.blocked(moving, actors)
            if {actor.name for actor in moving} <= blocked:
                play.waited |= blocked
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"neither back nor waiting for a lock: {moving}\n{play}")


def _wait_for_any(actors: Sequence[Actor]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not any(actor.has_arrived(A_MOMENT) for actor in actors if not actor.is_over):
        if time.monotonic() > deadline:
            raise TimeoutError(f"a deadlock that the database does not break: {list(actors)}")


def _clear(actors: Sequence[Actor]) -> None:
    for actor in actors:
        actor.abandon()
    for actor in actors:
        actor.leave(PATIENCE)
