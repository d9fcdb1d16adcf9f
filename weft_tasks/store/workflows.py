"""Workflows: start one, describe one, list them, and the reclaim pass's work list."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    Executable,
    Integer,
    Text,
    and_,
    case,
    delete,
    exists,
    func,
    literal,
    not_,
    null,
    or_,
    select,
    union_all,
    update,
)

from weft_tasks.errors import DamagedRow, WorkflowAlreadyExists, WorkflowNotFound
from weft_tasks.model import NewWorkflow, TurnMessage, WorkflowInfo, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.shards import WHOLE, Shard
from weft_tasks.store.clock import StoreClock, milliseconds, milliseconds_of, moment_of
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.given import as_given, given
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.outbox import DebtKind
from weft_tasks.store.tables import (
    claims,
    engine_types,
    engines,
    in_shard,
    is_not_running,
    is_running,
    outbox,
    signals,
    store,
    turns,
    updates,
    workflows,
)
from weft_tasks.store.waits import DAMAGE, waits_of
from weft_tasks.tracing import current_trace

MOST_CANDIDATES: Final = 50_000
"""That one reclaim pass lists. It moves some thousands in a second; what it does not reach in its time it has read and
planned for nothing, and a list of a million takes all the time that there is."""


def may_be_cut(listed: int) -> bool:
    """Whether a list with so many may have left some out. A deaf engine's workflow is listed twice."""
    return 2 * listed >= MOST_CANDIDATES


class CandidateKind(StrEnum):
    """Why the reclaim pass looks at a workflow; the try itself reads everything afresh. Of two reasons the first one
    counts, in this order."""

    UNOWNED = "unowned"
    SILENT_HOLDER = "silent-holder"
    DEAF_HOLDER = "deaf-holder"
    OVERDUE = "overdue"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimCandidate:
    """A workflow nominated for a takeover, an acquire or another dispatch, as the list found it."""

    kind: CandidateKind
    workflow_id: str
    run_id: str
    type: str
    engine_id: str | None
    epoch: int
    turn: int
    version: int = 1
    deposed_engine_id: str | None = None
    """The engine that lost this workflow within the cooldown (O11)."""
    is_overdue: bool = False
    """Its turn message is so old that it must be sent again, if nothing better can be done."""

    @property
    def message(self) -> TurnMessage:
        """The turn message that its holder should have got."""
        return TurnMessage(
            workflow_id=self.workflow_id,
            run_id=self.run_id,
            engine_id=self.engine_id,
            epoch=self.epoch,
            turn=self.turn,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """An engine that takes work now (O4), with the types and versions it can run and the claims it holds."""

    engine_id: str
    types: frozenset[tuple[str, int]]
    claims: int


class Workflows:
    """The verbs on workflow rows. StoreUnavailable means unknown."""

    def __init__(self, database: Database, clock: StoreClock, settings: Settings) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._liveness = Liveness(settings, clock)
        self._candidates_in = cache(self._candidates)

    def start(
        self, workflow_id: str, type_name: str, input_json: str, connection: Connection | None = None
    ) -> TurnMessage:
        """Start a workflow with nothing but an input; see `start_new`."""
        return self.start_new(NewWorkflow(id=workflow_id, type=type_name, input_json=input_json), connection)

    def start_new(
        self, new: NewWorkflow, connection: Connection | None = None, *, restarts: bool = False
    ) -> TurnMessage:
        """Write a running workflow that is due and has no holder; returns the message that offers it to any engine.

        One transaction, or the caller's. Raises WorkflowAlreadyExists, unless the one there has ended and `restarts`:
        then it is replaced under a higher epoch. The epoch starts at the store's floor, which is read under a lock, so
        that a purge of the same id cannot slip in between (O7).
        """
        run_id = uuid.uuid4().hex
        epoch = None if connection is not None or restarts else self._insert_at_once(new, run_id)
        if epoch is None:
            with self._database.transaction(connection) as own:
                epoch = max(self.lock_floor(own), self._make_room(own, new.id) if restarts else 0)
                self.insert(own, new, run_id, epoch)
        return TurnMessage(workflow_id=new.id, run_id=run_id, engine_id=None, epoch=epoch, turn=0)

    def lock_floor(self, connection: Connection) -> int:
        """The epoch at which new rows start, held against a purge until the caller's transaction ends (O7)."""
        return int(connection.execute(_LOCKED_FLOOR).scalar_one())

    def insert(self, connection: Connection, new: NewWorkflow, run_id: str, epoch: int) -> None:
        """The row itself, within the caller's transaction, which stays usable if the id is taken: raises
        WorkflowAlreadyExists."""
        values = _values_of(new, run_id) | as_given(epoch=epoch)
        if connection.execute(self._insertion, values).one_or_none() is None:
            raise WorkflowAlreadyExists(new.id, _status_of(connection, new.id))

    def _insert_at_once(self, new: NewWorkflow, run_id: str) -> int | None:
        """The row at the floor, in one statement on PostgreSQL; returns its epoch. None, and nothing is written, if the
        id is taken."""
        if self._database.is_sqlite:
            return None
        with self._database.statement() as connection:
            row = connection.execute(self._insertion_at_floor, _values_of(new, run_id)).one_or_none()
        return None if row is None else int(row.epoch)

    @cached_property
    def _insertion(self) -> Executable:
        return self._inserted(given("epoch", BigInteger()))

    @cached_property
    def _insertion_at_floor(self) -> Executable:
        return self._inserted(_LOCKED_FLOOR.scalar_subquery())

    def _inserted(self, epoch: ColumnElement[int]) -> Executable:
        """The insert of a row that `_values_of` gives the values. An error would abort the caller's transaction on
        PostgreSQL; a conflict that does nothing leaves it usable."""
        now, number = self._clock.now(), BigInteger()
        # O5: its message has one R of witnessed time before the reclaim pass picks it up.
        told_at = case((given("is_put_off", Boolean()), null()), else_=self._liveness.witnessed_now())
        insertion: Executable = (
            self._database.insert_into(workflows)
            .values(
                epoch=epoch,
                not_before_at=func.coalesce(given("at", number), now + given("delay", number)),
                dispatched_witnessed=told_at,
                end_by_at=now + given("timeout", number),
                created_at=now,
                updated_at=now,
            )
            .on_conflict_do_nothing(index_elements=[workflows.c.id])
            .returning(workflows.c.epoch)
        )
        return insertion

    def _make_room(self, connection: Connection, workflow_id: str) -> int:
        """Delete an ended run of the id, and return the epoch that its successor must not go below."""
        row = locked_row(connection, workflow_id)
        if row is None:
            return 0
        if not WorkflowStatus(row.status).is_ended:
            raise WorkflowAlreadyExists(workflow_id, row.status)
        delete_runs(connection, [row.run_id])
        return int(row.epoch) + 1

    # -- describe and list

    def describe(self, workflow_id: str) -> WorkflowInfo:
        """The workflow as its row is now. Raises WorkflowNotFound."""
        with self._database.reading() as connection:
            row = connection.execute(_described().where(workflows.c.id == workflow_id)).one_or_none()
        if row is None:
            raise WorkflowNotFound(workflow_id)
        return _info(row)

    def run_id_of(self, workflow_id: str, connection: Connection | None = None) -> str:
        """The current run of an id, as a transaction of the caller's sees it. Raises WorkflowNotFound."""
        reading = self._database.reading() if connection is None else self._database.transaction(connection)
        with reading as own:
            run_id = own.execute(select(workflows.c.run_id).where(workflows.c.id == workflow_id)).scalar_one_or_none()
        if run_id is None:
            raise WorkflowNotFound(workflow_id)
        return str(run_id)

    def list(
        self,
        *,
        type_name: str | None = None,
        status: WorkflowStatus | None = None,
        engine_id: str | None = None,
        older_than: timedelta | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> tuple[WorkflowInfo, ...]:
        """Up to `limit` workflows in the order of their ids, those after the id `after`: one page."""
        query = _described().order_by(workflows.c.id).limit(limit)
        filters = ((workflows.c.type, type_name), (workflows.c.status, status), (workflows.c.engine_id, engine_id))
        for column, wanted in filters:
            if wanted is not None:
                query = query.where(column == wanted)
        if status is not None and status is not WorkflowStatus.RUNNING:
            query = query.where(is_not_running)
        if older_than is not None:
            query = query.where(workflows.c.created_at < self._clock.now() - milliseconds(older_than))
        if after is not None:
            query = query.where(workflows.c.id > after)
        with self._database.reading() as connection:
            return tuple(_info(row) for row in connection.execute(query))

    def count_by_status(self) -> Mapping[str, int]:
        with self._database.reading() as connection:
            rows = connection.execute(select(workflows.c.status, func.count()).group_by(workflows.c.status)).all()
        return {row[0]: row[1] for row in rows}

    # -- the reclaim pass's lists

    def list_reclaim_candidates(self, shard: Shard = WHOLE) -> tuple[ReclaimCandidate, ...]:
        """What O4, O5, O9 and O12 make a candidate now, in the shard. The cost follows the work due and the engines.

        Of more than a pass can handle it lists some by chance, so that what always fails keeps nothing else waiting."""
        with self._database.reading() as connection:
            lost = connection.execute(self._holders_lost).scalars().all()
            rows = connection.execute(self._candidates_in(shard), as_given(lost=lost, most=MOST_CANDIDATES)).all()
        overdue = {row.id for row in rows if row.kind == CandidateKind.OVERDUE}
        seen: dict[str, ReclaimCandidate] = {}
        for row in sorted(rows, key=lambda row: _RANKS[row.kind]):
            seen.setdefault(row.id, _candidate(row, is_overdue=row.id in overdue))
        return tuple(seen.values())

    @cached_property
    def _holders_lost(self) -> Executable:
        """The engine ids that claims name and that are silent, stopped or without a row (O4).

        Walks the index from one id to the next, so that the cost follows the engines and not their claims.
        """
        first = select(func.min(claims.c.engine_id).label("engine_id")).cte("holders", recursive=True)
        following = select(func.min(claims.c.engine_id)).where(claims.c.engine_id > first.c.engine_id).scalar_subquery()
        holders = first.union_all(select(following).where(first.c.engine_id.is_not(None)))
        return select(holders.c.engine_id).where(
            holders.c.engine_id.is_not(None), self._liveness.is_silent(holders.c.engine_id)
        )

    def _candidates(self, shard: Shard) -> Executable:
        held = workflows.c.engine_id.is_not(None)
        unowned = and_(
            is_running,
            workflows.c.engine_id.is_(None),
            or_(not_(workflows.c.due), self._liveness.dispatch_is_overdue()),
        )
        overdue = and_(
            is_running,
            held,
            self._liveness.may_run_now(),
            self._liveness.no_attempt_runs(),
            self._liveness.dispatch_is_overdue(),
        )
        ours = in_shard(workflows.c.bucket, shard)
        candidates = union_all(
            self._nominated(CandidateKind.SILENT_HOLDER).where(is_running, workflows.c.id.in_(_held_by_lost(shard))),
            self._nominated(CandidateKind.DEAF_HOLDER).where(self._has_deaf_holder(), *ours),
            self._nominated(CandidateKind.UNOWNED).where(unowned, *ours),
            self._nominated(CandidateKind.OVERDUE).where(overdue, *ours),
        ).subquery()
        return select(candidates).order_by(func.random()).limit(given("most", Integer()))

    def _has_deaf_holder(self) -> ColumnElement[bool]:
        return and_(is_running, workflows.c.engine_id.is_not(None), self._liveness.holder_is_deaf())

    def _nominated(self, kind: CandidateKind) -> Any:
        cooling = workflows.c.deposed_witnessed >= self._liveness.witnessed_ago(self._settings.claim_ttl)
        return select(
            literal(kind.value).label("kind"),
            workflows.c.id,
            workflows.c.run_id,
            workflows.c.type,
            workflows.c.version,
            workflows.c.engine_id,
            workflows.c.epoch,
            workflows.c.turn,
            case((cooling, workflows.c.deposed_engine_id)).label("deposed_engine_id"),
        )

    def list_deaf_holders(self) -> frozenset[str]:
        """The engines that a reclaim pass over the whole store finds deaf now (O12). The cost follows the work due."""
        query = select(workflows.c.engine_id).where(self._has_deaf_holder()).distinct()
        with self._database.reading() as connection:
            return frozenset(connection.execute(query).scalars())

    def list_engines_taking_work(self, shard: Shard = WHOLE) -> tuple[EngineLoad, ...]:
        """The targets there are for a takeover now, in no order; the try locks and checks its target again (O4).

        Their claims are those of the shard: passes that run side by side each even out their own.
        """
        held = (
            select(func.count())
            .select_from(claims)
            .where(claims.c.engine_id == engines.c.id, *in_shard(claims.c.bucket, shard))
            .scalar_subquery()
        )
        with self._database.reading() as connection:
            rows = connection.execute(
                select(engines.c.id, held.label("claims")).where(self._liveness.can_take_work(engines))
            ).all()
            types: dict[str, set[tuple[str, int]]] = {row.id: set() for row in rows}
            for row in connection.execute(select(engine_types).where(engine_types.c.engine_id.in_(list(types)))):
                types[row.engine_id].add((row.type, row.version))
        return tuple(EngineLoad(engine_id=row.id, types=frozenset(types[row.id]), claims=row.claims) for row in rows)

    # -- dispatch

    def note_dispatch(self, message: TurnMessage) -> None:
        """Count a message that was published again for a due workflow nobody has begun (O9).

        It counts towards deafness only if the holder has beaten since the previous one and reported free slots (O12).
        """
        holder = engines.alias("dispatched_to")
        listened = exists().where(
            holder.c.id == workflows.c.engine_id,
            holder.c.free_slots > 0,
            holder.c.heartbeat_witnessed > workflows.c.dispatched_witnessed,
        )
        with self._database.transaction() as connection:
            connection.execute(
                update(workflows)
                .where(
                    workflows.c.id == message.workflow_id,
                    workflows.c.run_id == message.run_id,
                    workflows.c.engine_id == message.engine_id,
                    workflows.c.epoch == message.epoch,
                    workflows.c.turn == message.turn,
                    workflows.c.due,
                    self._liveness.no_attempt_runs(),
                )
                .values(
                    dispatched_witnessed=self._liveness.witnessed_now(),
                    dispatches=workflows.c.dispatches + 1,
                    unanswered=case((listened, workflows.c.unanswered + 1), else_=workflows.c.unanswered),
                )
            )


_LOCKED_FLOOR = select(store.c.epoch_floor).where(store.c.id == 1).with_for_update(read=True)
_OF_A_NEW_RUN: Mapping[str, Any] = MappingProxyType(
    {
        "status": WorkflowStatus.RUNNING.value,
        "turn": 0,
        "attempt": 0,
        "due": True,
        "dispatches": 0,
        "unanswered": 0,
        "attempt_open": False,
        "begun": 0,
        "tries": 0,
        "inbox": 0,
        "waits": "[]",
        "cancelling": False,
        "state": "{}",
    }
)


def _values_of(new: NewWorkflow, run_id: str) -> dict[str, Any]:
    parent = new.parent
    row = {
        **_OF_A_NEW_RUN,
        "id": new.id,
        "type": new.type,
        "version": new.version,
        "run_id": run_id,
        "parent_id": None if parent is None else parent.id,
        "parent_run_id": None if parent is None else parent.run_id,
        "parent_reply": None if parent is None else parent.reply,
        "close_policy": None if parent is None else parent.close_policy,
        "trace": current_trace(),
        "input": new.input_json,
    }
    return row | as_given(
        at=None if new.at is None else milliseconds_of(new.at),
        delay=None if new.delay is None else milliseconds(new.delay),
        timeout=None if new.timeout is None else milliseconds(new.timeout),
        is_put_off=new.is_put_off,
    )


def locked_row(connection: Connection, workflow_id: str) -> AnyRow | None:
    """The workflow's row, locked until the caller's transaction ends; None if no workflow has the id.

    A run that is replaced while we wait for its lock is gone when we get it, and its successor is younger than our
    statement: only a second look finds it.
    """
    look = select(workflows).where(workflows.c.id == workflow_id).with_for_update()
    row = connection.execute(look).one_or_none()
    return connection.execute(look).one_or_none() if row is None else row


def delete_runs(connection: Connection, run_ids: Sequence[str]) -> None:
    """Delete runs with everything that belongs to them, within the caller's transaction.

    Calls that are still to be sent are not theirs any more: the turn that made them has committed.
    """
    for table in (signals, updates, turns, workflows):
        connection.execute(delete(table).where(table.c.run_id.in_(run_ids)))
    is_theirs = or_(outbox.c.kind == DebtKind.REPLY, outbox.c.sent_witnessed.is_not(None))
    connection.execute(delete(outbox).where(outbox.c.run_id.in_(run_ids), is_theirs))


def _status_of(connection: Connection, workflow_id: str) -> str:
    status = connection.execute(select(workflows.c.status).where(workflows.c.id == workflow_id)).scalar_one_or_none()
    return status or "unknown"


_RANKS = {kind.value: rank for rank, kind in enumerate(CandidateKind)}


def _held_by_lost(shard: Shard) -> Any:
    is_lost = claims.c.engine_id.in_(given("lost", Text(), is_list=True))
    return select(claims.c.workflow_id).where(is_lost, *in_shard(claims.c.bucket, shard))


def _described() -> Any:
    pending = (
        select(func.count())
        .select_from(signals)
        .where(signals.c.run_id == workflows.c.run_id, signals.c.consumed_turn.is_(None))
        .scalar_subquery()
    )
    unanswered = (
        select(func.count())
        .select_from(updates)
        .where(updates.c.run_id == workflows.c.run_id, updates.c.status == "pending")
        .scalar_subquery()
    )
    return select(workflows, pending.label("pending_signals"), unanswered.label("pending_updates"))


def _info(row: AnyRow) -> WorkflowInfo:
    try:
        return _readable_info(row)
    except DAMAGE as problem:
        raise DamagedRow(row.id, "its row in weft_workflows", problem) from problem


def _readable_info(row: AnyRow) -> WorkflowInfo:
    return WorkflowInfo(
        id=row.id,
        type=row.type,
        version=row.version,
        run_id=row.run_id,
        status=WorkflowStatus(row.status),
        is_cancelling=row.cancelling,
        engine_id=row.engine_id,
        epoch=row.epoch,
        turn=row.turn,
        is_due=row.due,
        waits=waits_of(row.waits, row.waiting_since_at),
        pending_signals=row.pending_signals,
        pending_updates=row.pending_updates,
        state=json.loads(row.state),
        input=json.loads(row.input),
        result=None if row.result is None else json.loads(row.result),
        error=None if row.error is None else json.loads(row.error),
        created_at=moment_of(row.created_at),
        updated_at=moment_of(row.updated_at),
        ended_at=None if row.ended_at is None else moment_of(row.ended_at),
        parent_id=row.parent_id,
    )


def _candidate(row: AnyRow, *, is_overdue: bool) -> ReclaimCandidate:
    return ReclaimCandidate(
        kind=CandidateKind(row.kind),
        workflow_id=row.id,
        run_id=row.run_id,
        type=row.type,
        version=row.version,
        engine_id=row.engine_id,
        epoch=row.epoch,
        turn=row.turn,
        deposed_engine_id=row.deposed_engine_id,
        is_overdue=is_overdue,
    )
