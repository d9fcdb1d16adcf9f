"""Weft: the suite of one Celery application, and the one place that constructs its parts."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable
from functools import cached_property
from typing import Any

from celery import Celery
from celery.signals import beat_init

from weft_tasks.celery_host import schedule
from weft_tasks.celery_host.heart import Body, ForkGuard, Heart
from weft_tasks.celery_host.identity import EngineIdentity, host_name
from weft_tasks.celery_host.publisher import CeleryDispatcher
from weft_tasks.celery_host.queues import add_shared_queues, delete_engine_queue
from weft_tasks.celery_host.signals import SignalSink
from weft_tasks.celery_host.steps import DrainStep, EngineStep
from weft_tasks.celery_host.tasks import register_tasks
from weft_tasks.celery_host.ticks import Ticks
from weft_tasks.errors import LockUnavailable, SettingsError, WeftError
from weft_tasks.events import Events
from weft_tasks.locks import FlightTimes, LockServer, RedisSingleFlight, SingleFlight
from weft_tasks.log_lines import log_event
from weft_tasks.model import Json, SignalReceipt, TurnMessage, WorkflowInfo, WorkflowStatus
from weft_tasks.passes.clock import SystemClock
from weft_tasks.passes.sweep import PassContext, one_pool_per_pass
from weft_tasks.settings import PREFIX, Settings
from weft_tasks.store import Store, heart_limits_of, schema
from weft_tasks.store.payloads import checked_name, encode
from weft_tasks.workflows.registry import Handler, Registry, WorkflowType
from weft_tasks.workflows.runner import TurnReport, TurnRunner, TurnStatus

logger = logging.getLogger("weft_tasks")


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
        # Strongly: Celery connects weakly by default, and nobody else keeps these.
        app.on_after_finalize.connect(self._join_application, weak=False)
        beat_init.connect(self._check_before_beat, weak=False)
        if app.finalized:
            self._join_application()

    def _join_application(self, **_signal: Any) -> None:
        """At the end of the application's configuration: our tasks, queues, beat entries and routes beside its own."""
        register_tasks(self.app, self)
        add_shared_queues(self.app)
        # Celery would only log an error raised here. Whoever starts a worker or beat, or uses the suite, meets it.
        with contextlib.suppress(SettingsError):
            schedule.merge_into(self.app, self.settings)

    def _check_before_beat(self, sender: Any, **_signal: Any) -> None:
        """Beat with settings that cannot work would tick nothing: it says so and exits."""
        if sender.app is self.app:
            try:
                _ = self.settings
            except SettingsError as error:
                logger.critical("weft: %s", error)
                raise SystemExit(1) from None

    # -- workflows

    def workflow(self, name: str) -> Callable[[Handler], Handler]:
        """Register a handler under a type name: `@weft.workflow("permit")`. The function is returned unchanged."""
        checked_name("workflow type", name)

        def register(handler: Handler) -> Handler:
            self.registry.register(WorkflowType(name=name, handler=handler))
            return handler

        return register

    def start(self, type_name: str, id: str | None = None, input: Json = None) -> WorkflowInfo:
        """Start a workflow, under an id of your own or a random one, and offer it to the engines.

        The row commits first; the message is a hint that may be lost (O9). Raises UnknownWorkflowType, InvalidInput,
        WorkflowAlreadyExists, or StoreUnavailable: then it is not known whether it started, and starting again under
        the same id tells.
        """
        self.registry.get(type_name)
        workflow_id = uuid.uuid4().hex if id is None else checked_name("workflow id", id)
        input_json = encode("input", input, self.settings.payload_limit)
        message = self.store.workflows.start(workflow_id, type_name, input_json)
        self.dispatcher.send_turn(message)
        return self.describe(workflow_id)

    def signal(self, id: str, name: str, payload: Json = None, *, key: str | None = None) -> SignalReceipt:
        """Send a signal to a workflow's current run: durable when this returns, consumed by exactly one turn.

        Signals of one name are consumed in the order of their numbers. With a `key`, sending again has no further
        effect and gives the first receipt. The owner is told at once, and again by a pass if that message is lost.
        Raises InvalidInput, WorkflowNotFound, WorkflowEnded, SignalKeyConflict, or StoreUnavailable: then send it again
        under the same key.
        """
        sent = self.store.signals.send(
            checked_name("workflow id", id),
            checked_name("signal name", name),
            encode("payload", payload, self.settings.payload_limit),
            key=None if key is None else checked_name("signal key", key),
        )
        if sent.message is not None:
            self.dispatcher.send_turn(sent.message)
        return sent.receipt

    def describe(self, id: str) -> WorkflowInfo:
        """The workflow as its row is now. Raises WorkflowNotFound or StoreUnavailable."""
        return self.store.workflows.describe(id)

    def list(
        self,
        *,
        type: str | None = None,
        status: WorkflowStatus | str | None = None,
        engine_id: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> tuple[WorkflowInfo, ...]:
        """One page of workflows in the order of their ids; `after` is the last id of the page before."""
        wanted = None if status is None else WorkflowStatus(status)
        return self.store.workflows.list(type_name=type, status=wanted, engine_id=engine_id, after=after, limit=limit)

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
        locks = self._build_locks(self.heart_store)
        if isinstance(locks, RedisSingleFlight):
            try:
                locks.check_permissions()
            except LockUnavailable:
                return

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
        return Events(log_event, SignalSink(self.app.main or "celery"))

    @cached_property
    def dispatcher(self) -> CeleryDispatcher:
        return CeleryDispatcher(self.app, self.settings, self.events)

    @cached_property
    def locks(self) -> SingleFlight:
        return self._build_locks(self.store)

    @cached_property
    def runner(self) -> TurnRunner:
        return TurnRunner(
            registry=self.registry,
            claims=self.store.claims,
            turns=self.store.turns,
            dispatcher=self.dispatcher,
            settings=self.settings,
            events=self.events,
        )

    @cached_property
    def ticks(self) -> Ticks:
        return Ticks(
            store=self.store,
            locks=self.locks,
            context=PassContext(
                clock=SystemClock(),
                deadline=self.settings.pass_deadline,
                pools=one_pool_per_pass(self.settings.pool_width),
            ),
            settings=self.settings,
            send_turn=self.dispatcher.send_turn,
            events=self.events,
            node=self.node,
            after_reclaim=self._clean_up_engines,
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
        return self.runner.run(message, task_id=task_id, engine_id=engine_id)

    def build_heart(self, body: Body, guard: ForkGuard) -> Heart:
        return Heart(
            store=self.heart_store,
            settings=self.settings,
            identity=self._identity,
            body=body,
            types=lambda: self.registry.names,
            guard=guard,
        )

    def _build_locks(self, store: Store) -> SingleFlight:
        if self._given_locks is not None:
            return self._given_locks
        times = FlightTimes(lock_ttl=self.settings.lock_ttl, pass_deadline=self.settings.pass_deadline)
        server = LockServer.of_broker(self.settings.redis_url or self.app.connection_for_write())
        return RedisSingleFlight(server=server, store_id=store.id(), times=times, clock=SystemClock())

    def _clean_up_engines(self) -> None:
        """What engines long gone left behind: their rows, and their queues in the broker."""
        for engine_id in self.store.engines.clean_up():
            delete_engine_queue(self.app, engine_id, self.settings)


def _weft_keys(app: Celery) -> dict[str, Any]:
    return {key: app.conf[key] for key in app.conf if isinstance(key, str) and key.lower().startswith(PREFIX)}
