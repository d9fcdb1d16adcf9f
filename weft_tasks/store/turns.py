"""Turns: begin, commit, retry and set aside, each decided by one conditional statement on the fence (O1, O9, O11).

A turn begins by opening the next attempt. What it is given (its horizon: which signals it sees, and when it began) is
fixed at the turn's first begin and is the same for every later attempt. Its outcome commits in one transaction.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from itertools import takewhile
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Executable,
    Update,
    and_,
    case,
    delete,
    exists,
    false,
    insert,
    not_,
    null,
    or_,
    select,
    true,
    update,
)

from weft_tasks.errors import DamagedRow, InvalidInput, StoreUnavailable, WorkflowAlreadyExists
from weft_tasks.model import Json, NewWorkflow, TurnMessage, Wait, WorkflowStatus
from weft_tasks.results import reason_in
from weft_tasks.settings import Settings
from weft_tasks.store.at_once import AtOnce, GivenAlong, SeenSignal
from weft_tasks.store.attempts import GIVEN_TURN, TURN_IS_OVER, fence, is_named_by, message_given, opening
from weft_tasks.store.claims import Claims
from weft_tasks.store.clock import StoreClock, milliseconds, milliseconds_of, moment_of
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.endings import Endings
from weft_tasks.store.given import as_given, given
from weft_tasks.store.history import LONGEST_REASON, record, record_released
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.outbox import Debt, Outbox
from weft_tasks.store.tables import engines, is_unanswered, signals, turns, updates, workflows
from weft_tasks.store.updates import UPDATE_TRIES, UPDATES_PER_TURN, UpdateStatus
from weft_tasks.store.waits import DAMAGE, NewWait, parked_on, readable_waits, waits_of
from weft_tasks.store.workflows import Workflows

FORGET_EVERY = 64
"""Turns of a run between two looks for what its retention has passed."""
T = TypeVar("T")
SIGNALS_PER_TURN = 1000
"""How many buffered signals one turn sees, awaited ones first; a turn that commits before the rest is followed by
another."""


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
    is_failure: bool = False
    """A reply that tells of a failure: of a called task, or of a child that did not complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferedUpdate:
    """An unanswered update as a turn sees it. `is_spent`: it took down too many turns, and is answered unheard."""

    number: int
    key: str
    name: str
    payload: Json
    is_spent: bool = False


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
    has_more: bool
    """Signals or updates that this turn is not given: the next one is due at once."""
    waits: tuple[Wait, ...]
    version: int = 1
    updates: tuple[BufferedUpdate, ...] = ()
    is_cancelling: bool = False
    woken_after: timedelta | None = None
    """From the signal that woke it, or from when it began to wait if that was later, to the begin. None if no signal
    did, and when the turn had begun before."""
    damage: DamagedRow | None = None
    """Why there is nothing that a handler could be given."""
    traces: tuple[str, ...] = ()
    """Where what it is given was sent from: the start, the awaited signals and the updates, as W3C `traceparent`s."""

    @property
    def expired_waits(self) -> tuple[str, ...]:
        """Names waited for whose deadline had passed when the turn first began."""
        return tuple(wait.name for wait in self.waits if wait.deadline is not None and wait.deadline <= self.began_at)

    @property
    def has_work(self) -> bool:
        """Whether anything is to be done; a wake that proves empty calls nothing."""
        return bool(self.updates or self.is_cancelling or self.has_work_for_handler)

    @property
    def has_work_for_handler(self) -> bool:
        """Whether the handler itself has a reason to run, updates apart."""
        awaited = {wait.name for wait in self.waits}
        return bool(
            self.turn == 0 or self.tries or self.expired_waits or any(signal.name in awaited for signal in self.signals)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOutcome:
    """The one answer to an update."""

    number: int
    status: UpdateStatus
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """What a turn wants to commit. `waits` are names with a duration, counted from the commit, or with a time."""

    status: WorkflowStatus
    state_json: str
    consumed: tuple[int, ...] = ()
    waits: tuple[NewWait, ...] = ()
    result: str | None = None
    error: str | None = None
    wants_more: bool = False
    """The turn left signals that it now waits for: the next turn is due at once."""
    keeps_waits: bool = False
    """The workflow goes on waiting as before, deadlines included."""
    answers: tuple[UpdateOutcome, ...] = ()
    calls: tuple[Debt, ...] = ()
    children: tuple[NewWorkflow, ...] = ()


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
    debts: tuple[Debt, ...] = ()
    """What the commit owes to others, to be paid now that it stands."""
    started: tuple[TurnMessage, ...] = ()
    """The offers of the children that the commit started."""


class Turns:
    """The verbs on turns. StoreUnavailable from any of them means unknown (O8)."""

    def __init__(
        self,
        database: Database,
        clock: StoreClock,
        settings: Settings,
        *,
        claims: Claims,
        workflows: Workflows,
        outbox: Outbox,
        endings: Endings,
        at_once: AtOnce,
    ) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._claims = claims
        self._at_once = at_once
        self._workflows = workflows
        self._outbox = outbox
        self._endings = endings
        self._liveness = Liveness(settings, clock)

    # -- begin

    def begin(self, message: TurnMessage, task_id: str) -> BegunTurn | Discard:
        """Open the next attempt at the turn that `message` names, or say why not (O9, O10).

        `task_id` is what the engine's heartbeats will name while the attempt is in hand. At the limit of begun turns
        the workflow is set aside instead (O11). StoreUnavailable: perhaps the attempt stands, and what it was given was
        not read; then it counts as begun, and is over once two heartbeats have not named it (O8, O9).
        """
        at_once = self._at_once.begin(message, json.dumps(task_id))
        row, along = at_once or (self._open(message, task_id), None)
        if row is None:
            with self._database.transaction() as connection:
                return self._why_not(connection, message)
        if row.engine_is_deaf:
            self.note_answer(row.engine_id)
        return self._with_what_it_is_given(row, along)

    def acquire_and_begin(self, message: TurnMessage, engine_id: str, task_id: str) -> BegunTurn | None:
        """Take an offer for the engine (O5) and begin its turn, both or nothing. None if that is not to be had at once:
        then `Claims.acquire` and `begin` tell. StoreUnavailable is as for `begin`."""
        row = self._at_once.acquire_and_begin(message, engine_id, json.dumps(task_id))
        return None if row is None else self._with_what_it_is_given(row)

    def _open(self, message: TurnMessage, task_id: str) -> AnyRow | None:
        with self._database.statement() as connection:
            values = message_given(message) | as_given(task=json.dumps(task_id))
            return connection.execute(self._opening, values).one_or_none()

    @cached_property
    def _opening(self) -> Executable:
        return opening(self._clock, self._liveness, begun_turn_limit=self._settings.begun_turn_limit)

    def _with_what_it_is_given(self, row: AnyRow, along: GivenAlong | None = None) -> BegunTurn:
        """What did not come along with the row is read after the attempt stands: what an earlier one could still have
        consumed is settled then, and what this one is given was fixed with it. Nothing was ever sent to a run whose
        inbox is at 0."""
        has_updates, seen = along or (self._signals_within(row) if row.turn_inbox else (False, ()))
        asked, has_more = self._updates_within(row) if has_updates else ((), False)
        return _begun(row, seen, asked, has_more=has_more)

    def _signals_within(self, row: AnyRow) -> tuple[bool, Sequence[AnyRow]]:
        """Whether there are unanswered updates up to the horizon, and the buffered signals: what is awaited before the
        rest, so that however many signals of other names nobody takes, they never hide the awaited one."""
        awaited = [wait.name for wait in readable_waits(row.waits, row.waiting_since_at) or ()]
        with self._database.reading() as connection:
            values = as_given(run_id=row.run_id, horizon=row.turn_inbox, awaited=awaited)
            rows = connection.execute(_SIGNALS_WITHIN, values).all()
        return bool(rows[0].has_updates), [found for found in rows if found.number is not None]

    def _updates_within(self, row: AnyRow) -> tuple[Sequence[AnyRow], bool]:
        """The unanswered updates up to the horizon, each counted as begun with, and whether there are more.

        One that an attempt began with which did not commit comes alone from then on, in whatever turn: so the one that
        takes down every turn is told from the others, and they are not given up with it.
        """
        pending = _pending_updates(row.run_id, row.turn_inbox)
        limit = UPDATES_PER_TURN + 1
        with self._database.transaction() as connection:
            found = connection.execute(select(updates).where(*pending).order_by(updates.c.number).limit(limit)).all()
            if not found:
                return (), False
            given = found[:1] if found[0].begun else _untried(found[:UPDATES_PER_TURN])
            connection.execute(
                update(updates)
                .where(*pending, updates.c.number.in_([asked.number for asked in given]))
                .values(begun=updates.c.begun + 1)
            )
        return given, len(found) > len(given)

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
            return Discard.SET_ASIDE if self._set_aside(connection, message, row) else reason
        return reason

    def _set_aside(self, connection: Connection, message: TurnMessage, row: AnyRow) -> bool:
        """O11: out of the way with its reason, fenced like every external ending (O7).

        False, and nothing is written, if the row moved on after it was read: its last turn committed after all, or
        somebody else was first.
        """
        reason = {
            "type": "SetAside",
            "message": f"{row.begun} turns began in a row and none committed; the last on engine {message.engine_id}",
        }
        aside = connection.execute(
            update(workflows)
            .where(*is_named_by(message), workflows.c.begun >= self._settings.begun_turn_limit)
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
        if not aside.rowcount:
            return False
        self._claims.drop(connection, [row.id])
        epoch = message.epoch + 1
        record(connection, self._clock, row.id, row.run_id, "set-aside", message.engine_id, epoch, reason)
        return True

    def note_answer(self, engine_id: str) -> None:
        """A question sent to the engine's own queue has reached its pool, so it takes turns (O12)."""
        with self._database.transaction() as connection:
            connection.execute(update(engines).where(engines.c.id == engine_id, engines.c.deaf).values(deaf=False))

    # -- the endings of a turn

    def commit(self, begun: BegunTurn, outcome: TurnOutcome) -> CommitAnswer:
        """Everything the turn did, in one transaction, if this attempt is still the current one of the owner (O1)."""
        forgets = begun.turn % FORGET_EVERY == FORGET_EVERY - 1
        if not (outcome.answers or outcome.calls or outcome.children or forgets):
            closed = self._at_once.commit(begun, outcome)
            if closed is not None:
                return _won(begun, closed)
        values: dict[str, Any] = {
            "status": outcome.status,
            "turn": workflows.c.turn + 1,
            "state": outcome.state_json,
            "result": outcome.result,
            "error": outcome.error,
            **TURN_IS_OVER,
            **({} if outcome.keeps_waits else parked_on(outcome.waits, self._clock.now())),
        }
        due = self._due_again(begun, outcome.wants_more)
        if outcome.status.is_ended:
            values |= {"engine_id": None, "ended_at": self._clock.now(), "end_by_at": None}
            due = false()
        try:
            with self._database.transaction() as connection:
                answer, row = self._close(connection, begun, due, values)
                if row is None:
                    return answer
                self._consume(connection, begun, outcome)
                connection.execute(insert(turns).values(self._turn_record(begun, outcome)))
                if forgets:
                    self._forget(connection, begun.run_id)
                return replace(answer, **self._spread(connection, row, outcome))
        except WorkflowAlreadyExists as taken:
            raise InvalidInput("child", f"has an id that is taken already: {taken.workflow_id!r}") from taken

    def _forget(self, connection: Connection, run_id: str) -> None:
        """Drop what the run has long done with, so that a workflow that lives for years does not grow for years."""
        before = self._clock.now() - milliseconds(self._settings.history_retention)
        for table, is_over, at in (
            (turns, true(), turns.c.committed_at),
            (signals, signals.c.consumed_turn.is_not(None), signals.c.sent_at),
            (updates, updates.c.answered_at.is_not(None), updates.c.answered_at),
        ):
            connection.execute(delete(table).where(table.c.run_id == run_id, is_over, at < before))

    def _spread(self, connection: Connection, row: AnyRow, outcome: TurnOutcome) -> dict[str, Any]:
        """What the commit means to others: calls, children, and what follows from an end."""
        self._outbox.owe(connection, outcome.calls)
        # By their ids: two commits with the same children in another order would wait for each other.
        in_order = sorted(outcome.children, key=lambda child: child.id)
        started = tuple(self._start_child(connection, child) for child in in_order)
        debts = outcome.calls
        if outcome.status.is_ended:
            debts += self._endings.follow(connection, row, outcome.status, result=outcome.result, error=outcome.error)
        return {"debts": debts, "started": started}

    def _start_child(self, connection: Connection, child: NewWorkflow) -> TurnMessage:
        run_id = uuid.uuid4().hex
        floor = self._workflows.lock_floor(connection)
        self._workflows.insert(connection, child, run_id, floor)
        return TurnMessage(workflow_id=child.id, run_id=run_id, engine_id=None, epoch=floor, turn=0)

    def settle(self, begun: BegunTurn) -> CommitAnswer:
        """Close an attempt that had no work to do: the turn keeps its number, its waits and their deadlines.

        What was left unseen is not awaited, or the turn would have been given it.
        """
        with self._database.transaction() as connection:
            return self._close(connection, begun, workflows.c.inbox > begun.horizon, dict(TURN_IS_OVER))[0]

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
            answer, row = self._close(connection, begun, true(), values)
            if row is not None:
                self._record_failure(connection, begun, error, {"again_in_ms": milliseconds(delay)})
        return replace(answer, next_message=None)

    def give_up(self, begun: BegunTurn, error: str) -> CommitAnswer:
        """Close an attempt whose handler raised for the last time: nothing it did commits, and the workflow has failed.

        The turn stays what it is, with what it was given, so that a retry of the workflow is another try at it.
        """
        values = {
            "status": WorkflowStatus.FAILED,
            "engine_id": None,
            "begun": 0,
            "tries": workflows.c.tries + 1,
            "error": error,
            "not_before_at": None,
            "next_deadline_at": None,
            "end_by_at": None,
            "ended_at": self._clock.now(),
        }
        with self._database.transaction() as connection:
            answer, row = self._close(connection, begun, false(), values)
            if row is None:
                return answer
            self._record_failure(connection, begun, error, {"again_in_ms": None})
            debts = self._endings.follow(connection, row, WorkflowStatus.FAILED, result=None, error=error)
            return replace(answer, debts=debts)

    def _record_failure(self, connection: Connection, begun: BegunTurn, error: str, then: Mapping[str, Any]) -> None:
        """Leave in the history that the handler raised, and when it is tried again: None means never."""
        detail = {
            "turn": begun.turn,
            "attempt": begun.attempt,
            "error": reason_in(json.loads(error))[:LONGEST_REASON],
            **then,
        }
        clock, engine_id = self._clock, begun.engine_id
        record(connection, clock, begun.workflow_id, begun.run_id, "turn-failed", engine_id, begun.epoch, detail)

    def was_closed_by(self, begun: BegunTurn) -> bool:
        """Whether this attempt committed its turn, or settled it, put it off or gave it up: resolves an unknown ending
        (O8).

        A stop or a takeover closes an attempt too, but leaves the turn and its count of tries as they were.
        """
        committed = exists().where(
            turns.c.run_id == begun.run_id, turns.c.turn == begun.turn, turns.c.attempt == begun.attempt
        )
        closed = and_(
            workflows.c.epoch == begun.epoch,
            workflows.c.turn == begun.turn,
            workflows.c.attempt == begun.attempt,
            not_(workflows.c.attempt_open),
            or_(workflows.c.turn_inbox.is_(None), workflows.c.tries > begun.tries),
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
            return connection.execute(select(workflows.c.id).where(*fence(begun))).one_or_none() is not None

    def _close(
        self, connection: Connection, begun: BegunTurn, due: ColumnElement[bool], values: Mapping[str, Any]
    ) -> tuple[CommitAnswer, AnyRow | None]:
        row = connection.execute(self._closing(begun, due, values).returning(workflows)).one_or_none()
        if row is None:
            return CommitAnswer(status=CommitStatus.LOST), None
        if row.engine_id is None:
            self._claims.drop(connection, [begun.workflow_id])
        answer = _won(begun, row)
        if answer.is_released:
            record_released(connection, self._clock, [row], begun.engine_id, "draining")
        return answer, row

    def _closing(self, begun: BegunTurn, due: ColumnElement[bool], values: Mapping[str, Any]) -> Update:
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
        return update(workflows).where(*fence(begun)).values({**closing, **values})

    def _due_again(self, begun: BegunTurn, wants_more: bool) -> ColumnElement[bool]:
        """O9: a commit clears only what its begin saw; what arrived beyond the horizon keeps the workflow due."""
        return true() if wants_more else workflows.c.inbox > begun.horizon

    def _consume(self, connection: Connection, begun: BegunTurn, outcome: TurnOutcome) -> None:
        pending = and_(signals.c.run_id == begun.run_id, signals.c.consumed_turn.is_(None))
        if outcome.consumed:
            marked = connection.execute(
                update(signals).where(pending, signals.c.number.in_(outcome.consumed)).values(consumed_turn=begun.turn)
            )
            if marked.rowcount != len(outcome.consumed):
                # Cannot happen while the fence holds; if it does, the whole turn rolls back rather than lose one.
                raise StoreUnavailable("a signal of this turn was consumed elsewhere; the turn was not committed")
        for answer in outcome.answers:
            connection.execute(
                update(updates)
                .where(
                    updates.c.run_id == begun.run_id,
                    updates.c.number == answer.number,
                    is_unanswered,
                )
                .values(status=answer.status, answer=answer.answer, answered_at=self._clock.now())
            )

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


def _pending_updates(run_id: Any, horizon: Any) -> tuple[ColumnElement[bool], ...]:
    """The unanswered updates of a run, up to the horizon of its turn."""
    return updates.c.run_id == run_id, is_unanswered, updates.c.number <= horizon


def _signals_within_horizon() -> Executable:
    run_id, horizon = GIVEN_TURN.run_id, given("horizon", BigInteger())
    is_awaited = signals.c.name.in_(given("awaited", signals.c.name.type, is_list=True))
    buffered = (
        select(signals)
        .where(signals.c.run_id == run_id, signals.c.consumed_turn.is_(None), signals.c.number <= horizon)
        .order_by(case((is_awaited, 0), else_=1), signals.c.number)
        .limit(SIGNALS_PER_TURN + 1)
        .subquery("buffered")
    )
    asked = select(exists().where(*_pending_updates(run_id, horizon)).label("has_updates")).subquery("asked")
    return select(asked.c.has_updates, buffered).select_from(asked.outerjoin(buffered, true()))


_SIGNALS_WITHIN = _signals_within_horizon()


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


def _untried(asked: Sequence[AnyRow]) -> Sequence[AnyRow]:
    return tuple(takewhile(lambda update_row: update_row.begun == 0, asked))


class _Reader:
    """Reads what a row's columns say, and keeps the first damage instead of raising it: the attempt is open by now, and
    has to be closed like any other that fails."""

    def __init__(self, workflow_id: str) -> None:
        self._workflow_id = workflow_id
        self.damage: DamagedRow | None = None

    def json(self, column: str, text: str) -> Json:
        return self._read(column, lambda: json.loads(text), None)

    def waits(self, row: AnyRow) -> tuple[Wait, ...]:
        return self._read("weft_workflows.waits", lambda: waits_of(row.waits, row.waiting_since_at), ())

    def _read(self, column: str, read: Callable[[], T], instead: T) -> T:
        try:
            return read()
        except DAMAGE as problem:
            self.damage = self.damage or DamagedRow(self._workflow_id, column, problem)
            return instead


def _begun(row: AnyRow, seen: Sequence[AnyRow | SeenSignal], asked: Sequence[AnyRow], *, has_more: bool) -> BegunTurn:
    reader = _Reader(row.id)
    begun = _read_begun(reader, row, seen, asked, has_more=has_more)
    return begun if reader.damage is None else replace(begun, damage=reader.damage)


def _read_begun(
    reader: _Reader, row: AnyRow, seen: Sequence[AnyRow | SeenSignal], asked: Sequence[AnyRow], *, has_more: bool
) -> BegunTurn:
    waits = reader.waits(row)
    awaited = _awaited(waits, seen)
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
        input=reader.json("weft_workflows.input", row.input),
        state_json=row.state,
        signals=tuple(
            BufferedSignal(
                number=signal.number,
                name=signal.name,
                payload=reader.json("weft_signals.payload", signal.payload),
                sent_at=moment_of(signal.sent_at),
                is_failure=signal.is_failure,
            )
            for signal in sorted(seen[:SIGNALS_PER_TURN], key=lambda signal: signal.number)
        ),
        has_more=has_more or len(seen) > SIGNALS_PER_TURN,
        waits=waits,
        version=row.version,
        updates=tuple(
            BufferedUpdate(
                number=asking.number,
                key=asking.key,
                name=asking.name,
                payload=reader.json("weft_updates.payload", asking.payload),
                is_spent=asking.begun >= UPDATE_TRIES,
            )
            for asking in asked
        ),
        is_cancelling=row.cancelling,
        woken_after=_woken_after(row, awaited),
        traces=_traces(row, (*awaited, *asked)),
    )


def _awaited(waits: Sequence[Wait], seen: Sequence[AnyRow | SeenSignal]) -> list[AnyRow | SeenSignal]:
    names = {wait.name for wait in waits}
    return [signal for signal in seen if signal.name in names]


def _woken_after(row: AnyRow, awaited: Sequence[AnyRow | SeenSignal]) -> timedelta | None:
    is_first_begin = row.begun == 1 and row.tries == 0
    if not (awaited and is_first_begin and row.waiting_since_at is not None):
        return None
    could_wake_at = max(row.waiting_since_at, min(signal.sent_at for signal in awaited))
    return timedelta(milliseconds=max(0, row.turn_began_at - could_wake_at))


def _traces(row: AnyRow, given: Sequence[AnyRow | SeenSignal]) -> tuple[str, ...]:
    """Each once, in order."""
    sent = [row.trace] if row.turn == 0 else []
    sent += [each.trace for each in given]
    return tuple(dict.fromkeys(trace for trace in sent if trace is not None))


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
