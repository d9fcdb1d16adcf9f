"""Durable workflows with exactly one live owner, for Celery applications.

    from weft_tasks import Weft

    weft = Weft(app)

Names are imported when they are first used: `import weft_tasks` alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft_tasks.errors import (
        InvalidInput,
        LockUnavailable,
        SchemaError,
        SettingsError,
        SignalKeyConflict,
        StoreUnavailable,
        TurnError,
        UnknownWorkflowType,
        WeftError,
        WorkflowAlreadyExists,
        WorkflowEnded,
        WorkflowNotFound,
    )
    from weft_tasks.model import SignalReceipt, WorkflowInfo, WorkflowStatus
    from weft_tasks.weft import Weft
    from weft_tasks.workflows.turn import Turn

__version__ = "0.1.0"

_HOME = {
    # the suite
    "Weft": "weft_tasks.weft",
    "Turn": "weft_tasks.workflows.turn",
    # what it answers
    "SignalReceipt": "weft_tasks.model",
    "WorkflowInfo": "weft_tasks.model",
    "WorkflowStatus": "weft_tasks.model",
    # what it raises
    "InvalidInput": "weft_tasks.errors",
    "LockUnavailable": "weft_tasks.errors",
    "SchemaError": "weft_tasks.errors",
    "SettingsError": "weft_tasks.errors",
    "SignalKeyConflict": "weft_tasks.errors",
    "StoreUnavailable": "weft_tasks.errors",
    "TurnError": "weft_tasks.errors",
    "UnknownWorkflowType": "weft_tasks.errors",
    "WeftError": "weft_tasks.errors",
    "WorkflowAlreadyExists": "weft_tasks.errors",
    "WorkflowEnded": "weft_tasks.errors",
    "WorkflowNotFound": "weft_tasks.errors",
}

__all__ = [
    "InvalidInput",
    "LockUnavailable",
    "SchemaError",
    "SettingsError",
    "SignalKeyConflict",
    "SignalReceipt",
    "StoreUnavailable",
    "Turn",
    "TurnError",
    "UnknownWorkflowType",
    "Weft",
    "WeftError",
    "WorkflowAlreadyExists",
    "WorkflowEnded",
    "WorkflowInfo",
    "WorkflowNotFound",
    "WorkflowStatus",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # `celery -A weft_tasks` looks for an application under these two names; the module `weft_tasks.app` has it.
    if name in ("app", "celery"):
        return import_module("weft_tasks.app").app
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
