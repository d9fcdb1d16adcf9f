"""Keeps Celery's own two lines per tick out of the log: a pass that did something writes its own line, and a pass every
few seconds that did nothing should write none."""

from __future__ import annotations

import logging

from weft_tasks.celery_host.names import TASK_OF_PASS

CELERY_TASK_LOGGERS = ("celery.worker.strategy", "celery.app.trace")
_TICKS = frozenset(TASK_OF_PASS.values())


def hide_ticks_that_went_well() -> None:
    """Before the fork, so that every process of the pool has it. Failures of a tick are logged as ever."""
    for name in CELERY_TASK_LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(known, _TickFilter) for known in logger.filters):
            logger.addFilter(_TickFilter())


class _TickFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        is_tick = isinstance(record.args, dict) and record.args.get("name") in _TICKS
        return not is_tick or record.levelno > logging.INFO
