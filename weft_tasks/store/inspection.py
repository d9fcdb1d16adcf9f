"""Everything about one workflow that answers why it is where it is: its owner, what it waits for, who ran its turns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from weft_tasks.model import EngineStatus, WorkflowInfo
from weft_tasks.settings import Settings
from weft_tasks.store.clock import StoreClock, moment_of
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.history import History, HistoryEntry
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.tables import claims, engines, is_unanswered, signals, turns, updates, workflows
from weft_tasks.store.workflows import Workflows

NODE_KEYS = (("engine_id", "node"), ("from", "from_node"))
"""In the details of the history: which engine a node name belongs to. An engine's row goes when it is long gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The engine that holds the workflow. `silence_ms` is witnessed time since its last heartbeat; `node`, `status` and
    that are None if its row is gone."""

    engine_id: str
    node: str | None
    status: EngineStatus | None
    silence_ms: int | None
    claimed_at: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How it stands with the turn that is due or running.

    `begun` counts attempts in a row without a commit (O11), `tries` the times that the handler raised; `dispatches` the
    messages sent since the last begin.
    """

    is_open: bool
    began_at: datetime | None
    begun: int
    tries: int
    not_before: datetime | None
    dispatches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A signal or an update that no turn has taken yet."""

    kind: str
    number: int
    name: str
    key: str | None
    sent_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """A turn that has committed. `began_at` is its first begin; `attempt` counts all attempts of the run."""

    turn: int
    attempt: int
    engine_id: str
    node: str | None
    epoch: int
    began_at: datetime
    committed_at: datetime
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A workflow in one moment, with its recent past, oldest first. `now` is the store's time."""

    now: datetime
    info: WorkflowInfo
    owner: Owner | None
    attempt: Attempt
    ends_by: datetime | None
    pending: tuple[Pending, ...]
    turns: tuple[TurnRecord, ...]
    history: tuple[HistoryEntry, ...]


class Inspections:
    """The verb that reads all of it."""

    def __init__(
        self, database: Database, clock: StoreClock, settings: Settings, *, workflows: Workflows, history: History
    ) -> None:
        self._database = database
        self._clock = clock
        self._workflows = workflows
        self._history = history
        self._liveness = Liveness(settings, clock)

    def inspect(self, workflow_id: str, limit: int = 20) -> Inspection:
        """At most `limit` pending items, turns and entries of the history each, the latest ones of the latter two.

        Several statements: what commits in between may be in one part and not in another. Raises WorkflowNotFound or
        StoreUnavailable.
        """
        info = self._workflows.describe(workflow_id)
        entries = self._history.list(workflow_id=workflow_id, limit=limit)
        with self._database.reading() as connection:
            row = connection.execute(
                select(workflows, self._clock.now().label("now")).where(workflows.c.run_id == info.run_id)
            ).one_or_none()
            if row is None:
                # Purged or started anew in between: described as it was, and whoever asks again gets the new run.
                return self.inspect(workflow_id, limit)
            return Inspection(
                now=moment_of(row.now),
                info=info,
                owner=self._owner(connection, row),
                attempt=_attempt(row),
                ends_by=_moment(row.end_by_at),
                pending=_pending(connection, info.run_id, limit),
                turns=_turns(connection, info.run_id, limit, _nodes_of(entries)),
                history=entries,
            )

    def _owner(self, connection: Connection, row: AnyRow) -> Owner | None:
        if row.engine_id is None:
            return None
        claim = connection.execute(select(claims).where(claims.c.workflow_id == row.id)).one_or_none()
        silence = (self._liveness.witnessed_now() - engines.c.heartbeat_witnessed).label("silence")
        engine = connection.execute(
            select(engines.c.node, engines.c.status, silence).where(engines.c.id == row.engine_id)
        ).one_or_none()
        return Owner(
            engine_id=row.engine_id,
            node=None if engine is None else engine.node,
            status=None if engine is None else EngineStatus(engine.status),
            silence_ms=None if engine is None else engine.silence,
            claimed_at=None if claim is None else moment_of(claim.claimed_at),
            expires_at=None if claim is None else moment_of(claim.expires_at),
        )


def _attempt(row: AnyRow) -> Attempt:
    return Attempt(
        is_open=row.attempt_open,
        began_at=_moment(row.turn_began_at),
        begun=row.begun,
        tries=row.tries,
        not_before=_moment(row.not_before_at),
        dispatches=row.dispatches,
    )


def _pending(connection: Connection, run_id: str, limit: int) -> tuple[Pending, ...]:
    unconsumed = (signals.c.run_id == run_id, signals.c.consumed_turn.is_(None))
    unanswered = (updates.c.run_id == run_id, is_unanswered)
    found = [
        Pending(kind=kind, number=row.number, name=row.name, key=row.key, sent_at=moment_of(row.sent_at))
        for kind, table, which in (("signal", signals, unconsumed), ("update", updates, unanswered))
        for row in connection.execute(
            select(table.c.number, table.c.name, table.c.key, table.c.sent_at)
            .where(*which)
            .order_by(table.c.number)
            .limit(limit)
        )
    ]
    return tuple(sorted(found, key=lambda item: item.number)[:limit])


def _turns(connection: Connection, run_id: str, limit: int, nodes: dict[str, str]) -> tuple[TurnRecord, ...]:
    rows = connection.execute(
        select(turns, engines.c.node)
        .outerjoin(engines, engines.c.id == turns.c.engine_id)
        .where(turns.c.run_id == run_id)
        .order_by(turns.c.turn.desc())
        .limit(limit)
    ).all()
    return tuple(
        TurnRecord(
            turn=row.turn,
            attempt=row.attempt,
            engine_id=row.engine_id,
            node=row.node or nodes.get(row.engine_id),
            epoch=row.epoch,
            began_at=moment_of(row.began_at),
            committed_at=moment_of(row.committed_at),
            outcome=row.outcome,
        )
        for row in reversed(rows)
    )


def _nodes_of(entries: tuple[HistoryEntry, ...]) -> dict[str, str]:
    facts: list[dict[str, Any]] = [{"engine_id": entry.engine_id, **entry.detail} for entry in entries]
    return {
        fact[engine_key]: fact[node_key]
        for fact in facts
        for engine_key, node_key in NODE_KEYS
        if fact.get(engine_key) and fact.get(node_key)
    }


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else moment_of(ms)
