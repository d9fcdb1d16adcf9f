"""Time in a bed: it stands still until it is moved, and living engines beat while it moves.

Years take milliseconds: where nothing can happen, time jumps, and the heartbeats that were due meanwhile are written as
one. What can happen is read from the store: deadlines, delays, timeouts, and work that somebody ought to have begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, literal, not_, or_, select, union_all, update

from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock, milliseconds, moment_of
from weft_tasks.store.tables import clock as witnessed_clock
from weft_tasks.store.tables import engines, is_running, outbox, workflows

BEATS_PER_STEP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What an engine's next heartbeat says."""

    engine_id: str
    free_slots: int
    in_hand: Sequence[str]


class BedTime:
    """The clock of one bed and its store; a `Clock` for the passes, too."""

    def __init__(self, store: Store, clock: ManualClock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._step = settings.renew_interval

    def now(self) -> datetime:
        """The time of the bed's database: aware UTC."""
        return self._clock.moment

    def monotonic(self) -> float:
        """The same as seconds, for the passes: in a bed no pass runs out of time."""
        return self.now().timestamp()

    def next_stop(self, end: datetime, living: Sequence[str], *, hurries: bool) -> datetime:
        """Up to when nothing happens: one renew interval if there is work that somebody ought to have begun, else the
        next deadline; `end` at most. With `hurries` such work is known to wait for something else than time."""
        moments = [end]
        if not hurries and self._has_open_work(living):
            moments.append(self.now() + self._step)
        coming = self._next_moment()
        if coming is not None:
            moments.append(coming)
        return min(moments)

    def live_until(self, moment: datetime, beats: Sequence[Beat]) -> None:
        """Move to `moment`. The last interval before it has two real heartbeats of each engine, what lies before that
        is told in one: witnessed time, heartbeats and beats end up as if all had been written."""
        quiet = moment - self.now() - self._step
        if quiet > timedelta(0):
            self._skip(quiet, [beat.engine_id for beat in beats])
        half = (moment - self.now()) / BEATS_PER_STEP
        for _ in range(BEATS_PER_STEP - 1):
            self._beat_after(half, beats)
        self._beat_after(moment - self.now(), beats)

    def _beat_after(self, duration: timedelta, beats: Sequence[Beat]) -> None:
        self._clock.advance(duration)
        for beat in beats:
            self._store.engines.heartbeat(beat.engine_id, free_slots=beat.free_slots, in_hand=beat.in_hand)

    def _skip(self, duration: timedelta, living: Sequence[str]) -> None:
        self._clock.advance(duration)
        if not living:
            return
        now, elapsed = self._clock.now(), milliseconds(duration)
        witnessed = select(witnessed_clock.c.witnessed).where(witnessed_clock.c.id == 1).scalar_subquery()
        with self._store.database.transaction() as connection:
            connection.execute(
                update(witnessed_clock).values(witnessed=witnessed_clock.c.witnessed + elapsed, advanced_at=now)
            )
            connection.execute(
                update(engines)
                .where(engines.c.id.in_(living))
                .values(
                    heartbeat_at=now,
                    heartbeat_witnessed=witnessed,
                    beat=engines.c.beat + BEATS_PER_STEP * (duration // self._step + 1),
                )
            )

    def _has_open_work(self, living: Sequence[str]) -> bool:
        """Whether the passes have something to see to: due work, lost or dead owners, debts."""
        holds = workflows.c.engine_id.is_not(None)
        dead = and_(holds, not_(workflows.c.engine_id.in_(living)))
        may_run = or_(workflows.c.not_before_at.is_(None), workflows.c.not_before_at <= self._clock.now())
        due = and_(workflows.c.due, may_run)
        unowned = and_(not_(holds), or_(not_(workflows.c.due), may_run))
        overslept = and_(not_(workflows.c.due), workflows.c.next_deadline_at <= self._clock.now())
        open_work = exists().where(is_running, or_(dead, due, unowned, overslept, workflows.c.attempt_open))
        with self._store.database.reading() as connection:
            return bool(
                connection.execute(
                    select(or_(open_work, exists().where(outbox.c.sent_witnessed.is_(None))))
                ).scalar_one()
            )

    def _next_moment(self) -> datetime | None:
        """The next time at which something happens by itself."""
        later = union_all(
            _earliest(workflows.c.next_deadline_at, and_(is_running, not_(workflows.c.due)), self._clock.now()),
            _earliest(workflows.c.not_before_at, and_(is_running, workflows.c.due), self._clock.now()),
            _earliest(workflows.c.end_by_at, literal(True), self._clock.now()),
        ).subquery()
        with self._store.database.reading() as connection:
            found = connection.execute(select(func.min(later.c.at))).scalar_one_or_none()
        return None if found is None else moment_of(found)


def _earliest(column: ColumnElement[Any], which: ColumnElement[bool], now: ColumnElement[int]) -> Any:
    return select(func.min(column).label("at")).where(which, column > now)
