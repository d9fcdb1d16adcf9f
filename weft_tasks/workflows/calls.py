"""Celery tasks as activities: a signature becomes a debt of the commit, with an id that stays the same over tries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft_tasks.errors import TurnError
from weft_tasks.store.outbox import Debt, DebtKind
from weft_tasks.store.payloads import encode


def call_of(
    signature: object, *, call_id: str, reply: str | None, workflow_id: str, run_id: str, payload_limit: int
) -> Debt:
    """The debt that sends `signature` after the commit. Raises TurnError for what cannot be one call, and InvalidInput
    for arguments that are not JSON or too large."""
    if not isinstance(signature, Mapping) or "task" not in signature:
        raise TurnError(f"turn.call takes a Celery signature, such as task.s(1, 2), not {type(signature).__name__}")
    kind = signature.get("subtask_type")
    if kind not in (None, "chain"):
        raise TurnError(
            f"turn.call takes a single task or a chain; a {kind} has no one result to reply with: call each of its "
            "tasks under a reply of its own, or wrap it in a task"
        )
    if signature.get("options", {}).get("task_id"):
        raise TurnError("turn.call gives the task its id, which must be the same in every try: remove task_id")
    body = {"signature": _plain(signature), "reply": reply}
    encode("signature", body, payload_limit)
    return Debt(id=call_id, kind=DebtKind.CALL, workflow_id=workflow_id, run_id=run_id, body=body)


def _plain(value: Any) -> Any:
    """A signature as plain dicts and lists; Celery's own classes are subclasses of them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
