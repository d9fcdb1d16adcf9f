"""Weft: the suite of one Celery application, and the one place that constructs its parts."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from celery import Celery
from celery.signals import beat_init, worker_process_shutdown, worker_shutdown
from kombu.connection import Connection as KombuConnection
from sqlalchemy import Connection

from weft_tasks.celery_host import schedule
from weft_tasks.celery_host.after_commit import AfterCommit, CallersTransaction, connection_of
from weft_tasks.celery_host.beat_stop import stop_at_signals
from weft_tasks.celery_host.checks import Finding, check_deployment
from weft_tasks.celery_host.heart import Body, ForkGuard, Heart
from weft_tasks.celery_host.identity import EngineIdentity, host_name
from weft_tasks.celery_host.lost_broker import LostBrokerStep
from weft_tasks.celery_host.publisher import CeleryDispatcher
from weft_tasks.celery_host.queues import add_shared_queues, delete_engine_queue
from weft_tasks.celery_host.signals import SignalSink
from weft_tasks.celery_host.steps import DrainStep, EngineStep
from weft_tasks.celery_host.tasks import register_tasks
from weft_tasks.celery_host.ticks import Ticks, run_once_limit
from weft_tasks.errors import (
    InvalidInput,
    LockUnavailable,
    SettingsError,
    UnknownWorkflowType,
    WeftError,
    WorkflowAlreadyExists,
    WorkflowEnded,
    WorkflowNotFound,
)
from weft_tasks.events import Events
from weft_tasks.handles import UpdateHandle, WorkflowHandle
from weft_tasks.lines import REFUSED, write
from weft_tasks.locks import FlightTimes, LockServer, RedisSingleFlight, SingleFlight
from weft_tasks.log_lines import log_event
from weft_tasks.metrics.flusher import Flusher
from weft_tasks.metrics.sink import CountingSink
from weft_tasks.metrics.tally import Tally
from weft_tasks.model import Json, NewWorkflow, SignalReceipt, TurnMessage, WorkflowInfo, WorkflowStatus
from weft_tasks.passes.clock import SystemClock
from weft_tasks.passes.sweep import PassContext, one_pool_per_pass
from weft_tasks.settings import NEVER, PREFIX, Settings
from weft_tasks.store import Store, heart_limits_of, schema
from weft_tasks.store.counters import Series
from weft_tasks.store.inspection import Inspection
from weft_tasks.store.lifecycle import PURGEABLE, Changed
from weft_tasks.store.overview import Overview
from weft_tasks.store.payloads import checked_count, checked_duration, checked_name, encode
from weft_tasks.store.signals import SentSignal
from weft_tasks.workflows.payments import Payments
from weft_tasks.workflows.registry import Handler, Registry, Retry, WorkflowType
from weft_tasks.workflows.runner import TurnReport, TurnRunner, TurnStatus

logger = logging.getLogger("weft_tasks")

FIRST_YEAR_TOO_LATE = 3000
Choice = TypeVar("Choice", bound=StrEnum)


class OnConflict(StrEnum):
    """What `start` does about an id that is taken."""

    ERROR = "error"
    USE_EXISTING = "use-existing"
    RESTART_IF_ENDED = "restart-if-ended"


class Weft:
    """Durable workflows for a Celery application: `weft = Weft(app)`.

    Registers the suite's tasks, queues, beat entries and boot steps with the application. The settings are read when
    they are first needed, so the application may be configured before or after. `locks` replaces the single-flight
    locks in Redis, for tests.
    """

    def __init__(self, app: Celery, *, locks: SingleFlight | None = None) -> None:
        if getattr(app, "weft", None) is not None:
            raise WeftError(f"the Celery application {app.main!r} has a Weft already: use app.weft")
        self.app = app
        self.registry = Registry()
        self.node = host_name()
        self._identity = EngineIdentity()
        self._given_locks = locks
        app.weft = self
        app.steps["worker"].add(EngineStep)
        app.steps["consumer"].add(DrainStep)
        app.steps["consumer"].add(LostBrokerStep)
        # Strongly: Celery connects weakly by default, and nobody else keeps these.
        app.on_after_finalize.connect(self._join_application, weak=False)
        # Sooner than the rest: `celery call` and `send_task` finalize no application, and have to know our queues.
        app.on_after_configure.connect(self._route, weak=False)
        if app.configured:
            self._route()
        beat_init.connect(self._check_before_beat, weak=False)
        worker_process_shutdown.connect(self._write_last_counts, weak=False)
        worker_shutdown.connect(self._write_last_counts, weak=False)
        if app.finalized:
            self._join_application()

    def _join_application(self, **_signal: Any) -> None:
        """At the end of the application's configuration: our tasks, queues, beat entries and routes beside its own."""
        register_tasks(self.app, self)
        add_shared_queues(self.app)
        # Celery would only log an error raised here. Whoever starts a worker or beat, or uses the suite, meets it.
        with contextlib.suppress(SettingsError):
            schedule.merge_into(self.app, self.settings)

    def _route(self, **_signal: Any) -> None:
        schedule.merge_routes(self.app)

    def _check_before_beat(self, sender: Any, **_signal: Any) -> None:
        """Beat with settings that cannot work would tick nothing: it says so and exits."""
        if sender.app is self.app:
            try:
                _ = self.settings
            except SettingsError as error:
                logger.critical("weft: %s", error, extra=REFUSED)
                raise SystemExit(1) from None
            stop_at_signals(sender)

    def _write_last_counts(self, **_signal: Any) -> None:
        """A process of a worker's pool ends, or a worker whose pool is no process."""
        if self.tally.has_any():
            self.flusher.flush()

    # -- workflow types

    def workflow(
        self, name: str, *, version: int = 1, runs: Iterable[int] = (), retry: Retry | None = None
    ) -> Callable[[Handler], WorkflowType]:
        """Register a handler under a type name: `@weft.workflow("permit")`.

        New workflows of the type carry `version`; `runs` names the older versions that this code can run as well. An
        engine is given only workflows of a type and version that it registered. `retry` says how often a turn whose
        handler raises is tried. What is decorated becomes a WorkflowType, with the decorators `update` and `on_cancel`.
        """

        def register(handler: Handler) -> WorkflowType:
            workflow_type = WorkflowType(name, handler, version=version, runs=runs, retry=retry)
            self.registry.register(workflow_type)
            return workflow_type

        return register

    # -- starting, signalling, asking

    def start(
        self,
        type_name: str,
        id: str | None = None,
        input: Json = None,
        *,
        on_conflict: OnConflict | str = OnConflict.ERROR,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        timeout: timedelta | float | None = None,
        session: CallersTransaction | None = None,
    ) -> WorkflowHandle:
        """Start a workflow, under an id of your own or a random one, and offer it to the engines.

        The row commits first; the message is a hint that may be lost (O9). `delay`, or the aware time `at`, puts off
        the first turn; `timeout` ends the workflow as timed out, counted from now. `on_conflict` says what becomes of
        an id that is taken: "error", "use-existing", or "restart-if-ended". With a `session` (SQLAlchemy Session or
        Connection on the same database) the start belongs to the caller's transaction.

        Raises UnknownWorkflowType, InvalidInput, WorkflowAlreadyExists, or StoreUnavailable: then it is not known
        whether it started, and starting again under the same id tells.
        """
        policy = _one_of("on_conflict", OnConflict, on_conflict)
        new = self._new_workflow(type_name, id, input, delay=delay, at=at, timeout=timeout)
        connection = connection_of(session)
        restarts = policy is OnConflict.RESTART_IF_ENDED
        try:
            message = self.store.workflows.start_new(new, connection, restarts=restarts)
        except WorkflowAlreadyExists:
            if policy is not OnConflict.USE_EXISTING:
                raise
            # By the caller's connection: the one there may have been started in the same transaction.
            return WorkflowHandle(self, new.id, self.store.workflows.run_id_of(new.id, connection))
        if not new.is_put_off:
            self._after_commit(session, lambda: self.dispatcher.send_turn(message))
        return WorkflowHandle(self, new.id, message.run_id)

    def signal(
        self,
        id: str,
        name: str,
        payload: Json = None,
        *,
        key: str | None = None,
        run_id: str | None = None,
        session: CallersTransaction | None = None,
    ) -> SignalReceipt:
        """Send a signal to a workflow's current run: durable when this returns, consumed by exactly one turn.

        Signals of one name are consumed in the order of their numbers. With a `key`, sending again has no further
        effect and gives the first receipt. The owner is told at once, and again by a pass if that message is lost. With
        a `run_id` it is for that run and no later one of the id. With a `session` the signal belongs to the caller's
        transaction. Raises InvalidInput, WorkflowNotFound, WorkflowEnded, SignalKeyConflict, or StoreUnavailable: then
        send it again under the same key.
        """
        sent = self._send_signal(id, name, payload, key, connection_of(session), run_id)
        if sent.message is not None:
            message = sent.message
            self._after_commit(session, lambda: self.dispatcher.send_turn(message))
        return sent.receipt

    def signal_or_start(
        self, type_name: str, id: str, name: str, payload: Json = None, *, input: Json = None, key: str | None = None
    ) -> SignalReceipt:
        """Send a signal to the workflow, and start it first if the id is free or its run has ended: one transaction."""
        new = self._new_workflow(type_name, checked_name("workflow id", id), input)
        while True:
            try:
                return self._signal_or_start(new, name, payload, key)
            except WorkflowAlreadyExists:
                # Somebody else started it between our look and our write: now there is one to signal.
                continue

    def _signal_or_start(self, new: NewWorkflow, name: str, payload: Json, key: str | None) -> SignalReceipt:
        message: TurnMessage | None = None
        with self.store.database.transaction() as connection:
            try:
                sent = self._send_signal(new.id, name, payload, key, connection)
                message = sent.message
            except (WorkflowNotFound, WorkflowEnded):
                message = self.store.workflows.start_new(new, connection, restarts=True)
                sent = self._send_signal(new.id, name, payload, key, connection)
        if message is not None:
            self.dispatcher.send_turn(message)
        return sent.receipt

    def _send_signal(
        self,
        id: str,
        name: str,
        payload: Json,
        key: str | None,
        connection: Connection | None,
        run_id: str | None = None,
    ) -> SentSignal:
        return self.store.signals.send(
            checked_name("workflow id", id),
            checked_name("signal name", name),
            encode("payload", payload, self.settings.payload_limit),
            key=None if key is None else checked_name("signal key", key),
            connection=connection,
            run_id=run_id,
        )

    def update(
        self,
        id: str,
        name: str,
        payload: Json = None,
        *,
        key: str | None = None,
        run_id: str | None = None,
        session: CallersTransaction | None = None,
    ) -> UpdateHandle:
        """Ask a workflow to do something and to answer: `weft.update(...).result(timeout=30)`.

        Handled once, in the order of arrival, and answered in the commit that changed the state. With a `key` of your
        own, asking again is the same update. With a `run_id` it is for that run and no later one of the id. With a
        `session` it belongs to the caller's transaction. Raises InvalidInput, WorkflowNotFound, WorkflowEnded,
        UpdateKeyConflict, or StoreUnavailable: then ask again under the same key.
        """
        sent = self.store.updates.send(
            checked_name("workflow id", id),
            checked_name("update name", name),
            encode("payload", payload, self.settings.payload_limit),
            key=None if key is None else checked_name("update key", key),
            connection=connection_of(session),
            run_id=run_id,
        )
        if sent.message is not None:
            message = sent.message
            self._after_commit(session, lambda: self.dispatcher.send_turn(message))
        return UpdateHandle(self, sent.receipt, name)

    def handle(self, id: str) -> WorkflowHandle:
        """A handle on the current run of a workflow. Raises WorkflowNotFound."""
        return WorkflowHandle(self, id, self.describe(id).run_id)

    def describe(self, id: str) -> WorkflowInfo:
        """The workflow as its row is now. Raises WorkflowNotFound or StoreUnavailable."""
        return self.store.workflows.describe(checked_name("workflow id", id))

    def list(
        self,
        *,
        type: str | None = None,
        status: WorkflowStatus | str | None = None,
        engine_id: str | None = None,
        older_than: timedelta | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> tuple[WorkflowInfo, ...]:
        """One page of workflows in the order of their ids; `after` is the last id of the page before.

        `older_than` keeps those that were started longer ago.
        """
        checked_count("limit", limit, most=10_000)
        wanted = None if status is None else _one_of("status", WorkflowStatus, status)
        age = None if older_than is None else checked_duration("older_than", older_than)
        for what, text in (("type", type), ("engine_id", engine_id), ("after", after)):
            if text:
                checked_name(what, text)
        return self.store.workflows.list(
            type_name=type, status=wanted, engine_id=engine_id, older_than=age, after=after, limit=limit
        )

    def inspect(self, id: str, *, limit: int = 20) -> Inspection:
        """Why the workflow is where it is: owner, attempts, what waits, its latest turns and changes of ownership.

        At most `limit` of each. Raises InvalidInput, WorkflowNotFound or StoreUnavailable.
        """
        checked_count("limit", limit, most=10_000)
        return self.store.inspections.inspect(checked_name("workflow id", id), limit)

    def overview(self) -> Overview:
        """The whole store: engines, passes, counts, the backlog, and what is stuck. Raises StoreUnavailable."""
        return self.store.overviews.read()

    def check(self, *, patience: timedelta | float = 2) -> tuple[Finding, ...]:
        """What is wrong with the deployment, each finding with its remedy: settings, store, broker, lock server,
        workers, passes, and what is stuck.

        Waits up to `patience` (seconds) for each answer of the broker and of the workers. What fails is a finding.
        Raises StoreUnavailable only if the store goes away meanwhile.
        """
        return check_deployment(self, checked_duration("patience", patience))

    # -- changing a workflow's course

    def cancel(self, id: str) -> None:
        """Give the workflow one last turn (its `on_cancel` handler), within `weft_cancel_bound`; then it is cancelled.

        The turn in flight is fenced off at once and aborted as far as the pool allows (O7). A second cancel changes
        nothing. Raises WorkflowNotFound or WorkflowEnded.
        """
        self._follow_up(self.store.lifecycle.cancel(checked_name("workflow id", id)))
        self.dispatcher.request_reclaim()

    def terminate(self, id: str, reason: str = "terminated") -> None:
        """End the workflow at once, without another turn. Raises WorkflowNotFound or WorkflowEnded."""
        if not isinstance(reason, str):
            raise InvalidInput("reason", f"must be a string, not {type(reason).__name__}")
        encode("reason", reason, self.settings.payload_limit)
        self._follow_up(self.store.lifecycle.terminate(checked_name("workflow id", id), reason))

    def suspend(self, id: str) -> None:
        """Let no turn run until it is resumed; signals and updates are kept. Raises WrongStatus unless it runs."""
        self._follow_up(self.store.lifecycle.suspend(checked_name("workflow id", id)))

    def resume(self, id: str) -> None:
        """Let a suspended workflow run on. Raises WrongStatus for any other."""
        self._follow_up(self.store.lifecycle.resume(checked_name("workflow id", id)))
        self.dispatcher.request_reclaim()

    def retry(self, id: str) -> None:
        """Let a failed or set-aside workflow try its turn again. Raises WrongStatus for any other."""
        self._follow_up(self.store.lifecycle.retry(checked_name("workflow id", id)))
        self.dispatcher.request_reclaim()

    def purge(
        self, *, older_than: timedelta, status: Iterable[WorkflowStatus | str] = PURGEABLE, limit: int = 1000
    ) -> int:
        """Delete up to `limit` workflows that ended longer ago than `older_than`, with all that belongs to them.

        Returns how many; call it again while that is `limit`. Their ids may be used again, under higher epochs.
        """
        checked_count("limit", limit, most=1_000_000)
        age = checked_duration("older_than", older_than)
        statuses = [_one_of("status", WorkflowStatus, wanted) for wanted in status]
        alive = [wanted.value for wanted in statuses if not wanted.is_ended]
        if alive:
            raise InvalidInput("status", f"of a workflow to purge must be an ending, not {', '.join(alive)}")
        return self.store.lifecycle.purge(older_than=age, statuses=statuses, limit=limit)

    def _new_workflow(
        self,
        type_name: str,
        id: str | None,
        input: Json,
        *,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        timeout: timedelta | float | None = None,
    ) -> NewWorkflow:
        return NewWorkflow(
            id=uuid.uuid4().hex if id is None else checked_name("workflow id", id),
            type=type_name,
            version=self._type(type_name).version,
            input_json=encode("input", input, self.settings.payload_limit),
            delay=None if delay is None else checked_duration("delay", delay) or None,
            at=None if at is None else _checked_time(at, delay),
            timeout=None if timeout is None else checked_duration("timeout", timeout),
        )

    def _type(self, name: str) -> WorkflowType:
        """Raises UnknownWorkflowType, but not before the modules are imported that the application includes or
        discovers: a worker does that when it starts, and a client may not have."""
        try:
            return self.registry.get(name)
        except UnknownWorkflowType:
            self._import_modules()
            return self.registry.get(name)

    def _import_modules(self) -> None:
        self.app.loader.import_default_modules()

    def _after_commit(self, session: CallersTransaction | None, act: Callable[[], object]) -> None:
        if session is None:
            act()
        else:
            self._commits.call(session, act)

    def _follow_up(self, changed: Changed) -> None:
        """What a change of status leaves to do once it stands."""
        if changed.in_flight is not None:
            self.dispatcher.abort(changed.in_flight)
        self.payments.pay(changed.debts)

    # -- operating

    def migrate(self) -> None:
        """Create the schema, or bring it up to this release. Safe to call from several processes at once."""
        schema.migrate(self.store.database)

    def check_before_start(self) -> None:
        """What a worker must find right before it forks: settings, schema, and a lock server that permits the locks.

        Opens no connection that outlives the call. Raises SettingsError, SchemaError or StoreUnavailable. A lock server
        that does not answer is no reason not to start.
        """
        schema.check(self.heart_store.database)
        locks = self._build_locks(self.heart_store, longest=self.settings.pass_deadline)
        if isinstance(locks, RedisSingleFlight):
            try:
                checked = locks.check_permissions()
            except LockUnavailable:
                return
            for warning in checked.warnings:
                write(logger, logging.WARNING, "weft.lock-server.warning", note=warning)

    # -- parts, each built when it is first needed

    @cached_property
    def settings(self) -> Settings:
        """The `weft_*` settings of the application. Raises SettingsError."""
        return Settings.from_mapping(_weft_keys(self.app))

    @cached_property
    def store(self) -> Store:
        return Store.open(self.settings)

    @cached_property
    def heart_store(self) -> Store:
        """The store over connections that never outlive their transaction, for the worker's main process."""
        return Store.open(self.settings, limits=heart_limits_of(self.settings))

    @cached_property
    def events(self) -> Events:
        return Events(log_event, SignalSink(self.app.main or "celery"), CountingSink(self.tally))

    @cached_property
    def tally(self) -> Tally:
        """What this process has counted and not yet written."""
        return Tally()

    @cached_property
    def flusher(self) -> Flusher:
        """Writes the tally, for processes that run tasks. Whatever a task forks is not forked in the middle of it."""
        guard = ForkGuard()

        def add(counted: Mapping[Series, float]) -> bool:
            with guard:
                return self.store.counters.add(counted)

        return Flusher(self.tally, add, self.settings.renew_interval)

    @cached_property
    def dispatcher(self) -> CeleryDispatcher:
        return CeleryDispatcher(self.app, self.settings, self.events)

    @cached_property
    def locks(self) -> SingleFlight:
        return self._build_locks(self.store, longest=self.settings.pass_deadline)

    @cached_property
    def runner(self) -> TurnRunner:
        return TurnRunner(
            registry=self.registry,
            claims=self.store.claims,
            turns=self.store.turns,
            dispatcher=self.dispatcher,
            payments=self.payments,
            settings=self.settings,
            events=self.events,
        )

    @cached_property
    def payments(self) -> Payments:
        return Payments(
            outbox=self.store.outbox,
            signals=self.store.signals,
            dispatcher=self.dispatcher,
            payload_limit=self.settings.payload_limit,
            events=self.events,
        )

    @cached_property
    def _commits(self) -> AfterCommit:
        return AfterCommit()

    @cached_property
    def pass_context(self) -> PassContext:
        return PassContext(
            clock=SystemClock(),
            deadline=self.settings.pass_deadline,
            pools=one_pool_per_pass(self.settings.pool_width),
            takeover_tries=self.settings.takeover_tries,
        )

    @cached_property
    def ticks(self) -> Ticks:
        return Ticks(
            store=self.store,
            locks=self.locks,
            run_once_locks=self._build_locks(self.store, longest=run_once_limit(self.settings)),
            context=self.pass_context,
            settings=self.settings,
            send_turn=self.dispatcher.send_turn,
            follow_up=self._follow_up,
            events=self.events,
            node=self.node,
            after_reclaim=self._after_reclaim,
            flush=lambda: self.flusher.flush(),
        )

    def run_turn(self, message: TurnMessage, *, task_id: str) -> TurnReport:
        """Run the turn a message names on this process's engine. What `weft.run_turn` calls."""
        engine_id = self._identity.engine_id
        if engine_id is None:
            return TurnReport(
                status=TurnStatus.DISCARDED,
                workflow_id=message.workflow_id,
                turn=message.turn,
                epoch=message.epoch,
                reason="this process belongs to no engine",
            )
        try:
            return self.runner.run(message, task_id=task_id, engine_id=engine_id)
        finally:
            self.flusher.soon()

    def build_heart(self, body: Body, guard: ForkGuard) -> Heart:
        return Heart(
            store=self.heart_store,
            settings=self.settings,
            identity=self._identity,
            body=body,
            versions=lambda: self.registry.versions,
            guard=guard,
            tally=self.tally,
        )

    def _build_locks(self, store: Store, *, longest: timedelta) -> SingleFlight:
        if self._given_locks is not None:
            return self._given_locks
        times = FlightTimes(lock_ttl=self.settings.lock_ttl, pass_deadline=longest)
        server = LockServer.of_broker(self.settings.redis_url or _broker_of(self.app))
        return RedisSingleFlight(server=server, store_id=store.id(), times=times, clock=SystemClock())

    def _after_reclaim(self) -> None:
        """What else the pass over lost work does: pay debts that nobody paid, forget what the retention has passed, ask
        deaf engines whether they hear again, and remove what engines long gone left behind, rows and queues alike."""
        self.payments.pay_overdue()
        self.store.history.forget(self.settings.history_retention)
        if self.settings.retention is not NEVER:
            self.purge(older_than=self.settings.retention)
        for engine_id in self.store.engines.list_deaf():
            self.dispatcher.send_turn(TurnMessage.question(engine_id))
        for engine_id in self.store.engines.clean_up():
            self._remove_queue(engine_id)

    def _remove_queue(self, engine_id: str) -> None:
        delete_engine_queue(self.app, engine_id, self.settings)


def _one_of(what: str, choices: type[Choice], value: str) -> Choice:
    try:
        return choices(value)
    except ValueError:
        names = ", ".join(choice.value for choice in choices)
        raise InvalidInput(what, f"{value!r} is none of {names}") from None


def _checked_time(at: object, delay: object) -> datetime:
    if delay is not None:
        raise InvalidInput("start", "takes a delay or at, not both")
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InvalidInput("at", f"must be a datetime that carries a time zone, not {at!r}")
    if at.year >= FIRST_YEAR_TOO_LATE:
        raise InvalidInput("at", f"must be before the year {FIRST_YEAR_TOO_LATE}, not {at!r}")
    return at


def _broker_of(app: Celery) -> KombuConnection:
    try:
        connection: KombuConnection = app.connection_for_write()
    except (KeyError, ImportError) as unknown:
        raise SettingsError(f"broker_url cannot be used: {unknown.args[0] if unknown.args else unknown}") from None
    return connection


def _weft_keys(app: Celery) -> dict[str, Any]:
    """The application's `weft_*` settings by these names, also if it has them in capitals or behind a namespace, such
    as CELERY_WEFT_DATABASE_URL."""
    keys = [key for key in app.conf if isinstance(key, str)]
    # Only now that the configuration has been read does it know its namespace.
    namespace = (app.conf.prefix or "").lower()
    spelled = {key.lower().removeprefix(namespace): key for key in keys}
    return {
        name: app.conf[name if name in app.conf else key] for name, key in spelled.items() if name.startswith(PREFIX)
    }
