"""Schedules: the orders in which actors can take their steps, each that matters once, or some drawn by a seed.

Two schedules that differ only in the order of neighbouring steps that commute have the same end. Of each such family
one member is played ("sleep sets", Godefroid 1996): a step that was tried at a fork sleeps on the other ways out of
it, until a step that it does not commute with wakes it up.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from .actor import Actor
from .stage import Choose

T = TypeVar("T")


def every_schedule(run: Callable[[Choose], T], *, skips_families: bool = True) -> Iterator[T]:
    """Run once for each family of schedules: the same beginning again, and at the last fork the next way.

    `skips_families=False` plays every member. For two actors: with three, the step that lets one of the others out of
    its wait stands for more than itself.
    """
    forks: list[_Fork] = []
    while True:
        yield run(_Search(forks, skips_families).choose)
        while forks and not forks[-1].has_more():
            forks.pop()
        if not forks:
            return
        forks[-1].take_next()


def drawn_schedules(run: Callable[[Choose], T], *, count: int, seed: int) -> Iterator[T]:
    """Run `count` times, each step by an actor drawn from those who can go on."""
    rng = random.Random(seed)
    for _ in range(count):
        yield run(lambda ready: next((actor for actor in ready if actor.is_alone), None) or rng.choice(ready))


def whole_transactions(choose: Choose) -> Choose:
    """The same choice, but only between transactions: one that has begun is played to its end."""

    def choose_whole(ready: Sequence[Actor]) -> Actor:
        begun = [actor for actor in ready if actor.in_transaction]
        return begun[0] if begun else choose(ready)

    return choose_whole


@dataclass(slots=True)
class _Fork:
    """A moment at which more than one actor could go on."""

    awake: list[str]
    tried: list[str] = field(default_factory=list)

    def has_more(self) -> bool:
        return len(self.tried) < len(self.awake)

    def take_next(self) -> None:
        self.tried.append(self.awake[len(self.tried)])


class _Search:
    """One run through the known forks, and on from there by the first way at each new one."""

    def __init__(self, forks: list[_Fork], skips_families: bool) -> None:
        self._forks = forks
        self._skips_families = skips_families
        self._passed = 0
        self._asleep: set[str] = set()

    def choose(self, ready: Sequence[Actor]) -> Actor:
        by_name = {actor.name: actor for actor in ready}
        name = self._way(ready)
        chosen = by_name[name]
        self._asleep = {
            other
            for other in self._asleep
            if self._skips_families and other != name and other in by_name and by_name[other].commutes_with(chosen)
        }
        return chosen

    def _way(self, ready: Sequence[Actor]) -> str:
        alone = [actor.name for actor in ready if actor.is_alone]
        if alone and self._skips_families:
            return alone[0]
        awake = [actor.name for actor in ready if actor.name not in self._asleep]
        if not awake:  # A member of a family that was played already: on to its end without any more forks.
            return ready[0].name
        if len(awake) == 1:
            return awake[0]
        if self._passed == len(self._forks):
            self._forks.append(_Fork(awake))
            self._forks[-1].take_next()
        fork = self._forks[self._passed]
        self._passed += 1
        self._asleep |= set(fork.tried[:-1])
        return fork.tried[-1]
