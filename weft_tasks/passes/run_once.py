"""The four passes in their order, each on its own feet: what one does, or fails to do, stops none of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from weft_tasks.passes.clock import Clock
from weft_tasks.passes.reclaim import reclaim_claims
from weft_tasks.passes.renewal import renew_claims
from weft_tasks.passes.signal_poll import poll_signals
from weft_tasks.passes.sink import PassSink, log_pass, tell
from weft_tasks.passes.sweep import PassContext
from weft_tasks.passes.targets import Targets
from weft_tasks.passes.update_poll import poll_updates
from weft_tasks.results import PassFailed, PassKind, PassResult, RunOnceResult, reason_of


def run_once(targets: Targets, context: PassContext, *, on_pass_complete: PassSink = log_pass) -> RunOnceResult:
    """Renewal, reclaim, signal poll, update poll, in sequence. Each has the context's deadline to itself.

    A pass that raises is a `PassFailed` in its place; only what is no `Exception` (an interrupt, an exit) ends the run.
    """
    return run_in_order(
        partial(run_part, targets=targets, context=context, on_pass_complete=on_pass_complete), context.clock
    )


def run_in_order(run: Callable[[PassKind], PassResult[Any] | PassFailed | None], clock: Clock) -> RunOnceResult:
    """The order of `run_once`, for hosts that run each part in a way of their own."""
    return RunOnceResult(
        started_at=clock.now(),
        renewal=run(PassKind.RENEWAL),
        reclaim=run(PassKind.RECLAIM),
        signal_poll=run(PassKind.SIGNAL_POLL),
        update_poll=run(PassKind.UPDATE_POLL),
        finished_at=clock.now(),
    )


def run_part(
    kind: PassKind, targets: Targets, context: PassContext, on_pass_complete: PassSink
) -> PassResult[Any] | PassFailed | None:
    """One pass by its kind, with the sink told of it. `None`, and nothing told, without a target."""
    target = targets.of(kind)
    if target is None:
        return None
    report = _run_pass(kind, target, context)
    tell(on_pass_complete, report)
    return report


def _run_pass(kind: PassKind, target: Any, context: PassContext) -> PassResult[Any] | PassFailed:
    started_at = context.clock.now()
    try:
        return _PASS_OF[kind](target, context)
    except Exception as error:
        return PassFailed(
            kind=kind,
            shard=context.shard,
            error=reason_of(error),
            started_at=started_at,
            finished_at=context.clock.now(),
        )


_PASS_OF: Final[Mapping[PassKind, Callable[[Any, PassContext], PassResult[Any]]]] = MappingProxyType(
    {
        PassKind.RENEWAL: renew_claims,
        PassKind.RECLAIM: reclaim_claims,
        PassKind.SIGNAL_POLL: poll_signals,
        PassKind.UPDATE_POLL: poll_updates,
    }
)
