"""The workflow types an application knows: for each name its handler, its update handlers, and how it is retried."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from weft_tasks.errors import InvalidInput, UnknownWorkflowType
from weft_tasks.store.payloads import checked_name
from weft_tasks.workflows.turn import Turn, TurnEnd

Handler: TypeAlias = Callable[[Turn], TurnEnd | None]
UpdateHandler: TypeAlias = Callable[[Turn, Any], Any]
Validator: TypeAlias = Callable[[Turn, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a turn whose handler raises is tried, and how long it waits: `delay`, doubled each time, at most
    `max_delay`. What is None comes from the settings."""

    tries: int | None = None
    delay: timedelta | None = None
    max_delay: timedelta | None = None

    def __post_init__(self) -> None:
        if self.tries is not None and self.tries < 1:
            raise InvalidInput("retry tries", f"must be at least 1, not {self.tries}")
        for name in ("delay", "max_delay"):
            value = getattr(self, name)
            if value is not None and value < timedelta(0):
                raise InvalidInput(f"retry {name}", f"must not be negative: {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateType:
    """A handler of one update, and what may refuse it before it runs."""

    handler: UpdateHandler
    validator: Validator | None


class WorkflowType:
    """A registered workflow: calling it calls its handler, and its decorators add to it.

    `version` is what new workflows of this type carry; `runs` are the versions that this code can run.
    """

    def __init__(
        self, name: str, handler: Handler, *, version: int = 1, runs: Iterable[int] = (), retry: Retry | None = None
    ) -> None:
        self.name = checked_name("workflow type", name)
        self.handler = handler
        self.version = _checked_version(version)
        self.runs = frozenset(_checked_version(v) for v in runs) | {self.version}
        self.retry = retry or Retry()
        self.updates: dict[str, UpdateType] = {}
        self.cancel_handler: Handler | None = None
        functools.update_wrapper(self, handler)

    def __call__(self, turn: Turn) -> TurnEnd | None:
        return self.handler(turn)

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} version {self.version}>"

    def update(self, name: str, *, validator: Validator | None = None) -> Callable[[UpdateHandler], UpdateHandler]:
        """Register the handler of an update: `@permit.update("approve")`. It gets the turn and the payload; what it
        returns is the answer. A `validator` that raises rejects the update, and nothing is changed."""
        checked_name("update name", name)

        def register(handler: UpdateHandler) -> UpdateHandler:
            if name in self.updates:
                raise InvalidInput("update name", f"{name!r} is registered already for {self.name!r}")
            self.updates[name] = UpdateType(handler=handler, validator=validator)
            return handler

        return register

    def on_cancel(self, handler: Handler) -> Handler:
        """Register what runs in the last turn of a cancelled workflow, to clean up: `@permit.on_cancel`."""
        self.cancel_handler = handler
        return handler


class Registry:
    """Types by name."""

    def __init__(self) -> None:
        self._types: dict[str, WorkflowType] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._types))

    @property
    def versions(self) -> Mapping[str, frozenset[int]]:
        """The versions of each type that this process can run."""
        return {name: workflow_type.runs for name, workflow_type in self._types.items()}

    def register(self, workflow_type: WorkflowType) -> None:
        """Raises InvalidInput if another handler already has the name."""
        known = self._types.setdefault(workflow_type.name, workflow_type)
        if known.handler is not workflow_type.handler:
            raise InvalidInput("workflow type", f"{workflow_type.name!r} is registered already, to {known.handler!r}")

    def get(self, name: str) -> WorkflowType:
        """Raises UnknownWorkflowType."""
        try:
            return self._types[name]
        except KeyError:
            raise UnknownWorkflowType(name, self.names) from None

    def policy(self, name: str) -> Retry:
        """The retry policy of a type, registered here or not."""
        known = self._types.get(name)
        return Retry() if known is None else known.retry


def _checked_version(version: int) -> int:
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < 2**31:
        raise InvalidInput("workflow version", f"must be a whole number from 1 on, not {version!r}")
    return version
