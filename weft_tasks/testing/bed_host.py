"""What a cluster does, in a bed: engines take turns as messages reach them, passes fire as time passes.

Everything happens on the caller's thread and only when it is asked for.
"""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import datetime, timedelta
from typing import Any, cast

from weft_tasks.model import TurnMessage
from weft_tasks.results import PassKind, reason_of
from weft_tasks.store.turns import Turns
from weft_tasks.testing.bed_calls import Mailbox
from weft_tasks.testing.bed_crashes import CrashingTurns, CrashPlan, SimulatedCrash
from weft_tasks.testing.bed_engines import BedEngine
from weft_tasks.testing.bed_time import BedTime
from weft_tasks.testing.bed_weft import BedWeft
from weft_tasks.testing.errors import NeverParks, NoSuchEngine, PassBroke
from weft_tasks.workflows.registry import Registry
from weft_tasks.workflows.runner import TurnReport, TurnRunner

PATIENCE_IN_SILENCES = 3
"""How often T + G passes in small steps while work lies about and no turn runs; after that, time jumps all the same."""


class BedHost:
    """The engines, the passes and the time of one bed."""

    def __init__(self, weft: BedWeft, mailbox: Mailbox, time: BedTime) -> None:
        self._weft = weft
        self._mailbox = mailbox
        self._time = time
        self._engines: dict[str, BedEngine] = {}
        self._minted = 0
        self._offers = 0
        self._last_engine: str | None = None
        self.crashes = CrashPlan()
        self.turns: list[TurnReport] = []
        self.passes: dict[str, Any] = {}

    # -- engines

    @property
    def living(self) -> tuple[str, ...]:
        return tuple(self._engines)

    def add_engine(self, registry: Registry) -> str:
        """An engine with these types, registered in the store when it first matters."""
        self._minted += 1
        engine_id = f"engine-{self._minted}"
        store, settings = self._weft.store, self._weft.settings
        runner = TurnRunner(
            registry=registry,
            claims=store.claims,
            turns=cast("Turns", CrashingTurns(store.turns, self.crashes)),
            dispatcher=self._mailbox,
            payments=self._weft.payments,
            settings=settings,
            events=self._weft.events,
            sleep=lambda _seconds: None,
        )
        self._engines[engine_id] = BedEngine(id=engine_id, registry=registry, runner=runner)
        return engine_id

    def kill_engine(self, engine_id: str | None) -> str:
        """Gone without a word; by default the engine that ran the last turn."""
        self._make_engines_known()
        default = self._last_engine if self._last_engine in self._engines else next(iter(self._engines), None)
        return self._take_away(engine_id or default).id

    def stop_engine(self, engine_id: str) -> None:
        """What a worker does on its way out, with no turn in hand (O6)."""
        self._make_engines_known()
        engine, store = self._take_away(engine_id), self._weft.store
        store.engines.drain(engine.id)
        store.claims.release_all(engine.id)
        store.engines.stop(engine.id)
        self._mailbox.request_reclaim()

    def _take_away(self, engine_id: str | None) -> BedEngine:
        if engine_id is None or engine_id not in self._engines:
            raise NoSuchEngine(engine_id, self.living)
        return self._engines.pop(engine_id)

    def _make_engines_known(self) -> None:
        for engine in self._engines.values():
            engine.make_known(self._weft.store)

    # -- turns

    def run_due(self, limit: int) -> None:
        """Handle messages until there is none. Raises NeverParks after `limit`."""
        self._make_engines_known()
        handled: Counter[str] = Counter()
        while (message := self._next_message()) is not None:
            if handled.total() >= limit:
                raise self._never_parks(handled, limit)
            handled[message.workflow_id] += 1
            self._run_turn(message)

    def _next_message(self) -> TurnMessage | None:
        while not self._mailbox.turns and self._mailbox.wants_reclaim:
            self._mailbox.wants_reclaim = False
            self._weft.ticks.run_requested(PassKind.RECLAIM)
        return self._mailbox.turns.popleft() if self._mailbox.turns else None

    def _run_turn(self, message: TurnMessage) -> None:
        engine = self._engine_for(message)
        if engine is None:
            return  # It was sent to an engine that has died since, and is lost with it.
        task_id = uuid.uuid4().hex
        self._last_engine = engine.id
        engine.in_hand.append(task_id)
        try:
            self.turns.append(engine.runner.run(message, task_id=task_id, engine_id=engine.id))
        except SimulatedCrash:
            return
        finally:
            engine.in_hand.remove(task_id)

    def _engine_for(self, message: TurnMessage) -> BedEngine | None:
        """The engine that the message names; for a new workflow the next one, of those that know its type."""
        if message.engine_id is not None:
            return self._engines.get(message.engine_id)
        able = list(self._engines.values())
        if any(engine.registry is not self._weft.registry for engine in able):
            info = self._weft.describe(message.workflow_id)
            able = [engine for engine in able if engine.can_run(info.type, info.version)] or able
        self._offers += 1
        return able[self._offers % len(able)] if able else None

    def _never_parks(self, handled: Counter[str], limit: int) -> NeverParks:
        ((workflow_id, turns),) = handled.most_common(1)
        info = self._weft.describe(workflow_id)
        return NeverParks(workflow_id, info.type, turns, limit, [wait.name for wait in info.waits])

    # -- passes and time

    def run_passes(self) -> None:
        """One round of all four. Raises PassBroke if one of them could not run."""
        self._make_engines_known()
        self.passes = self._weft.ticks.run_once()
        for part in self.passes["run_once"]:
            if part["status"] in ("failed", "discovery-failed"):
                raise PassBroke(part["pass"], part["error"])
        if self._weft.tidying_errors:
            error = self._weft.tidying_errors.pop()
            raise PassBroke("reclaim", f"what comes after it raised {reason_of(error)}") from error

    def advance(self, duration: timedelta, limit: int) -> None:
        """Let time pass, with passes and turns as they fall due. Raises NeverParks after about `limit` turns."""
        end = self._time.now() + duration
        first, stalled = len(self.turns), timedelta(0)
        self.run_due(limit)
        while (began := self._time.now()) < end:
            ran = len(self.turns)
            self._let_pass(end, hurries=stalled >= PATIENCE_IN_SILENCES * self._weft.settings.silence_limit)
            self.run_passes()
            self.run_due(limit)
            stalled = timedelta(0) if len(self.turns) > ran else stalled + (self._time.now() - began)
            if len(self.turns) - first > limit:
                raise self._never_parks(Counter(turn.workflow_id for turn in self.turns[first:]), limit)

    def _let_pass(self, end: datetime, *, hurries: bool) -> None:
        stop = self._time.next_stop(end, self.living, hurries=hurries)
        self._time.live_until(stop, [engine.beat for engine in self._engines.values()])
