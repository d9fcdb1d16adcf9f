"""Who hears of a pass when it is over: a sink, by default one that writes the pass's log line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from weft_tasks.lines import Field, write
from weft_tasks.results import PassFailed, PassReport, PassResult, PassStatus

logger: Final = logging.getLogger("weft_tasks.passes")

PassSink: TypeAlias = Callable[[PassReport], None]
"""Called once after every pass, on the thread that ran it, with its result or with the record of how it failed."""

ROUTINE: Final = frozenset({"renewed", "not-buffered", "no-pending-updates", "not-eligible"})
"""A pass that found nothing else writes no line."""


def tell(sink: PassSink, report: PassReport) -> None:
    """Calls the sink. One that raises is logged with its traceback, and changes nothing."""
    try:
        sink(report)
    except Exception:
        write(logger, logging.ERROR, "weft.pass.sink-failed", {"pass": report.name}, exc_info=True)


def log_pass(report: PassReport) -> None:
    """The default sink: one line per pass with all its counts, and none for a pass that found nothing to do."""
    if isinstance(report, PassFailed):
        write(logger, logging.ERROR, "weft.pass.failed", {"pass": report.name, "error": report.error})
        return
    needs_a_look = _needs_a_look(report)
    if needs_a_look or not set(report.counts) <= ROUTINE:
        write(logger, logging.WARNING if needs_a_look else logging.INFO, "weft.pass.completed", _fields(report))


def _fields(result: PassResult[Any]) -> dict[str, Field]:
    return {
        "pass": result.name,
        "status": result.status.value,
        "seconds": result.duration.total_seconds(),
        "counts": dict(sorted(result.counts.items())),
        "unreached": result.unreached or None,
        "split_slices": result.split_slices or None,
        "because": result.split_reason if result.split_slices else None,
        "error": result.error,
    }


def _needs_a_look(result: PassResult[Any]) -> bool:
    return (
        result.status is not PassStatus.COMPLETED
        or result.split_slices > 0
        or result.unreached > 0
        or any(outcome.is_failed_renewal for outcome in result.outcomes)
    )
