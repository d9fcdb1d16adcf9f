"""Turns: begin, commit, retry and set aside, each decided by one conditional statement on the fence (O1, O9, O11).

A turn begins by opening the next attempt. What it is given (its horizon: which signals it sees, and when it began) is
fixed at the turn's first begin and is the same for every later attempt. Its outcome commits in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    case,
    exists,
    false,
    func,
    insert,
    not_,
    null,
    or_,
    select,
    true,
    update,
)

from weft_tasks.errors import StoreUnavailable
from weft_tasks.model import Json, TurnMessage, Wait, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store.claims import Claims
from weft_tasks.store.clock import StoreClock, milliseconds, milliseconds_of, moment_of
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.history import record
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.tables import engines, is_running, signals, turns, workflows

SIGNALS_PER_TURN = 1000
"""How many buffered signals one turn sees; the rest makes the workflow due again."""
UNDELIVERABLE = -1
"""`consumed_turn` of a signal whose workflow ended before any turn took it."""

_TURN_OVER: Mapping[str, Any] = MappingProxyType(
    {"begun": 0, "tries": 0, "turn_inbox": None, "turn_began_at": None, "not_before_at": None}
)


class Discard(StrEnum):
    """Why a message began no turn (O10)."""

    NO_WORKFLOW = "no-workflow"
    OTHER_RUN = "other-run"
    NOT_RUNNING = "not-running"
    OTHER_OWNER = "other-owner"
    OTHER_TURN = "other-turn"
    NOT_DUE = "not-due"
    TOO_EARLY = "too-early"
    IN_HAND = "in-hand"
    ENGINE_NOT_LIVE = "engine-not-live"
    SET_ASIDE = "set-aside"
    """The begin found the limit of begun turns reached, and set the workflow aside (O11)."""
    LOST_RACE = "lost-race"
    """The row matched when it was read again: another begin or ending was a moment faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferedSignal:
    """A signal as a turn sees it."""

    number: int
    name: str
    payload: Json
    sent_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunTurn:
    """An open attempt at a turn, with everything the handler is given."""

    workflow_id: str
    run_id: str
    type: str
    engine_id: str
    epoch: int
    turn: int
    attempt: int
    tries: int
    horizon: int
    began_at: datetime
    input: Json
    state_json: str
    signals: tuple[BufferedSignal, ...]
    has_more_signals: bool
    waits: tuple[Wait, ...]

    @property
    def expired_waits(self) -> tuple[str, ...]:
        """Names waited for whose deadline had passed when the turn first began."""
        return tuple(wait.name for wait in self.waits if wait.deadline is not None and wait.deadline <= self.began_at)

    @property
    def has_work(self) -> bool:
        """Whether the handler has a reason to run; a wake that proves empty does not call it."""
        awaited = {wait.name for wait in self.waits}
        return bool(
            self.turn == 0 or self.tries or self.expired_waits or any(signal.name in awaited for signal in self.signals)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """What a turn wants to commit. `waits` are names with a duration, counted from the commit."""

    status: WorkflowStatus
    state_json: str
    consumed: tuple[int, ...] = ()
    waits: tuple[tuple[str, timedelta | None], ...] = ()
    result: str | None = None
    error: str | None = None
    wants_more: bool = False
    """The turn left signals that it now waits for: the next turn is due at once."""


class CommitStatus(StrEnum):
    WON = "won"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAnswer:
    """WON, with the message for the next turn if the workflow is due again and still held here; or LOST.

    `is_released` says that the workflow runs on and wants a new owner, because this engine is draining (O6).
    """

    status: CommitStatus
    next_message: TurnMessage | None = None
    is_released: bool = False


class Turns:
    """The verbs on turns. StoreUnavailable from any of them means unknown (O8)."""

    def __init__(self, database: Database, clock: StoreClock, settings: Settings, claims: Claims) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._claims = claims
        self._liveness = Liveness(settings, clock)

    # -- begin

    def begin(self, message: TurnMessage, task_id: str) -> BegunTurn | Discard:
        """Open the next attempt at the turn that `message` names, or say why not (O9, O10).

        `task_id` is what the engine's heartbeats will name while the attempt is in hand. At the limit of begun turns
        the workflow is set aside instead (O11).
        """
        with self._database.transaction() as connection:
            row = connection.execute(self._opening(message, task_id)).one_or_none()
            if row is None:
                return self._why_not(connection, message)
            if row.engine_is_deaf:
                connection.execute(update(engines).where(engines.c.id == message.engine_id).values(deaf=False))
            return _begun(row, self._signals_within(connection, row.run_id, row.turn_inbox))

    def _opening(self, message: TurnMessage, task_id: str) -> Any:
        engine = engines.c.id == message.engine_id
        return (
            update(workflows)
            .where(
                *_named(message),
                is_running,
                self._liveness.may_run_now(),
                self._liveness.no_attempt_runs(),
                self._liveness.is_live(message.engine_id or ""),
                workflows.c.begun < self._settings.begun_turn_limit,
            )
            .values(
                attempt=workflows.c.attempt + 1,
                attempt_open=True,
                attempt_task=json.dumps(task_id),
                attempt_beat=select(engines.c.beat).where(engine).scalar_subquery(),
                begun=workflows.c.begun + 1,
                turn_inbox=func.coalesce(workflows.c.turn_inbox, workflows.c.inbox),
                turn_began_at=func.coalesce(workflows.c.turn_began_at, self._clock.now()),
                dispatches=0,
                unanswered=0,
            )
            .returning(workflows, select(engines.c.deaf).where(engine).scalar_subquery().label("engine_is_deaf"))
        )

    def _signals_within(self, connection: Connection, run_id: str, horizon: int) -> Sequence[AnyRow]:
        return connection.execute(
            select(signals.c.number, signals.c.name, signals.c.payload, signals.c.sent_at)
            .where(signals.c.run_id == run_id, signals.c.consumed_turn.is_(None), signals.c.number <= horizon)
            .order_by(signals.c.number)
            .limit(SIGNALS_PER_TURN + 1)
        ).all()

    def _why_not(self, connection: Connection, message: TurnMessage) -> Discard:
        row = connection.execute(
            select(
                workflows,
                self._liveness.may_run_now().label("may_run"),
                self._liveness.no_attempt_runs().label("no_attempt_runs"),
                self._liveness.is_live(message.engine_id or "").label("engine_is_live"),
            ).where(workflows.c.id == message.workflow_id)
        ).one_or_none()
        reason = _mismatch(row, message)
        if reason is Discard.LOST_RACE and row is not None and row.begun >= self._settings.begun_turn_limit:
            self._set_aside(connection, message, row)
            return Discard.SET_ASIDE
        return reason

    def _set_aside(self, connection: Connection, message: TurnMessage, row: AnyRow) -> None:
        """O11: out of the way with its reason, fenced like every external ending (O7)."""
        reason = {
            "type": "SetAside",
            "message": f"{row.begun} turns began in a row and none committed; the last on engine {message.engine_id}",
        }
        aside = connection.execute(
            update(workflows)
            .where(*_named(message), workflows.c.begun >= self._settings.begun_turn_limit)
            .values(
                status=WorkflowStatus.SET_ASIDE,
                due=False,
                next_deadline_at=None,
                engine_id=None,
                epoch=workflows.c.epoch + 1,
                attempt_open=False,
                error=json.dumps(reason),
                updated_at=self._clock.now(),
            )
        )
        if aside.rowcount:
            self._claims.drop(connection, [row.id])
            epoch = message.epoch + 1
            record(connection, self._clock, row.id, row.run_id, "set-aside", message.engine_id, epoch, reason)

    # -- the endings of a turn

    def commit(self, begun: BegunTurn, outcome: TurnOutcome) -> CommitAnswer:
        """Everything the turn did, in one transaction, if this attempt is still the current one of the owner (O1)."""
        values: dict[str, Any] = {
            "status": outcome.status,
            "turn": workflows.c.turn + 1,
            "state": outcome.state_json,
            "result": outcome.result,
            "error": outcome.error,
            **_TURN_OVER,
            **self._parked_on(outcome.waits),
        }
        due = self._due_again(begun, outcome.wants_more)
        if outcome.status.is_ended:
            values |= {"engine_id": None, "ended_at": self._clock.now()}
            due = false()
        with self._database.transaction() as connection:
            answer = self._close(connection, begun, due, values)
            if answer.status is CommitStatus.WON:
                self._consume(connection, begun, outcome)
                connection.execute(insert(turns).values(self._turn_record(begun, outcome)))
            return answer

    def settle(self, begun: BegunTurn) -> CommitAnswer:
        """Close an attempt that had no work to do: the turn keeps its number, its waits and their deadlines."""
        with self._database.transaction() as connection:
            return self._close(connection, begun, self._due_again(begun, begun.has_more_signals), dict(_TURN_OVER))

    def retry_later(self, begun: BegunTurn, error: str, delay: timedelta) -> CommitAnswer:
        """Close an attempt whose handler raised: nothing it did commits, and the same turn is tried again after
        `delay` with what it was given before."""
        values = {
            "begun": 0,
            "tries": workflows.c.tries + 1,
            "error": error,
            "not_before_at": self._clock.now() + milliseconds(delay),
            "dispatched_witnessed": None,
        }
        with self._database.transaction() as connection:
            answer = self._close(connection, begun, true(), values)
        return replace(answer, next_message=None)

    def was_closed_by(self, begun: BegunTurn) -> bool:
        """Whether this attempt committed its turn, or closed without one: resolves an unknown ending (O8)."""
        committed = exists().where(
            turns.c.run_id == begun.run_id, turns.c.turn == begun.turn, turns.c.attempt == begun.attempt
        )
        closed = and_(
            workflows.c.epoch == begun.epoch,
            workflows.c.turn == begun.turn,
            workflows.c.attempt == begun.attempt,
            not_(workflows.c.attempt_open),
        )
        with self._database.reading() as connection:
            found = connection.execute(
                select(workflows.c.id).where(
                    workflows.c.id == begun.workflow_id, workflows.c.run_id == begun.run_id, or_(committed, closed)
                )
            )
            return found.one_or_none() is not None

    def record_refusal(self, begun: BegunTurn) -> None:
        """Leave a trace in the history of a commit that was refused."""
        detail = {"turn": begun.turn, "attempt": begun.attempt}
        with self._database.transaction() as connection:
            record(
                connection,
                self._clock,
                begun.workflow_id,
                begun.run_id,
                "commit-refused",
                begun.engine_id,
                begun.epoch,
                detail,
            )

    def is_current(self, begun: BegunTurn) -> bool:
        """Whether the attempt still owns its turn: what `turn.cancelled` asks."""
        with self._database.reading() as connection:
            return connection.execute(select(workflows.c.id).where(*_fence(begun))).one_or_none() is not None

    def _close(
        self, connection: Connection, begun: BegunTurn, due: ColumnElement[bool], values: Mapping[str, Any]
    ) -> CommitAnswer:
        """The conditional write that ends an attempt. A draining engine releases the claim with it (O6)."""
        keeps_claim = self._liveness.is_live(begun.engine_id)
        # Whoever commits sends the next message itself; for a released workflow the reclaim pass does, at once.
        sends_next = and_(keeps_claim, due)
        closing: dict[str, Any] = {
            "attempt_open": False,
            "due": due,
            "engine_id": case((keeps_claim, workflows.c.engine_id), else_=null()),
            "dispatched_witnessed": case((sends_next, self._liveness.witnessed_now()), else_=null()),
            "updated_at": self._clock.now(),
        }
        row = connection.execute(
            update(workflows)
            .where(*_fence(begun))
            .values({**closing, **values})
            .returning(workflows.c.status, workflows.c.engine_id, workflows.c.epoch, workflows.c.turn, workflows.c.due)
        ).one_or_none()
        if row is None:
            return CommitAnswer(status=CommitStatus.LOST)
        if row.engine_id is None:
            self._claims.drop(connection, [begun.workflow_id])
        return _won(begun, row)

    def _due_again(self, begun: BegunTurn, wants_more: bool) -> ColumnElement[bool]:
        """O9: a commit clears only what its begin saw; what arrived beyond the horizon keeps the workflow due."""
        return true() if wants_more else workflows.c.inbox > begun.horizon

    def _parked_on(self, waits: Sequence[tuple[str, timedelta | None]]) -> dict[str, Any]:
        deadline = min((timeout for _name, timeout in waits if timeout is not None), default=None)
        return {
            "waits": json.dumps(
                [[name, None if timeout is None else milliseconds(timeout)] for name, timeout in waits]
            ),
            "waiting_since_at": self._clock.now(),
            "next_deadline_at": None if deadline is None else self._clock.now() + milliseconds(deadline),
        }

    def _consume(self, connection: Connection, begun: BegunTurn, outcome: TurnOutcome) -> None:
        pending = and_(signals.c.run_id == begun.run_id, signals.c.consumed_turn.is_(None))
        if outcome.consumed:
            marked = connection.execute(
                update(signals).where(pending, signals.c.number.in_(outcome.consumed)).values(consumed_turn=begun.turn)
            )
            if marked.rowcount != len(outcome.consumed):
                # Cannot happen while the fence holds; if it does, the whole turn rolls back rather than lose one.
                raise StoreUnavailable("a signal of this turn was consumed elsewhere; the turn was not committed")
        if outcome.status.is_ended:
            connection.execute(update(signals).where(pending).values(consumed_turn=UNDELIVERABLE))

    def _turn_record(self, begun: BegunTurn, outcome: TurnOutcome) -> dict[str, Any]:
        return {
            "run_id": begun.run_id,
            "turn": begun.turn,
            "workflow_id": begun.workflow_id,
            "attempt": begun.attempt,
            "engine_id": begun.engine_id,
            "epoch": begun.epoch,
            "began_at": milliseconds_of(begun.began_at),
            "committed_at": self._clock.now(),
            "outcome": "parked" if outcome.status is WorkflowStatus.RUNNING else outcome.status,
        }


def waits_of(encoded: str, since_ms: int | None) -> tuple[Wait, ...]:
    """The waits as their row has them: names with a duration, counted from the commit that parked the workflow."""
    return tuple(
        Wait(name=name, deadline=None if timeout is None or since_ms is None else moment_of(since_ms + timeout))
        for name, timeout in json.loads(encoded)
    )


def _named(message: TurnMessage) -> tuple[ColumnElement[bool], ...]:
    return (
        workflows.c.id == message.workflow_id,
        workflows.c.run_id == message.run_id,
        workflows.c.engine_id == message.engine_id,
        workflows.c.epoch == message.epoch,
        workflows.c.turn == message.turn,
    )


def _fence(begun: BegunTurn) -> tuple[ColumnElement[bool], ...]:
    """O1: workflow, run, engine, epoch, turn and attempt, in the WHERE of every write of an owner."""
    return (
        workflows.c.id == begun.workflow_id,
        workflows.c.run_id == begun.run_id,
        workflows.c.engine_id == begun.engine_id,
        workflows.c.epoch == begun.epoch,
        workflows.c.turn == begun.turn,
        workflows.c.attempt == begun.attempt,
        workflows.c.attempt_open,
        is_running,
    )


def _mismatch(row: AnyRow | None, message: TurnMessage) -> Discard:
    """The first thing in which the row differs from the message (O10)."""
    if row is None:
        return Discard.NO_WORKFLOW
    checks = (
        (row.run_id == message.run_id, Discard.OTHER_RUN),
        (row.status == WorkflowStatus.RUNNING, Discard.NOT_RUNNING),
        (row.engine_id == message.engine_id and row.epoch == message.epoch, Discard.OTHER_OWNER),
        (row.turn == message.turn, Discard.OTHER_TURN),
        (row.due, Discard.NOT_DUE),
        (row.may_run, Discard.TOO_EARLY),
        (row.no_attempt_runs, Discard.IN_HAND),
        (row.engine_is_live, Discard.ENGINE_NOT_LIVE),
    )
    return next((reason for holds, reason in checks if not holds), Discard.LOST_RACE)


def _begun(row: AnyRow, seen: Sequence[AnyRow]) -> BegunTurn:
    return BegunTurn(
        workflow_id=row.id,
        run_id=row.run_id,
        type=row.type,
        engine_id=row.engine_id,
        epoch=row.epoch,
        turn=row.turn,
        attempt=row.attempt,
        tries=row.tries,
        horizon=row.turn_inbox,
        began_at=moment_of(row.turn_began_at),
        input=json.loads(row.input),
        state_json=row.state,
        signals=tuple(
            BufferedSignal(
                number=signal.number,
                name=signal.name,
                payload=json.loads(signal.payload),
                sent_at=moment_of(signal.sent_at),
            )
            for signal in seen[:SIGNALS_PER_TURN]
        ),
        has_more_signals=len(seen) > SIGNALS_PER_TURN,
        waits=waits_of(row.waits, row.waiting_since_at),
    )


def _won(begun: BegunTurn, row: AnyRow) -> CommitAnswer:
    message = None
    if row.due and row.engine_id is not None:
        message = TurnMessage(
            workflow_id=begun.workflow_id,
            run_id=begun.run_id,
            engine_id=row.engine_id,
            epoch=row.epoch,
            turn=row.turn,
        )
    is_released = row.engine_id is None and row.status == WorkflowStatus.RUNNING
    return CommitAnswer(status=CommitStatus.WON, next_message=message, is_released=is_released)
