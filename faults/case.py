"""A case: one fault or kind of fault under a name, what is expected of it in one sentence, and its own bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from faults.checks import DUE_BOUND
from faults.scene import Scene

Play: TypeAlias = Callable[[Scene], None]
BOTH = ("postgres", "sqlite")
POSTGRES = ("postgres",)
SQLITE = ("sqlite",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`needs` are options of the World that it wants for itself; without any it shares a standing one."""

    name: str
    group: str
    expected: str
    play: Play
    databases: tuple[str, ...] = BOTH
    bound: timedelta = DUE_BOUND
    needs: Mapping[str, Any] = field(default_factory=dict)
    missing: Callable[[], str | None] = lambda: None
    """Why it cannot run on this machine, if so."""


class Cases:
    """The cases of one group, registered by a decorator over the function that plays each."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.all: list[Case] = []

    def case(self, name: str, expected: str, **options: Any) -> Callable[[Play], Play]:
        def register(play: Play) -> Play:
            self.all.append(Case(name=name, group=self.group, expected=expected, play=play, **options))
            return play

        return register
