"""A bed for workflows: their handlers tested in plain pytest, in milliseconds, without a server.

    def test_an_order_is_shipped_once_it_is_paid(workflow_bed):
        bed = workflow_bed(weft)
        bed.start("order", "order-1", {"sku": "A-7"})
        bed.signal("order-1", "paid")
        bed.run_due()
        bed.reply(bed.calls[-1], "tracking-77")
        bed.run_due()
        assert bed.result("order-1") == {"tracking": "tracking-77"}

Everything but the broker, the processes and the time is the real thing: the store on SQLite, the rules of ownership,
the runner of turns, the passes. Nothing runs by itself: turns run in `run_due`, `update` and `advance`, on the caller's
thread.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self

from weft_tasks.celery_host.replies import ReplyTask
from weft_tasks.errors import ResultTimeout, WorkflowNotCompleted
from weft_tasks.events import Event, Events
from weft_tasks.log_lines import log_event
from weft_tasks.model import Json, SignalReceipt, WorkflowInfo, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.testing.bed_calls import Call, Mailbox
from weft_tasks.testing.bed_crashes import CrashPoint, PlannedCrash, SimulatedCrash
from weft_tasks.testing.bed_host import BedHost
from weft_tasks.testing.bed_store import BedStores, one_store
from weft_tasks.testing.bed_time import BedTime
from weft_tasks.testing.bed_weft import BedWeft
from weft_tasks.testing.errors import NoReplyWanted, NotAnswered, NoWeftGiven
from weft_tasks.weft import OnConflict, Weft
from weft_tasks.workflows.registry import Handler, Registry, Retry, WorkflowType
from weft_tasks.workflows.runner import TurnReport

__all__ = ["Call", "SimulatedCrash", "WorkflowBed"]

_PARTS = ("settings", "store", "dispatcher", "events", "payments", "ticks")
"""What `installed` puts in the place of the application's own."""


class WorkflowBed:
    """A store, two engines and a clock, for the workflow types of a Weft or for types of the test's own.

    `weft` is the application's: its types and its `weft_*` settings are used, its broker and its database are not. The
    bed has an empty database of its own: a new one, or one that `stores` lends, which takes less time. `store` is for
    tests on another database: a Store over an empty schema, and the clock that it reads. Closing the bed, or leaving
    its context, deletes what it wrote. Not for several threads.
    """

    def __init__(
        self,
        weft: Weft | None = None,
        *,
        engines: int = 2,
        settings: Settings | None = None,
        stores: BedStores | None = None,
        store: tuple[Store, ManualClock] | None = None,
    ) -> None:
        self._given = weft
        self._mailbox = Mailbox()
        self._resources = ExitStack()
        settings = settings or (Settings() if weft is None else weft.settings)
        if store is None:
            lent = one_store(settings) if stores is None else stores.lend(settings)
            store = self._resources.enter_context(lent)
        own_store, clock = store
        self._time = BedTime(own_store, clock, settings)
        self.events: list[Event] = []
        """What the suite reported: discarded wakes, refused commits, tries that failed, passes."""
        self.weft = BedWeft(
            registry=Registry() if weft is None else weft.registry,
            settings=settings,
            store=own_store,
            mailbox=self._mailbox,
            events=Events(self.events.append, log_event),
            clock=self._time,
        )
        """Every verb of Weft, on this bed: `bed.weft.cancel(id)`, `bed.weft.update(...)`, which run nothing."""
        self._host = BedHost(self.weft, self._mailbox, self._time)
        for _ in range(engines):
            self.add_engine()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Delete the bed's database. A second call does nothing."""
        self._resources.close()

    # -- what there is

    def workflow(
        self, name: str, *, version: int = 1, runs: Iterable[int] = (), retry: Retry | None = None
    ) -> Callable[[Handler], WorkflowType]:
        """Register a handler, as `weft.workflow` does: with the Weft that the bed was made from, if there is one."""
        return self.weft.workflow(name, version=version, runs=runs, retry=retry)

    def add_engine(self, weft: Weft | None = None) -> str:
        """Start another engine and return its id; with the types of `weft`, if it shall run other code."""
        return self._host.add_engine(self.weft.registry if weft is None else weft.registry)

    @property
    def engines(self) -> tuple[str, ...]:
        """The ids of the engines that live."""
        return self._host.living

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While it lasts, the Weft that the bed was made from works on the bed itself: for tests of the code that uses
        it, such as views. Raises NoWeftGiven for a bed that was made from none."""
        if self._given is None:
            raise NoWeftGiven
        theirs = vars(self._given)
        kept = {name: theirs[name] for name in _PARTS if name in theirs}
        theirs.update({name: getattr(self.weft, name) for name in _PARTS})
        try:
            yield
        finally:
            for name in _PARTS:
                del theirs[name]
            theirs.update(kept)

    # -- starting, signalling, asking

    def start(
        self,
        type: str | WorkflowType,
        id: str | None = None,
        input: Json = None,
        *,
        on_conflict: OnConflict | str = OnConflict.ERROR,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        timeout: timedelta | float | None = None,
    ) -> str:
        """Start a workflow, as `weft.start` does, and return its id. Its first turn runs in `run_due`."""
        name = type.name if isinstance(type, WorkflowType) else type
        return self.weft.start(name, id, input, on_conflict=on_conflict, delay=delay, at=at, timeout=timeout).id

    def signal(self, id: str, name: str, payload: Json = None, *, key: str | None = None) -> SignalReceipt:
        """Send a signal, as `weft.signal` does. What it wakes runs in `run_due`."""
        return self.weft.signal(id, name, payload, key=key)

    def update(self, id: str, name: str, payload: Json = None, *, key: str | None = None) -> Any:
        """Send an update, run what is due, and return the answer.

        Raises what `UpdateHandle.result` does, and NotAnswered, with the reason, if there is no answer yet.
        """
        handle = self.weft.update(id, name, payload, key=key)
        self.run_due()
        try:
            return handle.result(timeout=0)
        except ResultTimeout:
            raise NotAnswered(f"the update {name!r} of workflow {id!r}", _why_not_yet(self.describe(id))) from None

    # -- running

    def run_due(self, limit: int = 1000) -> None:
        """Run the turns that engines were told of, and those that follow from them, until nobody is told of any more.

        A turn that crashed, whose message was lost, or that waits for its next try runs only after time has passed:
        see `advance`. Raises NeverParks after `limit` turns.
        """
        self._host.run_due(limit)

    def run_passes(self) -> None:
        """One round of renewal, reclaim, signal poll and update poll, as they run every few seconds in production.
        Raises PassBroke if one of them cannot run."""
        self._host.run_passes()

    @property
    def turns(self) -> tuple[TurnReport, ...]:
        """What became of each turn message, in the order in which they were handled. A crash leaves none."""
        return tuple(self._host.turns)

    @property
    def passes(self) -> dict[str, Any]:
        """What the latest round of passes found, as `weft.run_once` reports it."""
        return self._host.passes

    # -- time

    @property
    def now(self) -> datetime:
        """The time that everything in the bed goes by. It stands still but for `advance`."""
        return self._time.now()

    def advance(self, duration: timedelta | None = None, /, *, limit: int = 10_000, **parts: float) -> None:
        """Let time pass: `bed.advance(timedelta(days=3))`, or `bed.advance(days=3)`.

        Meanwhile the living engines beat, the passes fire whenever they have something to do (deadlines, timeouts,
        delays, retries, lost messages, dead engines, calls not sent), and what is due runs as it falls due: thirty
        days with a reminder each day are thirty turns. Raises NeverParks after `limit` turns.
        """
        self._host.advance((duration or timedelta(0)) + timedelta(**parts), limit)

    # -- faults

    def crash_next_turn(
        self,
        workflow_id: str | None = None,
        *,
        before: Literal["handler", "commit"] | None = None,
        after: Literal["handler", "commit"] | None = None,
    ) -> None:
        """Let the process of the next turn (of this workflow) die, as after `kill -9`: by default before its commit.

        `before="handler"`: nothing of the turn has happened. `before="commit"`, the same as `after="handler"`: the
        handler has run, and nothing of it counts. `after="commit"`: all of it counts, and no message, call or reply
        was sent. The engine lives on; in `advance` the turn begins again, or what was not sent is sent. To die in the
        middle of a handler, raise `SimulatedCrash` there.
        """
        self._host.crashes.add(PlannedCrash(point=_crash_point(before, after), workflow_id=workflow_id))

    def kill_engine(self, engine_id: str | None = None) -> str:
        """Let an engine die without a word, by default the one that ran the last turn; returns its id.

        Messages on their way to it are lost. Its workflows move to living engines after T + G of `advance`. A handler
        that kills its own engine goes on as a deposed owner may: its commit is refused if time has passed. Raises
        NoSuchEngine.
        """
        return self._host.kill_engine(engine_id)

    def stop_engine(self, engine_id: str) -> None:
        """Stop an engine cleanly, between turns: its workflows move at once. Raises NoSuchEngine."""
        self._host.stop_engine(engine_id)

    def lose_messages(self) -> int:
        """Let the turn messages that are on their way be lost; returns how many. The passes send them again."""
        lost = len(self._mailbox.turns)
        self._mailbox.turns.clear()
        return lost

    @contextmanager
    def without_broker(self) -> Iterator[None]:
        """While it lasts, no message leaves: neither turns nor calls. What was not sent is sent in `advance`."""
        self._mailbox.is_down = True
        try:
            yield
        finally:
            self._mailbox.is_down = False

    # -- outgoing calls

    @property
    def calls(self) -> tuple[Call, ...]:
        """The Celery tasks that were sent, in order. One that was sent again is there again, under the same id."""
        return tuple(self._mailbox.calls)

    def reply(self, call: Call, result: Json = None) -> None:
        """Let the called task return `result`. What that wakes runs in `run_due`. A second reply has no effect.

        Raises NoReplyWanted if the call asked for none.
        """
        self._deliver(call, result, is_failure=False)

    def fail(self, call: Call, error: BaseException | str) -> None:
        """Let the called task fail for good, after its own retries; as `reply`."""
        self._deliver(call, _failure(error), is_failure=True)

    @property
    def aborted(self) -> tuple[str, ...]:
        """The task ids of turns that were fenced off while they ran, and told to end."""
        return tuple(in_flight.task_id for in_flight in self._mailbox.aborted)

    def _deliver(self, call: Call, result: Json, *, is_failure: bool) -> None:
        """Through the task that Celery's callbacks name."""
        if call.reply is None:
            raise NoReplyWanted(call.id, call.task)
        ReplyTask(self.weft).run(
            result,
            workflow_id=call.workflow_id,
            run_id=call.run_id,
            call_id=call.id,
            reply=call.reply,
            is_failure=is_failure,
        )

    # -- looking

    def describe(self, id: str) -> WorkflowInfo:
        """The workflow as it is now. Raises WorkflowNotFound."""
        return self.weft.describe(id)

    def status(self, id: str) -> WorkflowStatus:
        return self.describe(id).status

    def state(self, id: str) -> dict[str, Json]:
        """What its handler has kept in `turn.state`, as of the last commit."""
        return self.describe(id).state

    def owner(self, id: str) -> str | None:
        """The engine that holds it."""
        return self.describe(id).engine_id

    def result(self, id: str) -> Json:
        """What the workflow completed with. Raises WorkflowNotCompleted if it ended otherwise, and NotAnswered if it
        has not ended, with what it waits for and what its handler last raised."""
        info = self.describe(id)
        if info.status is WorkflowStatus.COMPLETED:
            return info.result
        if info.status.is_ended:
            raise WorkflowNotCompleted(id, info.status, info.error)
        raise NotAnswered(f"workflow {id!r}", _why_not_yet(info))


def _crash_point(before: str | None, after: str | None) -> CrashPoint:
    if before == "handler":
        return CrashPoint.BEFORE_HANDLER
    return CrashPoint.AFTER_COMMIT if after == "commit" else CrashPoint.BEFORE_COMMIT


def _failure(error: BaseException | str) -> Json:
    """A failure as a reply tells it."""
    if isinstance(error, str):
        return {"type": "Exception", "message": error, "traceback": ""}
    lines = "".join(traceback.format_exception(error))
    return {"type": type(error).__name__, "message": str(error)[:2000], "traceback": lines[-8000:]}


def _why_not_yet(info: WorkflowInfo) -> str:
    waits = [
        ("sleeps" if not wait.name else f"waits for {wait.name!r}")
        + ("" if wait.deadline is None else f" until {wait.deadline.isoformat()}")
        for wait in info.waits
    ]
    facts = [f"it is {info.status}, before turn {info.turn}", *waits]
    if info.is_due:
        facts.append("is due: run_due() runs it, or advance(...) if it was put off or crashed")
    text = ", ".join(facts)
    if info.error is None:
        return text
    return f"{text}; its last try raised {info.error.get('type')}: {info.error.get('message')}\n" + str(
        info.error.get("traceback", "")
    )
