"""The boot steps: what turns a Celery worker into an engine, and winds it down (O3, O6, O12)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from celery import bootsteps, signals
from celery.worker import state as worker_state

from weft_tasks.celery_host.heart import ForkGuard, Hand
from weft_tasks.celery_host.names import RUN_TURN, TURNS_QUEUE
from weft_tasks.celery_host.queues import engine_queue, is_engine
from weft_tasks.celery_host.quiet_ticks import hide_ticks_that_went_well
from weft_tasks.errors import WeftError
from weft_tasks.lines import REFUSED, write
from weft_tasks.settings import Settings

if TYPE_CHECKING:
    from weft_tasks.weft import Weft

logger = logging.getLogger("weft_tasks.engine")

UNSUPPORTED_POOLS = ("eventlet", "gevent")
POOL_WATCH_S = 0.5


class EngineStep(bootsteps.StartStopStep):
    """Worker step: checks what must be right before the pool forks, then registers the engine and starts its heart."""

    label = "weft engine"

    def __init__(self, worker: Any, **_options: Any) -> None:
        self.weft: Weft = worker.app.weft
        worker.weft_heart = None
        try:
            self.weft.check_before_start()
            hide_ticks_that_went_well()
            _refuse_pool(worker)
        except WeftError as error:
            _exit(error)

    def include_if(self, worker: Any) -> bool:
        return is_engine(worker.app)

    def create(self, worker: Any) -> None:
        body = WorkerBody(worker, self.weft)
        try:
            worker.weft_heart = self.weft.build_heart(body, ForkGuard())
        except WeftError as error:
            _exit(error)
        worker.app.amqp.queues.select_add(engine_queue(worker.weft_heart.engine_id, self.weft.settings))
        # From within the signal handler: the main loop comes to its own stop later, after a turn with the solo pool.
        signals.worker_shutting_down.connect(lambda **_signal: worker.weft_heart.drain(), weak=False)

    def start(self, worker: Any) -> None:
        try:
            worker.weft_heart.start()
        except WeftError as error:
            _exit(error)
        types = ",".join(self.weft.registry.names) or "none"
        fields = {"engine": worker.weft_heart.engine_id, "node": worker.hostname, "types": types}
        write(logger, logging.INFO, "weft.engine.started", fields)

    def register_with_event_loop(self, worker: Any, hub: Any) -> None:
        """Look for dead pool processes twice a second. Celery itself looks when the pipe to one closes, which may be a
        moment before the system tells its exit status, and then every 5 s: until that look nobody takes its place, and
        its turn counts as in hand."""
        hub.call_repeatedly(POOL_WATCH_S, worker.pool.maintain_pool)

    def stop(self, worker: Any) -> None:
        """Nothing yet: this comes before the pool has drained, and the heart must outlive its last turn."""

    def terminate(self, worker: Any) -> None:
        """Nothing, as for `stop`."""


class DrainStep(bootsteps.StartStopStep):
    """Consumer step: its `close` comes early on every way down, its `shutdown` after the pool has drained."""

    label = "weft drain"
    requires = ("celery.worker.consumer:Tasks",)

    def include_if(self, consumer: Any) -> bool:
        return getattr(consumer.controller, "weft_heart", None) is not None

    def start(self, consumer: Any) -> None:
        """Nothing: comes again after every reconnect."""

    def stop(self, consumer: Any) -> None:
        """Nothing: comes with every reconnect."""

    def close(self, consumer: Any) -> None:
        consumer.controller.weft_heart.drain()

    def shutdown(self, consumer: Any) -> None:
        settings: Settings = consumer.app.weft.settings
        patience = settings.connect_timeout + 4 * settings.statement_timeout
        if not consumer.controller.weft_heart.stop(patience.total_seconds()):
            note = "the store did not answer; its claims move after T + G"
            write(logger, logging.WARNING, "weft.engine.stop-unknown", note=note)


class WorkerBody:
    """The heart's view of the worker."""

    def __init__(self, worker: Any, weft: Weft) -> None:
        self._worker = worker
        self._weft = weft
        self.node: str = worker.hostname

    @property
    def slots(self) -> int:
        pool = getattr(self._worker, "pool", None)
        return int(getattr(pool, "num_processes", None) or self._worker.concurrency)

    def in_hand(self) -> Hand:
        """Every turn received and not yet over. Read off the main process's own books, so a pool process that died, or
        a main loop that is stuck, changes nothing here until the worker has noticed."""
        requests = list(worker_state.requests.values())
        turns = [request.id for request in requests if request.name == RUN_TURN]
        return Hand(turns=turns, free_slots=max(0, self.slots - len(requests)))

    def become(self, engine_id: str) -> None:
        self.end_turns(self.in_hand().turns, force=False)
        consumer = self._worker.consumer
        if not engine_id:
            consumer.call_soon(_shut_down)
            return
        queue = engine_queue(engine_id, self._weft.settings)
        self._worker.app.amqp.queues.add(queue)
        consumer.call_soon(consumer.add_task_queue, queue.name)

    def request_reclaim(self) -> None:
        self._weft.dispatcher.request_reclaim()

    def take_nothing_new(self) -> None:
        consumer = self._worker.consumer
        consumer.call_soon(consumer.cancel_task_queue, TURNS_QUEUE)

    def end_turns(self, task_ids: Iterable[str], *, force: bool) -> None:
        """A pool that cannot end a task lets it run to its end; its commit is refused all the same."""
        for task_id in task_ids:
            request = worker_state.requests.get(task_id)
            if request is not None:
                try:
                    request.terminate(self._worker.pool, signal="KILL" if force else "TERM")
                except NotImplementedError:
                    return


def _shut_down() -> None:
    worker_state.should_stop = 1


def _refuse_pool(worker: Any) -> None:
    pool = getattr(worker.pool_cls, "__module__", "")
    for name in UNSUPPORTED_POOLS:
        if pool.endswith(name):
            raise WeftError(
                f"the {name} pool is not supported: use prefork, threads or solo (celery worker -P prefork)"
            )


def _exit(error: WeftError) -> None:
    logger.critical("weft: %s", error, extra=REFUSED)
    raise SystemExit(1)
