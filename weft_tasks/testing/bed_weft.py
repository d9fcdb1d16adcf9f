"""A Weft without an application: the user's types over a bed's store, and passes without threads or locks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from weft_tasks.events import Events
from weft_tasks.locks import AlwaysYes
from weft_tasks.passes.clock import Clock, Deadline
from weft_tasks.passes.pool import OrderedPool
from weft_tasks.passes.sweep import PassContext
from weft_tasks.passes.work import TRY_ALONE, Item, PoolReport, Result, TryAlone, Work
from weft_tasks.results import PassKind
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.testing.bed_calls import Mailbox
from weft_tasks.weft import Weft
from weft_tasks.workflows.registry import Registry


class BedWeft(Weft):
    """Every verb of Weft, on the parts of a bed. Joins no Celery application and connects to nothing."""

    def __init__(
        self, *, registry: Registry, settings: Settings, store: Store, mailbox: Mailbox, events: Events, clock: Clock
    ) -> None:
        # Not Weft's own: that one registers with a Celery application.
        self.registry = registry
        self.node = "bed"
        self._clock = clock
        self._given_locks = AlwaysYes()
        self.tidying_errors: list[Exception] = []
        vars(self).update(settings=settings, store=store, dispatcher=mailbox, events=events)

    @cached_property
    def pass_context(self) -> PassContext:
        return PassContext(
            clock=self._clock,
            deadline=self.settings.pass_deadline,
            pools={kind: InlinePool(kind.value) for kind in PassKind},
        )

    def _import_modules(self) -> None:
        """It has the types that the test has imported."""

    def _after_reclaim(self) -> None:
        """The tick swallows what this raises, and tries again with the next pass; in a bed it is a bug to see."""
        try:
            super()._after_reclaim()
        except Exception as error:
            self.tidying_errors.append(error)
            raise

    def _remove_queue(self, engine_id: str) -> None:
        """A bed has no broker that would have one."""


class InlinePool(OrderedPool):
    """The pool of a pass, on the caller's thread."""

    def run(self, items: Sequence[Item], work: Work[Item, Result], deadline: Deadline) -> PoolReport[Result]:
        hanging = self._hung.hanging()
        whole: Sequence[Result | TryAlone] = [TRY_ALONE] * len(items)
        if work.attempt_slice is not None and len(items) > 1:
            whole = work.attempt_slice(items)
        return PoolReport(
            results=[
                work.try_item(item, hanging, catch=Exception) if result is TRY_ALONE else result
                for item, result in zip(items, whole, strict=True)
            ]
        )
