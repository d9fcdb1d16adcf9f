"""What PostgreSQL does at once, in one statement that is its own transaction: a first begin, the commit of a turn that
concerns only its own run, a signal.

The verbs that use these are complete without them. What is done at once has the conditions, locks and writes of the
verb's own statements. None means that nothing was written, because something is not as it mostly is, or is changing
just now: the verb then goes its long way, which knows every case and says why not.

All parts of one statement see the store as it was when the statement began, but a row that it locks or writes is the
latest there is. So nothing here depends on a row that others may change meanwhile, unless it is locked, or the row of
the workflow, which is, tells that the other one did not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    CTE,
    JSON,
    BigInteger,
    Boolean,
    ColumnElement,
    Executable,
    ScalarSelect,
    SmallInteger,
    Text,
    Update,
    and_,
    case,
    cast,
    delete,
    exists,
    func,
    insert,
    literal,
    not_,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DataError, IntegrityError

from weft_tasks.model import TurnMessage, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.shards import bucket_of
from weft_tasks.store.attempts import GIVEN_TURN, TURN_IS_OVER, attempt_given, fence, message_given, opened, opening
from weft_tasks.store.claims import Claims
from weft_tasks.store.clock import StoreClock, milliseconds_of
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.endings import CANCEL
from weft_tasks.store.given import as_given, given
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.tables import claims, engines, is_running, is_unanswered, signals, turns, updates, workflows
from weft_tasks.store.waits import encoded
from weft_tasks.tracing import current_trace

if TYPE_CHECKING:
    from weft_tasks.store.turns import BegunTurn, TurnOutcome

_TOLD = ("id", "run_id", "status", "engine_id", "epoch", "turn", "due")
"""What is read of a row that was written: what the message for it names."""
_TEXT, _NUMBER, _FLAG, _NUMBERS = Text(), BigInteger(), Boolean(), ARRAY(BigInteger())


SIGNALS_ALONG = 100
"""How many signals a begin may bring along; with more they are read afterwards, the awaited ones first."""


class SeenSignal(NamedTuple):
    """A pending signal, as its row has it."""

    number: int
    name: str
    payload: str
    sent_at: int
    is_failure: bool
    trace: str | None


class GivenAlong(NamedTuple):
    """All that a turn is given: whether there are unanswered updates, and the pending signals in order."""

    has_updates: bool
    signals: tuple[SeenSignal, ...]


class AtOnce:
    """The statements, each built when it is first wanted. On SQLite every answer is None."""

    def __init__(self, database: Database, clock: StoreClock, settings: Settings, *, claims: Claims) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._claims = claims
        self._liveness = Liveness(settings, clock)

    def _execute(self, statement: Executable, values: Mapping[str, Any]) -> AnyRow | None:
        with self._database.statement() as connection:
            return connection.execute(statement, values).one_or_none()

    # -- an offer is taken, and its turn begins

    def acquire_and_begin(self, message: TurnMessage, engine_id: str, task: str) -> AnyRow | None:
        """Give the workflow to the engine (O5) and open an attempt at its turn (O9); returns the row.

        `task` is the JSON of the Celery task id. StoreUnavailable: perhaps both stand.
        """
        if self._database.is_sqlite:
            return None
        return self._execute(
            self._acquire_and_begin,
            message_given(message) | as_given(engine_id=engine_id, task=task),
        )

    @cached_property
    def _acquire_and_begin(self) -> Executable:
        # Neither of the two waits for its lock, so it does not matter which one comes first.
        free = (
            select(workflows.c.id)
            .where(
                workflows.c.id == GIVEN_TURN.workflow_id,
                workflows.c.run_id == GIVEN_TURN.run_id,
                workflows.c.engine_id.is_(None),
                workflows.c.epoch == GIVEN_TURN.epoch,
                is_running,
                self._liveness.may_run_now(),
                self._liveness.can_run(GIVEN_TURN.engine_id),
                workflows.c.begun < self._settings.begun_turn_limit,
            )
            .with_for_update(skip_locked=True, of=workflows)
            .cte("free")
        )
        target = (
            select(engines.c.id, engines.c.beat)
            .where(engines.c.id == GIVEN_TURN.engine_id, self._liveness.can_take_work(engines))
            .with_for_update(read=True, key_share=True, skip_locked=True, of=engines)
            .cte("target")
        )
        begins = opened(self._clock, given("task", _TEXT), select(target.c.beat).scalar_subquery())
        taken = (
            update(workflows)
            .where(workflows.c.id == GIVEN_TURN.workflow_id, exists(select(free.c.id)), exists(select(target.c.id)))
            .values({**self._claims.handed_over(), "engine_id": GIVEN_TURN.engine_id, **begins})
            .returning(workflows)
            .cte("taken")
        )
        granted = select(taken.c.id.label("workflow_id"), taken.c.engine_id, taken.c.bucket, taken.c.epoch).subquery()
        claimed = self._claims.written(granted).cte("claimed")
        return select(taken).add_cte(claimed)

    # -- a turn begins

    def begin(self, message: TurnMessage, task: str) -> tuple[AnyRow, GivenAlong | None] | None:
        """Open the next attempt (O9); returns the row with what the turn is given, unless that has to be read: there is
        more of it, or something arrived while the statement waited for the row.

        `task` is the JSON of the Celery task id. StoreUnavailable: perhaps the attempt stands.
        """
        if self._database.is_sqlite:
            return None
        row = self._execute(self._begin, message_given(message) | as_given(task=task))
        if row is None:
            return None
        found = tuple(SeenSignal(*signal) for signal in row.buffered or ())
        is_all = row.inbox_seen == row.inbox and len(found) <= SIGNALS_ALONG
        return row, GivenAlong(row.has_updates, found) if is_all else None

    @cached_property
    def _begin(self) -> Executable:
        """Nothing but a commit consumes, and it raises the turn. So if the count on the locked row is that of the row
        as the statement saw it, it saw all that was sent."""
        limit = self._settings.begun_turn_limit
        attempt = opening(self._clock, self._liveness, begun_turn_limit=limit).cte("attempt")
        before = workflows.alias("before")
        inbox_seen = select(before.c.inbox).where(before.c.id == GIVEN_TURN.workflow_id).scalar_subquery()
        is_given = (signals.c.run_id == attempt.c.run_id, signals.c.number <= attempt.c.turn_inbox)
        buffered = (
            select(*(signals.c[name] for name in SeenSignal._fields))
            .where(*is_given, signals.c.consumed_turn.is_(None))
            .order_by(signals.c.number)
            .limit(SIGNALS_ALONG + 1)
            .correlate(attempt)
            .subquery("buffered")
        )
        listed = select(func.json_agg(func.json_build_array(*buffered.c))).scalar_subquery()
        has_updates = exists().where(
            updates.c.run_id == attempt.c.run_id, is_unanswered, updates.c.number <= attempt.c.turn_inbox
        )
        return select(
            attempt, inbox_seen.label("inbox_seen"), has_updates.label("has_updates"), listed.label("buffered")
        )

    # -- the commit of a turn that concerns nobody else

    def commit(self, begun: BegunTurn, outcome: TurnOutcome) -> AnyRow | None:
        """Close the attempt, mark what it consumed, and record the turn (O1); returns what a message for it names.

        None also if the engine drains, a consumed signal is not pending, or the end of the workflow concerns others:
        its parent, its children, whoever sent what it did not take.
        """
        if self._database.is_sqlite:
            return None
        wait = encoded(outcome.waits)
        values = as_given(
            status=outcome.status.value,
            state=outcome.state_json,
            result=outcome.result,
            error=outcome.error,
            consumed=list(outcome.consumed),
            wants_more=outcome.wants_more,
            horizon=begun.horizon,
            keeps_waits=outcome.keeps_waits,
            waits=wait.names,
            timeout=wait.timeout,
            until=wait.until,
            began_at=milliseconds_of(begun.began_at),
        )
        return self._execute(self._end if outcome.status.is_ended else self._park, attempt_given(begun) | values)

    @cached_property
    def _park(self) -> Executable:
        is_due = or_(given("wants_more", _FLAG), workflows.c.inbox > given("horizon", _NUMBER))
        witnessed = self._liveness.witnessed_now()
        parks = self._closing().where(self._liveness.is_live(GIVEN_TURN.engine_id))
        closed = _told(parks.values(due=is_due, dispatched_witnessed=case((is_due, witnessed), else_=null())))
        return select(closed).add_cte(*self._followed(closed, literal("parked")))

    @cached_property
    def _end(self) -> Executable:
        """What is numbered up to the horizon was there when the turn began. So if nothing was numbered since, which
        the row of the workflow tells, no part of the statement misses any."""
        run_id = GIVEN_TURN.run_id
        unanswered = exists().where(updates.c.run_id == run_id, is_unanswered)
        children = workflows.alias("children")
        cancelled = exists().where(children.c.parent_run_id == run_id, children.c.close_policy == CANCEL)
        ends = self._closing().where(
            workflows.c.inbox <= given("horizon", _NUMBER),
            workflows.c.parent_reply.is_(None),
            _count_of(*_PENDING) == func.cardinality(_CONSUMED),
            not_(unanswered),
            not_(cancelled),
        )
        over = {"due": False, "dispatched_witnessed": None, "engine_id": None, "end_by_at": None}
        closed = _told(ends.values(**over, ended_at=self._clock.now()))
        dropped = delete(claims).where(claims.c.workflow_id == GIVEN_TURN.workflow_id, exists(select(closed.c.id)))
        return select(closed).add_cte(*self._followed(closed, given("status", _TEXT)), dropped.cte("dropped"))

    def _closing(self) -> Update:
        now, keeps = self._clock.now(), given("keeps_waits", _FLAG)
        # PostgreSQL leaves out what is null, SQLite does not.
        deadline = func.least(now + given("timeout", _NUMBER), given("until", _NUMBER))
        row = workflows.c
        return (
            update(workflows)
            .where(
                *fence(GIVEN_TURN),
                _count_of(*_PENDING, _IS_CONSUMED) == func.cardinality(_CONSUMED),
            )
            .values(
                **TURN_IS_OVER,
                status=given("status", _TEXT),
                turn=row.turn + 1,
                state=given("state", _TEXT),
                result=given("result", _TEXT),
                error=given("error", _TEXT),
                attempt_open=False,
                waits=case((keeps, row.waits), else_=given("waits", _TEXT)),
                waiting_since_at=case((keeps, row.waiting_since_at), else_=now),
                next_deadline_at=case((keeps, row.next_deadline_at), else_=deadline),
                updated_at=now,
            )
        )

    def _followed(self, closed: CTE, became: ColumnElement[str]) -> tuple[CTE, CTE]:
        """What is written if the attempt was closed: its record, and the marks on what it consumed."""
        record = {
            "run_id": GIVEN_TURN.run_id,
            "turn": GIVEN_TURN.turn,
            "workflow_id": GIVEN_TURN.workflow_id,
            "attempt": GIVEN_TURN.attempt,
            "engine_id": GIVEN_TURN.engine_id,
            "epoch": GIVEN_TURN.epoch,
            "began_at": given("began_at", _NUMBER),
            "committed_at": self._clock.now(),
            "outcome": became,
        }
        noted = insert(turns).from_select(list(record), select(*record.values()).select_from(closed))
        marked = update(signals).where(*_PENDING, _IS_CONSUMED, exists(select(closed.c.id)))
        return noted.cte("noted"), marked.values(consumed_turn=GIVEN_TURN.turn).cte("consumed")

    # -- signals

    def send(
        self, workflow_id: str, name: str, payload: str, *, key: str | None, run_id: str | None, is_failure: bool
    ) -> AnyRow | None:
        """Number the signal and store it, and wake the workflow if it waits for it (O9); returns what a message for it
        names, with the signal's `number`, and whether it `is_sent` to anybody.

        None also if the key has been used.
        """
        if self._database.is_sqlite:
            return None
        values = as_given(
            workflow_id=workflow_id,
            bucket=bucket_of(workflow_id),
            run_id=run_id,
            name=name,
            payload=payload,
            key=key,
            is_failure=is_failure,
            trace=current_trace(),
        )
        try:
            return self._execute(self._send, values)
        except (IntegrityError, DataError):
            # The same key was used at this very moment; or the row's waits are damaged.
            return None

    @cached_property
    def _send(self) -> Executable:
        row = workflows.c
        wait = func.json_array_elements(cast(row.waits, JSON)).column_valued("wait")
        is_awaited = exists(select(wait).where(wait.op("->>")(0) == given("name", _TEXT)))
        wakes = and_(is_awaited, not_(row.due), not_(row.attempt_open))
        used = exists().where(signals.c.run_id == row.run_id, signals.c.key == given("key", _TEXT))
        found = (
            select(row.id, wakes.label("wakes"), and_(wakes, row.engine_id.is_not(None), is_running).label("is_sent"))
            .where(
                row.id == GIVEN_TURN.workflow_id,
                row.run_id == func.coalesce(GIVEN_TURN.run_id, row.run_id),
                row.status.in_([status.value for status in WorkflowStatus if not status.is_ended]),
                not_(used),
            )
            .with_for_update(of=workflows)
            .cte("found")
        )
        counted = (
            update(workflows)
            .where(row.id == found.c.id)
            .values(
                inbox=row.inbox + 1,
                due=or_(row.due, found.c.wakes),
                dispatched_witnessed=case(
                    (found.c.is_sent, self._liveness.witnessed_now()), else_=row.dispatched_witnessed
                ),
            )
            .returning(*(row[name] for name in _TOLD), row.inbox.label("number"), found.c.is_sent)
            .cte("counted")
        )
        signal = {
            "run_id": counted.c.run_id,
            "number": counted.c.number,
            "workflow_id": counted.c.id,
            "bucket": given("bucket", SmallInteger()),
            "name": given("name", _TEXT),
            "payload": given("payload", _TEXT),
            "is_failure": given("is_failure", _FLAG),
            "key": given("key", _TEXT),
            "sent_at": self._clock.now(),
            "trace": given("trace", _TEXT),
        }
        stored = insert(signals).from_select(list(signal), select(*signal.values()))
        return select(counted).add_cte(stored.cte("stored"))


_CONSUMED = given("consumed", _NUMBERS)
_PENDING = (signals.c.run_id == GIVEN_TURN.run_id, signals.c.consumed_turn.is_(None))
_IS_CONSUMED = signals.c.number == func.any(_CONSUMED)


def _count_of(*which: ColumnElement[bool]) -> ScalarSelect[int]:
    """How many signals."""
    return select(func.count()).select_from(signals).where(*which).scalar_subquery()


def _told(closing: Update) -> CTE:
    return closing.returning(*(workflows.c[name] for name in _TOLD)).cte("closed")
