"""What the store says about the run. Plain SELECTs on its tables: the check trusts no code that it checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from sqlalchemy import ColumnElement, Table, func, literal, select

from examples.eventlog.verify import CommittedCase, Step
from weft_tasks.model import EngineStatus
from weft_tasks.store import Store
from weft_tasks.store.clock import DatabaseClock
from weft_tasks.store.tables import claims, engines, history, is_running, signals, turns, workflows

REFUSED = "commit-refused"
SILENT = timedelta(seconds=1.5)
"""Three heartbeats missed: not dead yet, but worth showing."""


class MoveKind(StrEnum):
    """How a workflow got a new owner: by a takeover, or because its former owner had released it."""

    TAKEN_OVER = "taken-over"
    PLACED = "placed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """One node, as the live view shows it; its claims are those of all incarnations."""

    status: str
    claims: int
    silence: timedelta
    """Witnessed time since its last heartbeat."""

    @property
    def is_silent(self) -> bool:
        return self.silence > SILENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The run at one moment."""

    started: int
    completed: int
    sent: int
    consumed: int
    takeovers: int
    refused: int
    engines: Mapping[str, EngineState]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A workflow got a new owner, at a time of the database's clock in milliseconds."""

    workflow_id: str
    at_ms: int
    to_engine: str
    from_engine: str | None


class Ledger:
    """Reads what belongs to the workflows whose ids begin with `prefix`. Raises StoreUnavailable."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def now_ms(self) -> int:
        """The database's clock, which stamps everything else here."""
        with self._store.database.reading() as connection:
            return int(connection.execute(select(DatabaseClock().now())).scalar_one())

    # -- for the live view

    def progress(self) -> Progress:
        by_status = self._count_by(workflows.c.status, self._ours(workflows.c.id))
        by_event = self._count_by(history.c.event, self._ours(history.c.workflow_id))
        sent = self.signals_sent()
        unconsumed = self._count(signals, self._ours(signals.c.workflow_id), signals.c.consumed_turn.is_(None))
        return Progress(
            started=sum(by_status.values()),
            completed=by_status.get("completed", 0),
            sent=sent,
            consumed=sent - unconsumed,
            takeovers=by_event.get(MoveKind.TAKEN_OVER, 0),
            refused=by_event.get(REFUSED, 0),
            engines=self._engines_by_node(),
        )

    def signals_sent(self) -> int:
        return self._count(signals, self._ours(signals.c.workflow_id))

    def _engines_by_node(self) -> Mapping[str, EngineState]:
        shown: dict[str, EngineState] = {}
        for engine in self._store.engines.list():
            earlier = shown.get(engine.node)
            shown[engine.node] = EngineState(
                status=engine.status.value,
                claims=engine.claims + (earlier.claims if earlier else 0),
                silence=timedelta(milliseconds=engine.silence_ms),
            )
        return shown

    # -- for the faults

    def live_engines_on(self, node: str) -> tuple[str, ...]:
        """The id of the engine that is live under this node name; there is at most one (O12)."""
        everybody = self._store.engines.list()
        return tuple(engine.id for engine in everybody if engine.node == node and engine.status is EngineStatus.LIVE)

    def nodes(self) -> Mapping[str, str]:
        """The node names by engine id."""
        return {engine.id: engine.node for engine in self._store.engines.list()}

    def loads(self) -> Mapping[str, int]:
        """The claims of each node whose engine is not draining or stopped."""
        by_node = sorted(self._engines_by_node().items())
        return {node: state.claims for node, state in by_node if state.status == EngineStatus.LIVE}

    def claims_of(self, engine_id: str) -> frozenset[str]:
        with self._store.database.reading() as connection:
            held = select(claims.c.workflow_id).where(claims.c.engine_id == engine_id, self._ours(claims.c.workflow_id))
            return frozenset(connection.execute(held).scalars())

    def turns_in_hand(self, engine_id: str) -> frozenset[tuple[str, int]]:
        """The open attempts of an engine: workflow and attempt."""
        with self._store.database.reading() as connection:
            rows = connection.execute(
                select(workflows.c.id, workflows.c.attempt).where(
                    workflows.c.engine_id == engine_id, workflows.c.attempt_open, self._ours(workflows.c.id)
                )
            )
            return frozenset((row.id, row.attempt) for row in rows)

    def unowned(self) -> frozenset[str]:
        """The running workflows that nobody holds."""
        with self._store.database.reading() as connection:
            rows = connection.execute(
                select(workflows.c.id).where(is_running, workflows.c.engine_id.is_(None), self._ours(workflows.c.id))
            )
            return frozenset(rows.scalars())

    def has_heartbeat_since(self, at_ms: int) -> bool:
        """Whether any engine's heartbeat was written after that time."""
        with self._store.database.reading() as connection:
            latest = connection.execute(select(func.max(engines.c.heartbeat_at))).scalar_one()
            return latest is not None and latest > at_ms

    def moves(self, kind: MoveKind, *, since_ms: int) -> tuple[Move, ...]:
        """The changes of ownership of one kind, oldest first."""
        with self._store.database.reading() as connection:
            rows = connection.execute(
                select(history)
                .where(history.c.event == kind, history.c.at >= since_ms, self._ours(history.c.workflow_id))
                .order_by(history.c.id)
            ).all()
        return tuple(
            Move(
                workflow_id=row.workflow_id,
                at_ms=row.at,
                to_engine=row.engine_id,
                from_engine=json.loads(row.detail).get("from"),
            )
            for row in rows
        )

    def refusals_of(self, engine_id: str) -> int:
        """How many commits of this engine were refused."""
        is_theirs = history.c.engine_id == engine_id
        return self._count(history, history.c.event == REFUSED, is_theirs, self._ours(history.c.workflow_id))

    # -- for the check

    def committed(self) -> Mapping[str, CommittedCase]:
        """What was committed, by case."""
        epochs: dict[str, list[int]] = {}
        with self._store.database.reading() as connection:
            rows = connection.execute(
                select(workflows.c.id, workflows.c.status, workflows.c.state).where(self._ours(workflows.c.id))
            ).all()
            for turn in connection.execute(
                select(turns.c.workflow_id, turns.c.epoch)
                .where(self._ours(turns.c.workflow_id))
                .order_by(turns.c.workflow_id, turns.c.turn)
            ):
                epochs.setdefault(turn.workflow_id, []).append(turn.epoch)
        return {
            row.id.removeprefix(self._prefix): CommittedCase(
                is_completed=row.status == "completed",
                steps=tuple(Step(number, activity) for number, activity in json.loads(row.state).get("steps", [])),
                epochs=tuple(epochs.get(row.id, ())),
            )
            for row in rows
        }

    # -- private

    def _ours(self, workflow_id: ColumnElement[str]) -> ColumnElement[bool]:
        return workflow_id.startswith(self._prefix, autoescape=True) if self._prefix else literal(True)

    def _count(self, table: Table, *conditions: ColumnElement[bool]) -> int:
        with self._store.database.reading() as connection:
            return int(connection.execute(select(func.count()).select_from(table).where(*conditions)).scalar_one())

    def _count_by(self, column: ColumnElement[str], *conditions: ColumnElement[bool]) -> dict[str, int]:
        with self._store.database.reading() as connection:
            rows = connection.execute(select(column, func.count()).where(*conditions).group_by(column)).all()
        return {row[0]: row[1] for row in rows}
