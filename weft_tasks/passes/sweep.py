"""The skeleton of every pass: read the work list, try each item in the pool, report. A pass adds only what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Self

from weft_tasks.errors import SettingsError
from weft_tasks.passes.clock import Clock, Deadline
from weft_tasks.passes.collector import Collector
from weft_tasks.passes.pool import DEFAULT_WIDTH, OrderedPool
from weft_tasks.passes.targets import Reference, workflow_id_of
from weft_tasks.passes.work import NOT_REACHED, SLICE, NotReached, TryAlone, Work
from weft_tasks.results import ItemOutcome, PassKind, PassResult, PassStatus, StatusT, reason_of
from weft_tasks.shards import WHOLE, Shard


def one_pool_per_pass(width: int = DEFAULT_WIDTH) -> Mapping[PassKind, OrderedPool]:
    """A pool for each pass, so that what hangs in one pass never makes another one refuse."""
    return MappingProxyType({kind: OrderedPool(kind.value, width=width) for kind in PassKind})


@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """What the passes of one process run with; built once and used for every pass, because the pools remember.

    `deadline` is how long a pass may take from its start, the reading of its work list included. It does not interrupt
    the reading: that one, like a lone item, is bounded by the time limits of the target's own calls.
    """

    clock: Clock
    deadline: timedelta = timedelta(seconds=15)
    pools: Mapping[PassKind, OrderedPool] = field(default_factory=one_pool_per_pass)
    takeover_tries: int = 5
    collector: Collector = field(default_factory=Collector)
    shard: Shard = WHOLE
    """The part of the store that the targets list, if not all of it: for reports."""

    def __post_init__(self) -> None:
        if self.takeover_tries < 1:
            raise SettingsError(
                f"a reclaim pass needs at least 1 try per candidate, got takeover_tries={self.takeover_tries}"
            )
        if self.deadline <= timedelta(0):
            raise SettingsError(f"a pass needs a deadline above zero, got {self.deadline}")

    def for_shard(self, shard: Shard) -> Self:
        """The same for the passes of a shard, with pools of its own: what hangs in one shard, or was not reached there,
        is nothing to the others."""
        pools = MappingProxyType({kind: pool.anew() for kind, pool in self.pools.items()})
        return replace(self, shard=shard, pools=pools)


def sweep(
    kind: PassKind,
    context: PassContext,
    *,
    read_work_list: Callable[[], Sequence[Reference]],
    attempt: Callable[[Reference, Deadline], ItemOutcome[StatusT] | NotReached],
    failed: StatusT,
    attempt_slice: Callable[[Sequence[Reference]], Sequence[ItemOutcome[StatusT] | TryAlone]] | None = None,
    slice_size: int = SLICE,
    raise_if_unreadable: bool = False,
) -> PassResult[StatusT]:
    """One pass over a work list read fresh. An item whose attempt raises ends as `failed` with the error as reason.

    `attempt` asks the deadline before each further step and answers `NOT_REACHED` if time is up by then. A work list
    that cannot be read makes the result `discovery-failed`, or is raised with `raise_if_unreadable`. Raises
    TooManyHungThreads if too many items of earlier passes of this kind still hang.
    """
    with context.collector.seldom():
        return _swept(kind, context, read_work_list, attempt, failed, attempt_slice, slice_size, raise_if_unreadable)


def _swept(
    kind: PassKind,
    context: PassContext,
    read_work_list: Callable[[], Sequence[Reference]],
    attempt: Callable[[Reference, Deadline], ItemOutcome[StatusT] | NotReached],
    failed: StatusT,
    attempt_slice: Callable[[Sequence[Reference]], Sequence[ItemOutcome[StatusT] | TryAlone]] | None,
    slice_size: int,
    raise_if_unreadable: bool,
) -> PassResult[StatusT]:
    started_at, deadline = context.clock.now(), Deadline.after(context.clock, context.deadline)
    try:
        references = _read(read_work_list)
    except Exception as error:
        if raise_if_unreadable:
            raise
        return PassResult(
            kind=kind,
            status=PassStatus.DISCOVERY_FAILED,
            started_at=started_at,
            finished_at=context.clock.now(),
            error=reason_of(error),
            shard=context.shard,
        )
    work: Work[Reference, ItemOutcome[StatusT]] = Work(
        attempt=lambda reference: attempt(reference, deadline),
        failure=lambda reference, error: ItemOutcome(workflow_id_of(reference), failed, reason_of(error)),
        key=workflow_id_of,
        attempt_slice=attempt_slice,
        slice_size=slice_size,
    )
    report = context.pools[kind].run(references, work, deadline)
    outcomes = tuple(outcome for outcome in report.results if outcome is not NOT_REACHED)
    unreached = len(references) - len(outcomes)
    return PassResult(
        kind=kind,
        status=PassStatus.DEADLINE_REACHED if unreached else PassStatus.COMPLETED,
        started_at=started_at,
        finished_at=context.clock.now(),
        outcomes=outcomes,
        unreached=unreached,
        split_slices=report.split_slices,
        split_reason=report.split_reason,
        shard=context.shard,
    )


def _read(read_work_list: Callable[[], Sequence[Reference]]) -> tuple[Reference, ...]:
    # Copied, because a target may go on changing a list of its own; and each reference is looked at once, so that one
    # without a workflow id is an error of the list and not of a pool thread.
    references = tuple(read_work_list())
    for reference in references:
        workflow_id_of(reference)
    return references
