"""Celery tasks as activities: a signature becomes a debt of the commit, with an id that stays the same over tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from weft_tasks.errors import TurnError
from weft_tasks.settings import NEVER
from weft_tasks.store.clock import milliseconds
from weft_tasks.store.outbox import Debt, DebtKind
from weft_tasks.store.payloads import encode


def call_of(
    signature: object,
    *,
    call_id: str,
    reply: str | None,
    workflow_id: str,
    run_id: str,
    payload_limit: int,
    resend_after: timedelta | None = None,
) -> Debt:
    """The debt that sends `signature` after the commit. Raises TurnError for what cannot be one call, and InvalidInput
    for arguments that are not JSON or too large. `resend_after` counts from when the task may first run; None takes the
    setting."""
    if not isinstance(signature, Mapping) or "task" not in signature:
        raise TurnError(f"turn.call takes a Celery signature, such as task.s(1, 2), not {type(signature).__name__}")
    _refuse_what_has_no_one_result(signature)
    if (signature.get("options") or {}).get("task_id"):
        raise TurnError("turn.call gives the task its id, which must be the same in every try: remove task_id")
    plain = _plain_signature(signature)
    _name_parts(plain, call_id)
    body = {"signature": plain, "reply": reply, "put_off_ms": milliseconds(_put_off(signature))}
    if resend_after is not None:
        body["resend_after_ms"] = None if resend_after == NEVER else milliseconds(resend_after)
    encode("signature", body, payload_limit)
    return Debt(id=call_id, kind=DebtKind.CALL, workflow_id=workflow_id, run_id=run_id, body=body)


def _refuse_what_has_no_one_result(signature: Mapping[str, Any]) -> None:
    kind = signature.get("subtask_type")
    if kind not in (None, "chain"):
        raise TurnError(
            f"turn.call takes a single task or a chain of them; a {kind} has no one result to reply with: call each of "
            "its tasks for itself, or wrap it in a task"
        )
    for part in _parts(signature):
        _refuse_what_has_no_one_result(part)


def _plain_signature(signature: Mapping[str, Any]) -> dict[str, Any]:
    """As plain JSON. Among the options a time may stand as text, and Celery knows it again."""
    plain: dict[str, Any] = {key: _plain(item) for key, item in signature.items() if key != "options"}
    plain["options"] = {
        name: value.isoformat() if isinstance(value, datetime) else _plain(value)
        for name, value in (signature.get("options") or {}).items()
    }
    if parts := _parts(signature):
        plain["kwargs"]["tasks"] = [_plain_signature(part) for part in parts]
    return plain


def _name_parts(plain: dict[str, Any], call_id: str) -> None:
    """The tasks of a chain have ids that stay the same over tries, too. Its last one has the id of the call."""
    for number, part in enumerate(_parts(plain)[:-1], start=1):
        part["options"].setdefault("task_id", f"{call_id}.{number}")


def _put_off(signature: Mapping[str, Any]) -> timedelta:
    """How long its countdown or its eta puts off a task."""
    options = signature.get("options") or {}
    eta, countdown = options.get("eta"), options.get("countdown")
    if isinstance(eta, datetime):
        return max(eta - datetime.now(eta.tzinfo), timedelta(0))
    return timedelta(seconds=countdown) if isinstance(countdown, int | float) and countdown > 0 else timedelta(0)


def _parts(signature: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The tasks of a chain; none of any other signature."""
    parts: Sequence[Mapping[str, Any]] = (
        signature["kwargs"]["tasks"] if signature.get("subtask_type") == "chain" else ()
    )
    return parts


def _plain(value: Any) -> Any:
    """Plain dicts and lists; Celery's own classes are subclasses of them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
