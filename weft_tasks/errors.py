"""Every error the package raises: one shallow tree. A constructor takes facts and writes the sentence."""

from __future__ import annotations

from collections.abc import Sequence


class WeftError(Exception):
    """The root of everything the package raises on purpose."""


# -- configuration ---------------------------------------------------------------------------------------------------


class SettingsError(WeftError):
    """Settings that cannot work together, or that nobody knows. Raised before anything is written."""


class SchemaError(WeftError):
    """The database has no schema, or not the one this release works with."""


class DuplicateNodeError(WeftError):
    """Another live engine already runs under this node name (O12)."""

    def __init__(self, node: str, live_engine_id: str, refused_engine_id: str) -> None:
        super().__init__(
            f"node {node!r} is taken: engine {live_engine_id} is alive under that name, so engine {refused_engine_id} "
            f"does not start. Give each worker its own name (celery worker -n NAME@%h), or stop the other one first."
        )
        self.node, self.live_engine_id, self.refused_engine_id = node, live_engine_id, refused_engine_id


# -- outside world ---------------------------------------------------------------------------------------------------


class StoreUnavailable(WeftError):
    """The store did not answer, so what was asked is unknown: neither done nor refused (O8)."""


class LockUnavailable(WeftError):
    """The lock server did not answer, or answered with an error: nothing is known about the lock."""


class TooManyHungThreads(WeftError):
    """Items of earlier passes still hang on so many threads that a pass does not add to them. Nothing was tried.

    A process that gets this does not recover before those calls return, so it is best replaced by a fresh one.
    """

    def __init__(self, pool: str, hung: int, limit: int) -> None:
        super().__init__(
            f"{hung} threads of earlier {pool} passes still hang (limit {limit}), so this pass starts no more of them. "
            f"Give the calls they hang in a time limit, or replace this process."
        )
        self.pool, self.hung, self.limit = pool, hung, limit


# -- bad input -------------------------------------------------------------------------------------------------------


class InvalidInput(WeftError, ValueError):
    """An id, a name, a payload or a duration that cannot be accepted. Nothing was written."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what} {problem}")
        self.what = what


class UnknownWorkflowType(WeftError, LookupError):
    """No workflow of this type is registered with this application."""

    def __init__(self, type_name: str, known: Sequence[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"no workflow type {type_name!r} is registered here (known: {names})")
        self.type_name = type_name


class WorkflowNotFound(WeftError, LookupError):
    """No workflow has this id."""

    def __init__(self, workflow_id: str) -> None:
        super().__init__(f"no workflow has the id {workflow_id!r}")
        self.workflow_id = workflow_id


class WorkflowAlreadyExists(WeftError):
    """A workflow with this id exists, so it was not started again."""

    def __init__(self, workflow_id: str, status: str) -> None:
        super().__init__(f"a workflow with the id {workflow_id!r} exists already (status {status})")
        self.workflow_id, self.status = workflow_id, status


class WorkflowEnded(WeftError):
    """The workflow is over and takes nothing more."""

    def __init__(self, workflow_id: str, status: str) -> None:
        super().__init__(f"workflow {workflow_id!r} has ended (status {status}) and takes nothing more")
        self.workflow_id, self.status = workflow_id, status


class SignalKeyConflict(WeftError):
    """A deduplication key was used again for a different signal."""

    def __init__(self, workflow_id: str, key: str) -> None:
        super().__init__(f"workflow {workflow_id!r} already has another signal under the key {key!r}")
        self.workflow_id, self.key = workflow_id, key


class UpdateKeyConflict(WeftError):
    """A key was used again for a different update."""

    def __init__(self, workflow_id: str, key: str) -> None:
        super().__init__(f"workflow {workflow_id!r} already has another update under the key {key!r}")
        self.workflow_id, self.key = workflow_id, key


class UpdateRejected(WeftError):
    """A validator refused the update; nothing was changed."""

    def __init__(self, workflow_id: str, name: str, reason: str) -> None:
        super().__init__(f"workflow {workflow_id!r} rejected the update {name!r}: {reason}")
        self.workflow_id, self.name, self.reason = workflow_id, name, reason


class UpdateFailed(WeftError):
    """The update's handler raised; what it did was undone. `error_type` is the name of what it raised."""

    def __init__(self, workflow_id: str, name: str, error_type: str, message: str) -> None:
        super().__init__(f"the update {name!r} of workflow {workflow_id!r} failed: {error_type}: {message}")
        self.workflow_id, self.name, self.error_type, self.message = workflow_id, name, error_type, message


class ResultTimeout(WeftError, TimeoutError):
    """There is no result yet. Waiting longer, or asking again, loses nothing."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} has no result after {seconds:g} s")


class WorkflowNotCompleted(WeftError):
    """The workflow ended in another way than by completing. `error` is what its row says about why."""

    def __init__(self, workflow_id: str, status: str, error: object) -> None:
        super().__init__(f"workflow {workflow_id!r} ended as {status}: {error}")
        self.workflow_id, self.status, self.error = workflow_id, status, error


class WrongStatus(WeftError):
    """What was asked makes no sense in the workflow's status."""

    def __init__(self, workflow_id: str, verb: str, status: str) -> None:
        super().__init__(f"workflow {workflow_id!r} cannot be {verb}: its status is {status}")
        self.workflow_id, self.status = workflow_id, status


class DamagedRow(WeftError):
    """A row of the store holds what none of ours wrote into it, such as text that is no JSON; the message says where.

    Its workflow fails like one whose handler raises; everything else goes on.
    """

    def __init__(self, workflow_id: str, column: str, problem: object) -> None:
        super().__init__(f"workflow {workflow_id!r}: {column} is damaged: {problem}")
        self.workflow_id, self.column = workflow_id, column


class TurnError(WeftError):
    """A handler used its turn in a way that has no meaning; the turn fails and commits nothing."""


def message_of(error: BaseException) -> str:
    """What the error says, also if it cannot be printed: whoever raised it must not stop its report."""
    try:
        return str(error)
    except Exception:
        return "(its message cannot be printed)"
