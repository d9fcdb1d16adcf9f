"""For tests: a bed for workflows, which needs no server, and local servers and clusters, which are real.

    from weft_tasks.testing import WorkflowBed

In pytest the fixture `workflow_bed` makes beds; nothing has to be imported for it. Names are imported when they are
first used, because the pytest plug-in lives in this package and is loaded into every run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft_tasks.testing.bed import WorkflowBed
    from weft_tasks.testing.bed_calls import Call
    from weft_tasks.testing.bed_crashes import SimulatedCrash

_HOME = {
    "Call": "weft_tasks.testing.bed_calls",
    "SimulatedCrash": "weft_tasks.testing.bed_crashes",
    "WorkflowBed": "weft_tasks.testing.bed",
}

__all__ = ["Call", "SimulatedCrash", "WorkflowBed"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
