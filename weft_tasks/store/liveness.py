"""Who is alive, in SQL: the conditions that takeover, acquire, begin and the work lists share.

O4 (silent), O12 (deaf), O9 (an attempt that is over, a dispatch that is overdue), and the witnessed clock they are
measured on. Every function returns an expression about a row of `weft_workflows` or `weft_engines`, to stand in the
WHERE of the statement that writes.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    FromClause,
    ScalarSelect,
    and_,
    case,
    exists,
    literal,
    not_,
    or_,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from weft_tasks.model import EngineStatus
from weft_tasks.settings import Settings
from weft_tasks.store.clock import StoreClock, milliseconds
from weft_tasks.store.tables import clock as witnessed_clock
from weft_tasks.store.tables import engine_types, engines, workflows

BACKOFF_AFTER_MAX = 3


class Liveness:
    """The conditions, for one set of settings and one clock."""

    def __init__(self, settings: Settings, clock: StoreClock) -> None:
        self._settings = settings
        self._clock = clock
        self._interval = milliseconds(settings.renew_interval)

    # -- the witnessed clock

    def advanced(self, now: ColumnElement[int]) -> ColumnElement[int]:
        """What the clock's row shows at `now`: moved by the time since the last heartbeat, 0 to R, never back."""
        elapsed = now - witnessed_clock.c.advanced_at
        bounded = case((elapsed < 0, 0), (elapsed > self._interval, self._interval), else_=elapsed)
        return witnessed_clock.c.witnessed + bounded

    def witnessed_now(self) -> ScalarSelect[int]:
        """The witnessed time of this statement."""
        return select(self.advanced(self._clock.now())).where(witnessed_clock.c.id == 1).scalar_subquery()

    # -- engines

    def is_silent(self, engine_id: ColumnElement[str]) -> ColumnElement[bool]:
        """O4: the engine was silent for more than T + G of witnessed time, is stopped, or has no row."""
        engine = engines.alias("holder")
        limit = milliseconds(self._settings.silence_limit)
        heard = exists().where(
            engine.c.id == engine_id,
            engine.c.status != EngineStatus.STOPPED,
            engine.c.heartbeat_witnessed + limit >= self.witnessed_now(),
        )
        return not_(heard)

    def can_take_work(self, engine: FromClause) -> ColumnElement[bool]:
        """O4, O12: the engine may be offered a workflow: live, not deaf, its heartbeat at most G old.

        By the database's clock, and by the witnessed one as well: a step of the former makes no dead engine look fresh.
        """
        grace = milliseconds(self._settings.grace)
        return and_(
            engine.c.status == EngineStatus.LIVE,
            not_(engine.c.deaf),
            engine.c.heartbeat_at + grace >= self._clock.now(),
            engine.c.heartbeat_witnessed + grace >= self.witnessed_now(),
        )

    def is_live(self, engine_id: str) -> ColumnElement[bool]:
        return exists().where(engines.c.id == engine_id, engines.c.status == EngineStatus.LIVE)

    # -- workflows

    def holder_is_deaf(self) -> ColumnElement[bool]:
        """O12: this due workflow's dispatches went unanswered too often, or once by an engine found deaf already."""
        holder = engines.alias("deaf_holder")
        marked = exists().where(holder.c.id == workflows.c.engine_id, holder.c.deaf)
        return and_(
            workflows.c.due,
            self.no_attempt_runs(),
            or_(
                workflows.c.unanswered >= self._settings.deaf_after,
                and_(workflows.c.unanswered >= 1, marked),
            ),
        )

    def attempt_is_over(self) -> ColumnElement[bool]:
        """O9: two heartbeats of its engine in a row did not name the attempt."""
        engine = engines.alias("attempt_engine")
        return exists().where(
            engine.c.id == workflows.c.engine_id,
            engine.c.beat >= workflows.c.attempt_beat + 2,
            not_(contains(engine.c.in_hand, workflows.c.attempt_task)),
            not_(contains(engine.c.in_hand_before, workflows.c.attempt_task)),
        )

    def no_attempt_runs(self) -> ColumnElement[bool]:
        return or_(not_(workflows.c.attempt_open), self.attempt_is_over())

    def may_run_now(self) -> ColumnElement[bool]:
        """Due, and not waiting for its next try."""
        return and_(
            workflows.c.due,
            or_(workflows.c.not_before_at.is_(None), workflows.c.not_before_at <= self._clock.now()),
        )

    def dispatch_is_overdue(self) -> ColumnElement[bool]:
        """O9: no message was sent yet, or the last one is more than R of witnessed time old (longer when backing off).

        The first (T + G)/R dispatches come at R, because their silence is what makes an engine deaf; then R doubles.
        """
        sent = workflows.c.dispatched_witnessed
        n = workflows.c.dispatches
        wait: ColumnElement[int] = literal(self._interval, BigInteger)
        steps = [
            (n >= self._settings.deaf_after * (step + 1), self._interval * 2**step)
            for step in range(BACKOFF_AFTER_MAX, 0, -1)
        ]
        return or_(sent.is_(None), sent + case(*steps, else_=wait) < self.witnessed_now())

    def can_run(self, engine_id: ColumnElement[str]) -> ColumnElement[bool]:
        """Whether the engine registered this workflow's type, in this workflow's version."""
        return exists().where(
            engine_types.c.engine_id == engine_id,
            engine_types.c.type == workflows.c.type,
            engine_types.c.version == workflows.c.version,
        )

    def witnessed_ago(self, duration: timedelta) -> ColumnElement[int]:
        return self.witnessed_now() - milliseconds(duration)


class contains(FunctionElement[bool]):
    """Whether the first text has the second in it, byte for byte, without wildcards."""

    type = Boolean()
    inherit_cache = True


@compiles(contains, "postgresql")
def _contains_postgresql(element, compiler, **kw):  # type: ignore[no-untyped-def]
    return f"(strpos({compiler.process(element.clauses, **kw)}) > 0)"


@compiles(contains, "sqlite")
def _contains_sqlite(element, compiler, **kw):  # type: ignore[no-untyped-def]
    return f"(instr({compiler.process(element.clauses, **kw)}) > 0)"
