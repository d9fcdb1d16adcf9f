"""The heart: an engine's proof of life, in a thread of the worker's main process (O3).

Neither a busy pool, nor the broker, nor a store that hangs stops it from trying again. It also does what must not wait
for the main loop: draining, and registering anew when the engine's row is gone.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from weft_tasks.celery_host.health_files import HealthFiles
from weft_tasks.celery_host.identity import EngineIdentity, host_name
from weft_tasks.errors import DuplicateNodeError, StoreUnavailable
from weft_tasks.lines import Field, write
from weft_tasks.metrics.catalogue import HEARTBEATS_MISSED
from weft_tasks.metrics.flusher import Flusher
from weft_tasks.metrics.tally import Tally
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.engines import HeartbeatAnswer

logger = logging.getLogger("weft_tasks.engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """What the worker has in hand: the task ids of turns received and not yet over, and how many slots are free."""

    turns: Sequence[str]
    free_slots: int


class Body(Protocol):
    """The worker around the heart."""

    node: str

    @property
    def slots(self) -> int:
        """How many tasks its pool runs at a time."""

    def in_hand(self) -> Hand:
        """What is in hand now. Called from the heart's thread."""

    def end_turns(self, task_ids: Iterable[str], *, force: bool) -> None:
        """End these tasks as far as the pool allows: SIGTERM, or with `force` SIGKILL."""

    def become(self, engine_id: str) -> None:
        """Consume the queue of a new incarnation, and end the turns of the old one."""

    def request_reclaim(self) -> None:
        """Ask for a reclaim pass at once."""

    def take_nothing_new(self) -> None:
        """Leave new workflows to other workers, from now on."""


class ForkGuard:
    """No fork while its holder is inside the database: a child forked there inherits SQLite's locks for ever."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        os.register_at_fork(
            before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._lock.release
        )

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


class Heart:
    """Registers the engine, beats until told to stop, and on the way out releases what the engine holds (O6)."""

    def __init__(
        self,
        *,
        store: Store,
        settings: Settings,
        identity: EngineIdentity,
        body: Body,
        versions: Callable[[], Mapping[str, Iterable[int]]],
        guard: ForkGuard,
        tally: Tally,
    ) -> None:
        """Raises SettingsError for a `weft_health_folder` that cannot be written to."""
        self._store = store
        self._settings = settings
        self._identity = identity
        self._body = body
        self._versions = versions
        self._guard = guard
        self._health = HealthFiles(settings.health_folder)
        self._tally = tally
        # Not by a thread of its own: this process forks.
        self._counts = Flusher(tally, store.counters.add, settings.heartbeat_interval)
        self._engine_id = identity.mint()
        # No Event: a signal handler calls `drain`, and only a SimpleQueue may be interrupted by itself.
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._is_draining = False
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._missed = 0
        self._told_to_end: frozenset[str] = frozenset()

    @property
    def engine_id(self) -> str:
        return self._engine_id

    # -- from the worker's main thread

    def start(self) -> None:
        """Register, and begin to beat. Raises DuplicateNodeError (O12), SchemaError or StoreUnavailable."""
        self._make_way()
        with self._guard:
            self._register()
        self._thread = threading.Thread(target=self._run, name="weft-heart", daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """Be offered nothing more and release what is idle; returns at once, the thread does it (O6)."""
        self._is_draining = True
        self._calls.put(None)

    def stop(self, timeout: float) -> bool:
        """After the last turn has ended: release everything, mark the engine stopped, ask for a reclaim pass. Waits at
        most `timeout` seconds; False if the store was not there to tell, and then silence tells it after T + G."""
        self._is_stopping.set()
        self.drain()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- registering

    def _register(self) -> None:
        versions = self._versions()
        self._store.engines.register(
            self._engine_id,
            node=self._body.node,
            host=host_name(),
            pid=os.getpid(),
            types=versions,
            versions=versions,
            slots=self._body.slots,
        )

    def _make_way(self) -> None:
        """A predecessor under this node name that was killed has a live row still. One that beats within two intervals
        and a statement's time is alive, and refuses us when we register; one that does not is marked stopped (O12)."""
        with self._guard:
            predecessor = self._store.engines.live_on(self._body.node)
            last_beat = None if predecessor is None else self._store.engines.beat_of(predecessor)
        if predecessor is None or last_beat is None:
            return
        patience = 2 * self._settings.heartbeat_interval + self._settings.statement_timeout
        write(
            logger,
            logging.INFO,
            "weft.engine.predecessor",
            {"node": self._body.node, "engine": predecessor},
            note=f"waiting {patience.total_seconds():g} s for its heartbeat",
        )
        self._is_stopping.wait(patience.total_seconds())
        with self._guard:
            if self._store.engines.stop_unless_beating(predecessor, last_beat):
                note = "it does not beat and counts as stopped"
                write(logger, logging.INFO, "weft.engine.predecessor", {"engine": predecessor}, note=note)

    # -- the thread

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            with suppress(Empty):
                self._calls.get(timeout=self._settings.heartbeat_interval.total_seconds())
            self._beat_safely()
        self._finish()
        self._health.has_stopped()

    def _beat_safely(self) -> None:
        """A beat that fails for whatever reason is reported and followed by the next one."""
        self._health.beat_begins()
        try:
            self._beat()
            if self._missed:
                write(logger, logging.INFO, "weft.heart.back", {"engine": self._engine_id, "missed": self._missed})
            self._missed = 0
            self._health.beat_succeeded()
        except StoreUnavailable as error:
            self._missed += 1
            self._tally.count(HEARTBEATS_MISSED)
            is_serious = self._missed * self._settings.heartbeat_interval >= self._settings.claim_ttl
            level = logging.ERROR if is_serious else logging.WARNING
            write(logger, level, "weft.heart.missed", {**self._misses(), "error": str(error)})
        except Exception:
            self._missed += 1
            write(logger, logging.ERROR, "weft.heart.failed", self._misses(), exc_info=True)
        if self._missed or self._is_draining:
            self._health.is_not_ready()

    def _misses(self) -> dict[str, Field]:
        return {"engine": self._engine_id, "in_a_row": self._missed}

    def _beat(self) -> None:
        hand = self._body.in_hand()
        with self._guard:
            answer = self._store.engines.heartbeat(
                self._engine_id, free_slots=hand.free_slots, in_hand=list(hand.turns)
            )
        if answer is HeartbeatAnswer.GONE and not self._is_draining:
            self._register_anew()
            return
        self._end_fenced_turns(hand)
        self._write_counts()
        if answer is HeartbeatAnswer.DRAINING and not self._is_draining:
            self._drain_as_told()
        if self._is_draining:
            self._release_idle(answer)

    def _write_counts(self) -> None:
        with self._guard:
            self._counts.flush()

    def _end_fenced_turns(self, hand: Hand) -> None:
        """O7: a turn that was fenced off from outside is told to end, and killed if the next beat still finds it."""
        with self._guard:
            ordered = self._store.aborts.list(self._engine_id)
            over = ordered.difference(hand.turns)
            if over:
                self._store.aborts.close(self._engine_id, list(over))
        still_running = ordered - over
        self._body.end_turns(still_running - self._told_to_end, force=False)
        self._body.end_turns(still_running & self._told_to_end, force=True)
        self._told_to_end = still_running

    def _drain_as_told(self) -> None:
        """Somebody marked the engine draining in the store (`weft drain`): as on the way down, but the worker stays."""
        note = "it takes no new workflows until it is started again"
        write(logger, logging.INFO, "weft.engine.told-to-drain", {"engine": self._engine_id}, note=note)
        self._is_draining = True
        self._body.take_nothing_new()

    def _release_idle(self, answer: HeartbeatAnswer) -> None:
        """Draining is committed before anything is released, so that every later commit sees it and releases its own
        claim; and it is repeated with each beat, for the commit that just then did not see it yet."""
        with self._guard:
            if answer is HeartbeatAnswer.ALIVE:
                self._store.engines.drain(self._engine_id)
            released = self._store.claims.release_idle(self._engine_id)
        if released:
            write(logger, logging.INFO, "weft.engine.draining", {"engine": self._engine_id, "released": released})
            self._body.request_reclaim()

    def _register_anew(self) -> None:
        """O3: the row is missing or stopped. Whatever this engine held is somebody else's; it starts over."""
        old, self._engine_id = self._engine_id, self._identity.mint()
        note = f"registering anew as {self._engine_id}"
        write(logger, logging.WARNING, "weft.engine.gone", {"engine": old, "successor": self._engine_id}, note=note)
        try:
            with self._guard:
                self._register()
        except DuplicateNodeError as error:
            write(logger, logging.CRITICAL, "weft.engine.refused", {"engine": self._engine_id}, note=str(error))
            self._engine_id = old
            self._body.become("")
            return
        self._body.become(self._engine_id)

    def _finish(self) -> None:
        try:
            with self._guard:
                released = self._store.claims.release_all(self._engine_id)
                self._store.engines.stop(self._engine_id)
                self._counts.flush()
        except StoreUnavailable as error:
            write(logger, logging.WARNING, "weft.engine.stop-unknown", {"engine": self._engine_id, "error": str(error)})
            return
        write(logger, logging.INFO, "weft.engine.stopped", {"engine": self._engine_id, "released": released})
        self._body.request_reclaim()
