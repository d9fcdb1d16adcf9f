"""Messages that none of ours sent: each ends as one line in the log, and changes nothing."""

from __future__ import annotations

import logging
from typing import Any

from celery import Task

from weft_tasks.errors import InvalidInput
from weft_tasks.lines import write
from weft_tasks.store.payloads import checked_name

logger = logging.getLogger("weft_tasks")


def discarded(task: Task, reason: str) -> dict[str, Any]:
    """Say so in one line. What the message says is a stranger's, and perhaps long: the line does not repeat it."""
    fields = {"task": task.name, "id": str(task.request.id)[:255], "reason": reason}
    write(logger, logging.WARNING, "weft.message.discarded", fields)
    return {"status": "discarded", "reason": reason}


def is_name(value: object) -> bool:
    """Whether it can be an id or a name of ours: text that both databases take, and of a length that they keep."""
    try:
        checked_name("name", value)
    except InvalidInput:
        return False
    return True
