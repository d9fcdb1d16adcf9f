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
        DamagedRow,
        DuplicateNodeError,
        InvalidInput,
        LockUnavailable,
        ResultTimeout,
        SchemaError,
        SettingsError,
        SignalKeyConflict,
        StoreUnavailable,
        TurnError,
        UnknownWorkflowType,
        UpdateFailed,
        UpdateKeyConflict,
        UpdateRejected,
        WeftError,
        WorkflowAlreadyExists,
        WorkflowEnded,
        WorkflowNotCompleted,
        WorkflowNotFound,
        WrongStatus,
    )
    from weft_tasks.handles import UpdateHandle, WorkflowHandle
    from weft_tasks.model import SignalReceipt, UpdateReceipt, WorkflowInfo, WorkflowStatus
    from weft_tasks.settings import NEVER
    from weft_tasks.weft import OnConflict, Weft
    from weft_tasks.workflows.registry import Retry, WorkflowType
    from weft_tasks.workflows.turn import Turn, TurnEnd

__version__ = "0.1.0"

_HOME = {
    # the suite
    "Weft": "weft_tasks.weft",
    "OnConflict": "weft_tasks.weft",
    "Turn": "weft_tasks.workflows.turn",
    "TurnEnd": "weft_tasks.workflows.turn",
    "Retry": "weft_tasks.workflows.registry",
    "WorkflowType": "weft_tasks.workflows.registry",
    "UpdateHandle": "weft_tasks.handles",
    "WorkflowHandle": "weft_tasks.handles",
    "NEVER": "weft_tasks.settings",
    # what it answers
    "SignalReceipt": "weft_tasks.model",
    "UpdateReceipt": "weft_tasks.model",
    "WorkflowInfo": "weft_tasks.model",
    "WorkflowStatus": "weft_tasks.model",
    # what it raises
    "DamagedRow": "weft_tasks.errors",
    "DuplicateNodeError": "weft_tasks.errors",
    "InvalidInput": "weft_tasks.errors",
    "LockUnavailable": "weft_tasks.errors",
    "ResultTimeout": "weft_tasks.errors",
    "SchemaError": "weft_tasks.errors",
    "SettingsError": "weft_tasks.errors",
    "SignalKeyConflict": "weft_tasks.errors",
    "StoreUnavailable": "weft_tasks.errors",
    "TurnError": "weft_tasks.errors",
    "UnknownWorkflowType": "weft_tasks.errors",
    "UpdateFailed": "weft_tasks.errors",
    "UpdateKeyConflict": "weft_tasks.errors",
    "UpdateRejected": "weft_tasks.errors",
    "WeftError": "weft_tasks.errors",
    "WorkflowAlreadyExists": "weft_tasks.errors",
    "WorkflowEnded": "weft_tasks.errors",
    "WorkflowNotCompleted": "weft_tasks.errors",
    "WorkflowNotFound": "weft_tasks.errors",
    "WrongStatus": "weft_tasks.errors",
}

__all__ = [
    "NEVER",
    "DamagedRow",
    "DuplicateNodeError",
    "InvalidInput",
    "LockUnavailable",
    "OnConflict",
    "ResultTimeout",
    "Retry",
    "SchemaError",
    "SettingsError",
    "SignalKeyConflict",
    "SignalReceipt",
    "StoreUnavailable",
    "Turn",
    "TurnEnd",
    "TurnError",
    "UnknownWorkflowType",
    "UpdateFailed",
    "UpdateHandle",
    "UpdateKeyConflict",
    "UpdateReceipt",
    "UpdateRejected",
    "Weft",
    "WeftError",
    "WorkflowAlreadyExists",
    "WorkflowEnded",
    "WorkflowHandle",
    "WorkflowInfo",
    "WorkflowNotCompleted",
    "WorkflowNotFound",
    "WorkflowStatus",
    "WorkflowType",
    "WrongStatus",
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
