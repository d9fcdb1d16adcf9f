"""What an operator asks of the whole store: how much waits, what is stuck, and what nobody can run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import and_, case, exists, func, not_, select, union_all

from weft_tasks.model import EngineStatus, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store.claims import claims_by_engine
from weft_tasks.store.clock import StoreClock, milliseconds, moment_of
from weft_tasks.store.database import Database
from weft_tasks.store.engines import EngineInfo, Engines
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.pass_marks import PassMark, PassMarks
from weft_tasks.store.tables import claims, engine_types, engines, is_not_running, is_running, outbox, workflows
from weft_tasks.store.workflows import Workflows

SET_ASIDE_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The running workflows that are due, by what they wait for. Their sum is all that are due."""

    in_hand: int
    """A turn runs."""
    put_off: int
    """The time of the first turn, or of the next try, has not come."""
    unowned: int
    """Nobody holds it yet: started a moment ago, released, or no engine knows its type."""
    queued: int
    """Its holder has been sent a message, at most one interval ago."""
    late: int
    """Its holder has not begun it, and the message is older than R: it is sent again by the next reclaim pass (O9)."""

    @property
    def total(self) -> int:
        return self.in_hand + self.put_off + self.unowned + self.queued + self.late


@dataclass(frozen=True, slots=True, kw_only=True)
class StrandedClaims:
    """Claims of an engine that is silent, stopped or gone (O4): the next reclaim passes move them."""

    engine_id: str
    node: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Homeless:
    """Running workflows of a type and version that no live engine can run."""

    type: str
    version: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A workflow that was set aside (O11), with its reason."""

    id: str
    type: str
    since: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The store in one moment. `set_aside` names the first 20; `counts` has how many there are."""

    engines: tuple[EngineInfo, ...]
    passes: tuple[PassMark, ...]
    counts: Mapping[str, int]
    backlog: Backlog
    set_aside: tuple[SetAside, ...]
    stranded: tuple[StrandedClaims, ...]
    homeless: tuple[Homeless, ...]
    overdue_debts: int
    """Tasks and replies that a commit owes and nobody has sent for longer than two intervals."""


class Overviews:
    """The verbs that count. Each is one transaction that only reads; StoreUnavailable if there is no answer."""

    def __init__(
        self,
        database: Database,
        clock: StoreClock,
        settings: Settings,
        *,
        engines: Engines,
        pass_marks: PassMarks,
        workflows: Workflows,
    ) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._engines = engines
        self._pass_marks = pass_marks
        self._workflows = workflows
        self._liveness = Liveness(settings, clock)

    def read(self) -> Overview:
        """All of it; one read after the other, so that the parts may differ by what happened in between."""
        stranded = self.stranded_claims()
        return Overview(
            engines=self._engines.list(),
            passes=tuple(self._pass_marks.read_all().values()),
            counts=self._workflows.count_by_status(),
            backlog=self.backlog(),
            set_aside=self.set_aside(),
            stranded=stranded,
            homeless=self.homeless(stranded),
            overdue_debts=self.overdue_debts(),
        )

    def backlog(self) -> Backlog:
        """The cost follows the workflows that are due."""
        # In this order: the first that is true counts.
        kinds = case(
            (not_(self._liveness.no_attempt_runs()), "in_hand"),
            (not_(self._liveness.may_run_now()), "put_off"),
            (workflows.c.engine_id.is_(None), "unowned"),
            (self._liveness.dispatch_is_overdue(), "late"),
            else_="queued",
        ).label("kind")
        due = select(kinds).where(is_running, workflows.c.due).subquery()
        with self._database.reading() as connection:
            rows = connection.execute(select(due.c.kind, func.count()).group_by(due.c.kind)).all()
        found = {row[0]: row[1] for row in rows}
        return Backlog(**{kind: found.get(kind, 0) for kind in ("in_hand", "put_off", "unowned", "queued", "late")})

    def set_aside(self, limit: int = SET_ASIDE_SHOWN) -> tuple[SetAside, ...]:
        """The first of them by their ids."""
        query = (
            select(workflows.c.id, workflows.c.type, workflows.c.updated_at, workflows.c.error)
            .where(is_not_running, workflows.c.status == WorkflowStatus.SET_ASIDE)
            .order_by(workflows.c.id)
            .limit(limit)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return tuple(
            SetAside(id=row.id, type=row.type, since=moment_of(row.updated_at), reason=_message_in(row.error))
            for row in rows
        )

    def stranded_claims(self) -> tuple[StrandedClaims, ...]:
        """By engine. The cost follows the claims."""
        held = claims_by_engine()
        query = (
            select(held.c.engine_id, engines.c.node, held.c.n)
            .outerjoin(engines, engines.c.id == held.c.engine_id)
            .where(self._liveness.is_silent(held.c.engine_id))
            .order_by(held.c.engine_id)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return tuple(StrandedClaims(engine_id=row.engine_id, node=row.node, count=row.n) for row in rows)

    def homeless(self, stranded: Sequence[StrandedClaims] | None = None) -> tuple[Homeless, ...]:
        """Types and versions of workflows without a holder, or with a lost one, that no live engine can run. The cost
        follows those workflows, and the claims, unless the `stranded` ones are known."""
        lost = [claims.engine_id for claims in (self.stranded_claims() if stranded is None else stranded)]
        waiting = union_all(
            select(workflows.c.type, workflows.c.version).where(is_running, workflows.c.engine_id.is_(None)),
            select(workflows.c.type, workflows.c.version)
            .join(claims, claims.c.workflow_id == workflows.c.id)
            .where(is_running, claims.c.engine_id.in_(lost)),
        ).subquery()
        able = (
            exists()
            .where(
                engine_types.c.type == waiting.c.type,
                engine_types.c.version == waiting.c.version,
                engine_types.c.engine_id == engines.c.id,
                engines.c.status == EngineStatus.LIVE,
                not_(self._liveness.is_silent(engines.c.id)),
            )
            .correlate(waiting)
        )
        query = (
            select(waiting.c.type, waiting.c.version, func.count().label("n"))
            .where(not_(able))
            .group_by(waiting.c.type, waiting.c.version)
            .order_by(waiting.c.type, waiting.c.version)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return tuple(Homeless(type=row.type, version=row.version, count=row.n) for row in rows)

    def overdue_debts(self) -> int:
        """Tasks and replies owed for longer than two intervals; not those that were sent and await a reply."""
        limit = 2 * milliseconds(self._settings.renew_interval)
        is_overdue = and_(outbox.c.sent_witnessed.is_(None), outbox.c.created_at < self._clock.now() - limit)
        query = select(func.count()).select_from(outbox).where(is_overdue)
        with self._database.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def clock_skew(self) -> timedelta:
        """How far the database's clock is ahead of this host's, give or take the time of a query. Decides nothing."""
        before = datetime.now(UTC)
        with self._database.reading() as connection:
            database = moment_of(connection.execute(select(self._clock.now())).scalar_one())
        after = datetime.now(UTC)
        return database - (before + (after - before) / 2)


def _message_in(error: str | None) -> str:
    facts = None if error is None else json.loads(error)
    return str(facts.get("message", "")) if isinstance(facts, dict) else ""
