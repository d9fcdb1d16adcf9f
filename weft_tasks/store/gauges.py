"""How the fleet stands, as numbers: engines, claims, and what waits. What metrics and health checks read.

Every query here reads along an index that has only what it counts, or the engines and their claims: none reads the
workflows that are parked, or those that have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, not_, select

from weft_tasks.model import EngineStatus, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store.claims import claims_by_engine
from weft_tasks.store.clock import StoreClock
from weft_tasks.store.database import Database
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.tables import (
    engine_types,
    engines,
    is_not_running,
    is_running,
    is_unanswered,
    signals,
    updates,
    workflows,
)

NO_ENGINE = ""
"""The node of claims whose engine has no row any more."""


class EngineState(StrEnum):
    """What an engine's row says of it now; each engine that has not stopped is in one of them."""

    ALIVE = "alive"
    """It takes work (O4)."""
    LATE = "late"
    """Its heartbeat is older than G, and not yet silent."""
    SILENT = "silent"
    """Its claims may be taken over (O4)."""
    DEAF = "deaf"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGauges:
    """The numbers of one moment, all read in one transaction."""

    engines: Mapping[EngineState, int]
    free_slots: int
    """Of the engines that are alive."""
    claims: Mapping[str, int]
    """By the holder's node."""
    stranded: int
    """Claims whose holder is silent, stopped or gone: a takeover is due."""
    heartbeat_ages: Mapping[str, float]
    """Seconds since the last heartbeat, of each node's newest engine that has not stopped."""
    due: int
    """Running workflows that may have a turn now and have none."""
    unowned: int
    """Running workflows without a holder."""
    set_aside: Mapping[str, int]
    """By workflow type."""
    suspended: Mapping[str, int]
    signals_pending: int
    updates_pending: int
    types: tuple[str, ...]
    """Every workflow type that an engine's row knows."""


class Gauges:
    """Reads them. Raises StoreUnavailable."""

    def __init__(self, database: Database, clock: StoreClock, settings: Settings) -> None:
        self._database = database
        self._clock = clock
        self._liveness = Liveness(settings, clock)

    def read(self) -> FleetGauges:
        with self._database.reading() as connection:
            rows = connection.execute(self._engines()).all()
            held = connection.execute(self._claims()).all()
            states = dict.fromkeys(EngineState, 0)
            for row in rows:
                states[EngineState(row.state)] += 1
            claims_of: dict[str, int] = {}
            for row in held:
                claims_of[row.node or NO_ENGINE] = claims_of.get(row.node or NO_ENGINE, 0) + row.n
            ages: dict[str, float] = {}
            for row in rows:
                ages[row.node] = min(ages.get(row.node, row.age / 1000), row.age / 1000)
            return FleetGauges(
                engines=states,
                free_slots=sum(row.free_slots for row in rows if row.state == EngineState.ALIVE),
                claims=claims_of,
                stranded=sum(row.n for row in held if row.is_silent),
                heartbeat_ages=ages,
                due=_count(connection, select(workflows.c.id).where(self._is_due())),
                unowned=_count(connection, select(workflows.c.id).where(is_running, workflows.c.engine_id.is_(None))),
                set_aside=_count_by_type(connection, WorkflowStatus.SET_ASIDE),
                suspended=_count_by_type(connection, WorkflowStatus.SUSPENDED),
                signals_pending=_count(connection, select(signals.c.number).where(signals.c.consumed_turn.is_(None))),
                updates_pending=_count(connection, select(updates.c.number).where(is_unanswered)),
                types=tuple(connection.execute(select(engine_types.c.type).distinct()).scalars()),
            )

    def _engines(self) -> Select[Any]:
        state = case(
            (self._liveness.is_silent(engines.c.id), EngineState.SILENT.value),
            (engines.c.status == EngineStatus.DRAINING, EngineState.DRAINING.value),
            (engines.c.deaf, EngineState.DEAF.value),
            (self._liveness.can_take_work(engines), EngineState.ALIVE.value),
            else_=EngineState.LATE.value,
        )
        age = self._clock.now() - engines.c.heartbeat_at
        return select(engines.c.node, engines.c.free_slots, state.label("state"), age.label("age")).where(
            engines.c.status != EngineStatus.STOPPED
        )

    def _claims(self) -> Select[Any]:
        by_engine = claims_by_engine()
        is_silent = self._liveness.is_silent(by_engine.c.engine_id)
        return select(engines.c.node, by_engine.c.n, is_silent.label("is_silent")).outerjoin_from(
            by_engine, engines, engines.c.id == by_engine.c.engine_id
        )

    def _is_due(self) -> ColumnElement[bool]:
        return and_(is_running, self._liveness.may_run_now(), not_(workflows.c.attempt_open))


def _count(connection: Connection, rows: Select[Any]) -> int:
    return int(connection.execute(select(func.count()).select_from(rows.subquery())).scalar_one())


def _count_by_type(connection: Connection, status: WorkflowStatus) -> dict[str, int]:
    query = (
        select(workflows.c.type, func.count())
        .where(is_not_running, workflows.c.status == status)
        .group_by(workflows.c.type)
    )
    return {row[0]: row[1] for row in connection.execute(query)}
