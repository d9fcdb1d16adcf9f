"""Engines: register, heartbeat, drain, stop and clean-up (O3, O6, O12)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Executable,
    Integer,
    ScalarSelect,
    Text,
    and_,
    delete,
    exists,
    func,
    insert,
    not_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from weft_tasks.errors import DuplicateNodeError
from weft_tasks.model import EngineStatus
from weft_tasks.settings import Settings
from weft_tasks.store.claims import claims_by_engine
from weft_tasks.store.clock import StoreClock, milliseconds, moment_of
from weft_tasks.store.database import Database
from weft_tasks.store.given import as_given, given
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.tables import aborts, claims, engine_types, engines, workflows
from weft_tasks.store.tables import clock as witnessed_clock

CLEAN_UP_AFTER_TTLS = 10


class HeartbeatAnswer(StrEnum):
    """GONE: the row is missing or stopped; the engine ends its turns and registers anew (O3)."""

    ALIVE = "alive"
    DRAINING = "draining"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """An engine as its row and its claims describe it. `silence_ms` is witnessed time since its last heartbeat, which
    decides; `heartbeat_age_ms` is the same by the database's clock, which also goes on when no engine beats."""

    id: str
    node: str
    host: str
    pid: int
    status: EngineStatus
    started_at: datetime
    heartbeat_at: datetime
    silence_ms: int
    heartbeat_age_ms: int
    beat: int
    free_slots: int
    is_deaf: bool
    claims: int
    types: tuple[str, ...]

    @property
    def heartbeat_age(self) -> timedelta:
        return timedelta(milliseconds=self.heartbeat_age_ms)

    def is_beating(self, within: timedelta) -> bool:
        """Whether it has not stopped and its last heartbeat is no older."""
        return self.status is not EngineStatus.STOPPED and self.heartbeat_age <= within


class Engines:
    """The verbs on engine rows. Each is one transaction and raises StoreUnavailable if the store did not answer."""

    def __init__(self, database: Database, clock: StoreClock, settings: Settings) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._liveness = Liveness(settings, clock)

    def register(
        self,
        engine_id: str,
        *,
        node: str,
        host: str,
        pid: int,
        types: Iterable[str],
        slots: int,
        versions: Mapping[str, Iterable[int]] = MappingProxyType({}),
    ) -> None:
        """Write the engine's row, live from now on, with the workflow types it can run, in `versions` (1 if none are
        named).

        Raises DuplicateNodeError while another live row has this node name (O12).
        """
        try:
            with self._database.transaction() as connection:
                connection.execute(self._advance)
                connection.execute(
                    insert(engines).values(
                        id=engine_id,
                        node=node,
                        status=EngineStatus.LIVE,
                        host=host,
                        pid=pid,
                        started_at=_advanced_at(),
                        heartbeat_at=_advanced_at(),
                        heartbeat_witnessed=_witnessed(),
                        beat=0,
                        free_slots=slots,
                        in_hand="[]",
                        in_hand_before="[]",
                        deaf=False,
                    )
                )
                rows = [
                    {"engine_id": engine_id, "type": name, "version": version}
                    for name in sorted(set(types))
                    for version in sorted(set(versions.get(name, (1,))))
                ]
                if rows:
                    connection.execute(insert(engine_types), rows)
        except IntegrityError:
            raise DuplicateNodeError(node, self.live_on(node) or "unknown", engine_id) from None

    def heartbeat(self, engine_id: str, *, free_slots: int, in_hand: Sequence[str]) -> HeartbeatAnswer:
        """The proof of life (O3): database time, witnessed time, free slots and the turns in hand, in one transaction.

        It also advances the witnessed clock, by at most one renew interval.
        """
        with self._database.transaction() as connection:
            connection.execute(self._advance)
            beaten = connection.execute(
                _BEAT, as_given(engine_id=engine_id, free_slots=free_slots, in_hand=json.dumps(sorted(in_hand)))
            ).scalar_one_or_none()
        if beaten is None:
            return HeartbeatAnswer.GONE
        return HeartbeatAnswer.DRAINING if beaten == EngineStatus.DRAINING else HeartbeatAnswer.ALIVE

    def drain(self, engine_id: str) -> None:
        """From now on the engine is offered nothing and begins nothing (O6)."""
        self._change_status(
            EngineStatus.DRAINING, engines.c.id == engine_id, engines.c.status == EngineStatus.LIVE, values={}
        )

    def stop(self, engine_id: str) -> None:
        """The engine is silent at once; the last thing a clean stop writes (O6)."""
        self._change_status(EngineStatus.STOPPED, engines.c.id == engine_id, values={"in_hand": "[]"})

    def stop_unless_beating(self, engine_id: str, last_beat: int) -> bool:
        """Stop a predecessor that has not beaten since `last_beat` was read; False if it has."""
        return self._change_status(
            EngineStatus.STOPPED, engines.c.id == engine_id, engines.c.beat == last_beat, values={"in_hand": "[]"}
        )

    def _change_status(self, status: EngineStatus, *which: ColumnElement[bool], values: Mapping[str, object]) -> bool:
        """Waits for the takeovers that give the engine something at this moment, so that whoever then releases what it
        holds finds that too. An update alone would not wait: it changes no key, and so meets none of their locks."""
        with self._database.transaction() as connection:
            connection.execute(select(engines.c.id).where(*which).with_for_update())
            changed = connection.execute(update(engines).where(*which).values(status=status, **values))
        return bool(changed.rowcount)

    def mark_deaf(self, engine_id: str) -> None:
        """O12: offered nothing until a turn begins there."""
        with self._database.transaction() as connection:
            connection.execute(update(engines).where(engines.c.id == engine_id, not_(engines.c.deaf)).values(deaf=True))

    def list_deaf(self) -> tuple[str, ...]:
        """The live engines that are marked as deaf: each is asked whether it hears again."""
        asked = and_(engines.c.deaf, engines.c.status == EngineStatus.LIVE)
        with self._database.reading() as connection:
            query = select(engines.c.id).where(asked, not_(self._liveness.is_silent(engines.c.id)))
            return tuple(connection.execute(query).scalars())

    def live_on(self, node: str) -> str | None:
        """The id of the live engine under this node name."""
        with self._database.reading() as connection:
            return connection.execute(
                select(engines.c.id).where(engines.c.node == node, engines.c.status == EngineStatus.LIVE)
            ).scalar_one_or_none()

    def beat_of(self, engine_id: str) -> int | None:
        with self._database.reading() as connection:
            return connection.execute(select(engines.c.beat).where(engines.c.id == engine_id)).scalar_one_or_none()

    def list(self) -> tuple[EngineInfo, ...]:
        """Every engine row with its number of claims, oldest first."""
        held = claims_by_engine()
        query = (
            select(
                engines,
                func.coalesce(held.c.n, 0).label("claims"),
                (self._liveness.witnessed_now() - engines.c.heartbeat_witnessed).label("silence"),
                (self._clock.now() - engines.c.heartbeat_at).label("heartbeat_age"),
            )
            .outerjoin(held, held.c.engine_id == engines.c.id)
            .order_by(engines.c.started_at, engines.c.id)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
            types: dict[str, list[str]] = {}
            for engine_id, name in connection.execute(select(engine_types.c.engine_id, engine_types.c.type).distinct()):
                types.setdefault(engine_id, []).append(name)
        return tuple(
            EngineInfo(
                id=row.id,
                node=row.node,
                host=row.host,
                pid=row.pid,
                status=EngineStatus(row.status),
                started_at=moment_of(row.started_at),
                heartbeat_at=moment_of(row.heartbeat_at),
                silence_ms=row.silence,
                heartbeat_age_ms=row.heartbeat_age,
                beat=row.beat,
                free_slots=row.free_slots,
                is_deaf=row.deaf,
                claims=row.claims,
                types=tuple(sorted(types.get(row.id, ()))),
            )
            for row in rows
        )

    def clean_up(self) -> tuple[str, ...]:
        """Delete the rows of engines long gone that no claim names any more (O3); returns their ids."""
        limit = milliseconds(self._settings.claim_ttl) * CLEAN_UP_AFTER_TTLS
        long_gone = (
            engines.c.heartbeat_witnessed + limit < self._liveness.witnessed_now(),
            engines.c.heartbeat_at + limit < self._clock.now(),
            not_(exists().where(claims.c.engine_id == engines.c.id)),
            not_(exists().where(workflows.c.engine_id == engines.c.id)),
        )
        with self._database.transaction() as connection:
            gone = tuple(connection.execute(delete(engines).where(*long_gone).returning(engines.c.id)).scalars())
            if gone:
                connection.execute(delete(engine_types).where(engine_types.c.engine_id.in_(gone)))
                connection.execute(delete(aborts).where(aborts.c.engine_id.in_(gone)))
        return gone

    @cached_property
    def _advance(self) -> Executable:
        """Moves the witnessed clock."""
        now = self._clock.now_after_locks()
        return (
            update(witnessed_clock)
            .where(witnessed_clock.c.id == 1)
            .values(witnessed=self._liveness.advanced(now), advanced_at=now)
        )


def _advanced_at() -> ScalarSelect[int]:
    return select(witnessed_clock.c.advanced_at).where(witnessed_clock.c.id == 1).scalar_subquery()


def _witnessed() -> ScalarSelect[int]:
    return select(witnessed_clock.c.witnessed).where(witnessed_clock.c.id == 1).scalar_subquery()


_BEAT: Final = (
    update(engines)
    .where(engines.c.id == given("engine_id", Text()), engines.c.status != EngineStatus.STOPPED)
    .values(
        heartbeat_at=_advanced_at(),
        heartbeat_witnessed=_witnessed(),
        beat=engines.c.beat + 1,
        free_slots=given("free_slots", Integer()),
        in_hand_before=engines.c.in_hand,
        in_hand=given("in_hand", Text()),
    )
    .returning(engines.c.status)
)
