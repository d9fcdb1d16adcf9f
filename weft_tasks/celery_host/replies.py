"""The way back of a called task: its result or its failure becomes a signal of the workflow that called it.

Celery's own callbacks carry it: a link for the result, an errback for the failure. The call's id is the signal's key:
a task that ran twice, or a callback that was delivered twice, is one signal all the same. A callback that was lost is
made up for by a pass, which reads the outcome from the result backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import Celery, Task
from celery.backends.base import DisabledBackend
from celery.canvas import Signature
from celery.states import READY_STATES, SUCCESS
from celery.utils.functional import head_from_fun

from weft_tasks.celery_host.forged import discarded, is_name
from weft_tasks.celery_host.names import MAINTENANCE_QUEUE, REPLY, REPLY_FAILURE
from weft_tasks.errors import StoreUnavailable, WorkflowEnded, WorkflowNotFound
from weft_tasks.store.outbox import Debt
from weft_tasks.workflows.dispatcher import CallOutcome

if TYPE_CHECKING:
    from weft_tasks.weft import Weft

RETRY_DELAY_S = 5


class ReplyTask(Task):
    """Delivers a result. Repeated until the store has it: perhaps nobody else knows the result any more."""

    name = REPLY
    ignore_result = True
    acks_late = True
    max_retries = None

    def __init__(self, weft: Weft) -> None:
        self._weft = weft

    def run(self, *result: Any, **call: Any) -> dict[str, Any]:
        """`call` names the workflow, its run, the call and the signal; `is_failure` says what `result` is."""
        if len(result) > 1 or not _is_call(call):
            return discarded(self, "malformed reply")
        try:
            return {"reply": self._deliver(result[0] if result else None, **call)}
        except StoreUnavailable as error:
            raise self.retry(exc=error, countdown=RETRY_DELAY_S) from error

    def _deliver(
        self, result: Any, *, workflow_id: str, run_id: str, call_id: str, reply: str, is_failure: bool = False
    ) -> str:
        payments = self._weft.payments
        try:
            problem = payments.deliver_reply(workflow_id, run_id, call_id, reply, result, is_failure=is_failure)
        except (WorkflowNotFound, WorkflowEnded) as gone:
            return f"not delivered: {gone}"
        return "delivered" if problem is None else f"delivered as a failure: {problem}"


class ReplyFailureTask(Task):
    """Turns a failure into a reply. Celery calls it in the process where the task failed, with the exception; a worker
    that does not know it sends it on with the task's id alone."""

    name = REPLY_FAILURE
    ignore_result = True
    acks_late = True

    def run(self, *failure: Any, **call: Any) -> dict[str, Any]:
        if not _is_call(call) or "is_failure" in call:
            return discarded(self, "malformed reply")
        described = _described(failure) if len(failure) >= 3 else self._looked_up(failure)
        self.app.tasks[REPLY].apply_async(
            args=[described], kwargs={**call, "is_failure": True}, queue=MAINTENANCE_QUEUE
        )
        return {"reply": "on its way"}

    def _looked_up(self, failure: tuple[Any, ...]) -> dict[str, Any]:
        task_id = failure[0] if failure and is_name(failure[0]) else None
        error = self.app.AsyncResult(task_id).result if task_id else None
        return {"type": type(error).__name__ if error is not None else "Unknown", "message": str(error)[:2000]}


def _is_call(call: dict[str, Any]) -> bool:
    """Whether it names a call, as `signature_of` wrote it; whether there is such a call, the rows decide."""
    names = {"workflow_id", "run_id", "call_id", "reply"}
    return (
        names <= set(call) <= {*names, "is_failure"}
        and all(is_name(call[name]) for name in names)
        and isinstance(call.get("is_failure", False), bool)
    )


def _head(request: Any, exc: Any, traceback: Any) -> None:
    """The signature by which Celery recognises an errback that wants the exception."""


ReplyFailureTask.__header__ = staticmethod(head_from_fun(_head))


def _described(failure: tuple[Any, ...]) -> dict[str, Any]:
    _request, error, trace = failure[:3]
    return _failure(error, trace)


def _failure(error: object, trace: object) -> dict[str, Any]:
    return {"type": type(error).__name__, "message": str(error)[:2000], "traceback": str(trace or "")[-8000:]}


def read_outcome(app: Celery, call_id: str) -> CallOutcome | None:
    """What the result backend knows of a task that has ended; None if nothing. Raises whatever the backend raises."""
    if isinstance(app.backend, DisabledBackend):
        return None
    known = app.backend.get_task_meta(call_id, cache=False)
    if known["status"] not in READY_STATES:
        return None
    if known["status"] == SUCCESS:
        return CallOutcome(payload=known["result"], is_failure=False)
    return CallOutcome(payload=_failure(known["result"], known.get("traceback")), is_failure=True)


def register_reply_tasks(app: Celery, weft: Weft) -> None:
    app.register_task(ReplyTask(weft))
    app.register_task(ReplyFailureTask())


def signature_of(app: Celery, debt: Debt) -> Signature:
    """The task that a commit owes, with the way back attached."""
    signature: Signature = app.signature(dict(debt.body["signature"]))
    reply = debt.body["reply"]
    if reply is not None:
        call = {"workflow_id": debt.workflow_id, "run_id": debt.run_id, "call_id": debt.id, "reply": reply}
        signature.link(app.tasks[REPLY].s(**call).set(queue=MAINTENANCE_QUEUE))
        signature.link_error(app.tasks[REPLY_FAILURE].s(**call).set(queue=MAINTENANCE_QUEUE))
    return signature
