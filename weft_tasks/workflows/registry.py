"""The workflow types an application knows: a name and the handler that runs its turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from weft_tasks.errors import InvalidInput, UnknownWorkflowType
from weft_tasks.workflows.turn import Turn, TurnEnd

Handler: TypeAlias = Callable[[Turn], TurnEnd | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowType:
    """A handler under the name by which rows and engines know it."""

    name: str
    handler: Handler


class Registry:
    """Types by name."""

    def __init__(self) -> None:
        self._types: dict[str, WorkflowType] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._types))

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
