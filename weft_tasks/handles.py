"""Handles: what `start` and `update` return, to wait for a result from any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from weft_tasks.errors import (
    ResultTimeout,
    UpdateFailed,
    UpdateRejected,
    WorkflowEnded,
    WorkflowNotCompleted,
    WorkflowNotFound,
)
from weft_tasks.model import Json, SignalReceipt, UpdateReceipt, WorkflowInfo, WorkflowStatus
from weft_tasks.results import reason_in
from weft_tasks.store.payloads import checked_duration
from weft_tasks.store.updates import UpdateState, UpdateStatus

if TYPE_CHECKING:
    from weft_tasks.weft import Weft

T = TypeVar("T")
FIRST_PAUSE_S = 0.005
LONGEST_PAUSE_S = 0.5


class WorkflowHandle:
    """One run of a workflow. Holds no connection and may be thrown away."""

    def __init__(self, weft: Weft, id: str, run_id: str) -> None:
        self._weft = weft
        self.id = id
        self.run_id = run_id

    def __repr__(self) -> str:
        return f"<WorkflowHandle {self.id!r} run {self.run_id}>"

    def describe(self) -> WorkflowInfo:
        """The workflow as its row is now. Raises WorkflowNotFound, also when the id belongs to another run by now."""
        info = self._weft.describe(self.id)
        if info.run_id != self.run_id:
            raise WorkflowNotFound(self.id)
        return info

    def result(self, timeout: timedelta | float = 30) -> Json:
        """What the workflow completed with; waits up to `timeout` (seconds) by reading its row ever less often.

        Raises ResultTimeout, WorkflowNotCompleted for any other ending, WorkflowNotFound if the run was purged.
        """
        info = _until(self._if_over, lambda: f"workflow {self.id!r} ({self.describe().status})", timeout)
        if info.status is WorkflowStatus.COMPLETED:
            return info.result
        raise WorkflowNotCompleted(self.id, info.status.value, info.error)

    def signal(self, name: str, payload: Json = None, *, key: str | None = None) -> SignalReceipt:
        """`Weft.signal` for this run. Raises WorkflowNotFound when the id belongs to another run by now."""
        return self._weft.signal(self.id, name, payload, key=key, run_id=self.run_id)

    def update(self, name: str, payload: Json = None, *, key: str | None = None) -> UpdateHandle:
        """`Weft.update` for this run. Raises WorkflowNotFound when the id belongs to another run by now."""
        return self._weft.update(self.id, name, payload, key=key, run_id=self.run_id)

    def _if_over(self) -> WorkflowInfo | None:
        info = self.describe()
        return info if info.status.is_ended else None


class UpdateHandle:
    """One update. Its receipt is all there is to it: another process can wait for the same answer."""

    def __init__(self, weft: Weft, receipt: UpdateReceipt, name: str) -> None:
        self._weft = weft
        self.receipt = receipt
        self.name = name

    def __repr__(self) -> str:
        return f"<UpdateHandle {self.name!r} of {self.receipt.workflow_id!r} key {self.receipt.key!r}>"

    def result(self, timeout: timedelta | float = 30) -> Any:
        """What the update's handler returned; waits up to `timeout` (seconds).

        Raises UpdateRejected (a validator refused it), UpdateFailed (its handler raised), WorkflowEnded or
        WorkflowNotFound (the workflow ended or was purged first), ResultTimeout.
        """
        what = f"the update {self.name!r} of {self.receipt.workflow_id!r}"
        state = _until(self._if_answered, lambda: what, timeout)
        return self._answer(state)

    def _if_answered(self) -> UpdateState | None:
        state = self._weft.store.updates.read(self.receipt)
        return None if state.status is UpdateStatus.PENDING else state

    def _answer(self, state: UpdateState) -> Any:
        workflow_id, answer = self.receipt.workflow_id, state.answer
        if state.status is UpdateStatus.ANSWERED:
            return answer
        if state.status is UpdateStatus.ABANDONED:
            raise WorkflowEnded(workflow_id, str(answer))
        facts: dict[str, Any] = answer if isinstance(answer, dict) else {}
        if state.status is UpdateStatus.REJECTED:
            raise UpdateRejected(workflow_id, self.name, reason_in(facts))
        raise UpdateFailed(workflow_id, self.name, str(facts.get("type")), str(facts.get("message")))


def _until(look: Callable[[], T | None], what: Callable[[], str], timeout: timedelta | float) -> T:
    seconds = checked_duration("timeout", timeout).total_seconds()
    for pause in _pauses(seconds):
        found = look()
        if found is not None:
            return found
        time.sleep(pause)
    raise ResultTimeout(what(), seconds)


def _pauses(timeout: float) -> Iterator[float]:
    """Short at first, because an answer usually takes milliseconds; the last look is at the timeout."""
    end = time.monotonic() + timeout
    pause = FIRST_PAUSE_S
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * 1.3, LONGEST_PAUSE_S)
    yield 0
