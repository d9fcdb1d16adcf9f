"""Who hears of a pass when it is over: a sink, by default one that writes the pass's log line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from weft_tasks.results import PassFailed, PassReport, PassResult, PassStatus

logger: Final = logging.getLogger("weft_tasks.passes")

PassSink: TypeAlias = Callable[[PassReport], None]
"""Called once after every pass, on the thread that ran it, with its result or with the record of how it failed."""


def tell(sink: PassSink, report: PassReport) -> None:
    """Calls the sink. One that raises is logged with its traceback, and changes nothing."""
    try:
        sink(report)
    except Exception:
        logger.exception("the sink raised after the %s pass", report.kind)


def log_pass(report: PassReport) -> None:
    """The default sink: one line per pass with all its counts, and none for a pass that found nothing to do."""
    if isinstance(report, PassFailed):
        logger.error("%s failed: %s", report.kind, report.error)
    elif report.status is not PassStatus.COMPLETED or report.split_slices:
        logger.warning("%s", _line(report))
    elif report.outcomes:
        logger.info("%s", _line(report))


def _line(result: PassResult[Any]) -> str:
    counts = {**dict(sorted(result.counts.items())), "unreached": result.unreached, "split-slices": result.split_slices}
    facts = [f"{name}={count}" for name, count in counts.items() if count]
    reasons = [reason for reason in (result.error, result.split_reason) if reason is not None]
    return f"{result.kind} {result.status} in {result.duration.total_seconds():.3f} s: {', '.join([*facts, *reasons])}"
