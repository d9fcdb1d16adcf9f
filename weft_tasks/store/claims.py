"""Claims: acquire, renew, release and takeover, each a compare-and-swap on (engine, epoch).

Rules: O3 (expiry follows the holder's heartbeat), O4 (takeover), O5 (acquire never steals), O6 (release keeps the
epoch). Rows are locked in one order everywhere: the workflow, then engines, then `weft_claims`, each by their ids, or
without waiting. Whoever waits for a workflow's row therefore keeps no engine from beating, however long somebody else's
transaction takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Subquery,
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
    true,
    update,
)

from weft_tasks.errors import StoreUnavailable
from weft_tasks.events import ClaimAttempted, ClaimOutcome
from weft_tasks.model import EngineStatus, HeldClaim
from weft_tasks.results import Answer
from weft_tasks.settings import Settings
from weft_tasks.shards import WHOLE, Shard, bucket_of
from weft_tasks.store.clock import StoreClock, milliseconds
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.history import NewEntry, record_all, record_released
from weft_tasks.store.json_rows import NUMBER, TEXT, Columns, listed, rows_of
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.named_claims import are_named, go_by_ids
from weft_tasks.store.tables import claims, engines, in_shard, is_running, workflows

_MOVE: Columns = {"workflow_id": TEXT, "run_id": TEXT, "holder": TEXT, "epoch": NUMBER, "target": TEXT}
_GRANTED: Columns = {"workflow_id": TEXT, "engine_id": TEXT, "bucket": NUMBER, "epoch": NUMBER}
SLICE = 1000
"""Claims that one statement releases or deletes; well below SQLite's limit on variables."""


class TakeoverAnswer(StrEnum):
    """What became of one try at an acquire or a takeover."""

    WON = "won"
    LOST = "lost"
    """Holder, epoch or run are not what they were: somebody else was first."""
    NOT_ELIGIBLE = "not-eligible"
    """Nothing changed hands, and by the conditions of O4 or O5 nothing may."""
    NO_TARGET = "no-target"
    """The engine that should have got it takes no work now, or does not know the type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A try at a claim: what the row showed, and under which epoch and at which turn the target now owns it."""

    answer: TakeoverAnswer
    epoch: int = 0
    turn: int = 0
    is_due: bool = False
    silent_for: timedelta | None = None
    """Of a takeover from an engine that is silent or stopped: since its last heartbeat, by the database's clock."""


def attempted_claim(
    workflow_id: str, run_id: str, epoch: int, engine_id: str, grant: Grant, *, holder: str | None = None
) -> ClaimAttempted | None:
    """The event of a try at a claim of `holder`, or of nobody. None if nothing came of it because nothing may change
    hands or the target was lost: that is no race."""
    won = ClaimOutcome.ACQUIRED if holder is None else ClaimOutcome.TAKEOVER
    outcome = {TakeoverAnswer.WON: won, TakeoverAnswer.LOST: ClaimOutcome.LOST_RACE}.get(grant.answer)
    if outcome is None:
        return None
    return ClaimAttempted(
        workflow_id=workflow_id,
        run_id=run_id,
        engine_id=engine_id,
        epoch=epoch if outcome is ClaimOutcome.LOST_RACE else grant.epoch,
        outcome=outcome,
        from_engine_id=holder,
        silent_for=grant.silent_for,
    )


class Move(NamedTuple):
    """A workflow to be moved to `target`, as a list nominated it: from its holder, or from nobody."""

    workflow_id: str
    run_id: str
    holder: str | None
    epoch: int
    target: str


class Claims:
    """The verbs on claims. Each is one transaction; StoreUnavailable means unknown, where it is not an answer (O8)."""

    def __init__(self, database: Database, clock: StoreClock, settings: Settings) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._liveness = Liveness(settings, clock)

    # -- acquire and takeover

    def acquire(self, workflow_id: str, run_id: str, epoch: int, engine_id: str, *, must_be_due: bool = True) -> Grant:
        """Give a running workflow without a holder to `engine_id`, under the next epoch (O5).

        `must_be_due=False` is for the reclaim pass, which also places a released workflow that is parked.
        """
        with self._database.transaction() as connection:
            return self._grant(
                connection,
                workflow_id,
                run_id,
                epoch,
                holder=None,
                target=engine_id,
                may=workflows.c.due if must_be_due else literal(True),
                is_placing=not must_be_due,
            )

    def take_over(self, workflow_id: str, run_id: str, holder: str, epoch: int, target: str) -> Grant:
        """Move a running workflow from a silent or deaf holder to `target`, under the next epoch (O4).

        The conditions are all in the statement that writes; what the caller read before only nominated.
        """
        with self._database.transaction() as connection:
            return self._grant(
                connection, workflow_id, run_id, epoch, holder=holder, target=target, may=self._may_be_taken()
            )

    def _may_be_taken(self) -> ColumnElement[bool]:
        return or_(self._liveness.is_silent(workflows.c.engine_id), self._liveness.holder_is_deaf())

    def move_all(self, moves: Sequence[Move]) -> dict[str, Grant]:
        """Many takeovers, and acquires for the reclaim pass, in one transaction of few statements; each keeps its own
        conditions. Returns the grants that were won, by workflow id.

        Whatever is missing, `acquire` or `take_over` must try alone, which also says why: a row that somebody has
        locked just now is left out here, so that it holds up none of the others.
        """
        with self._database.transaction() as connection:
            free = self._lock_free(connection, moves)
            engine_rows = self._lock_engines(
                connection, *{id for move in free for id in (move.target, move.holder) if id}
            )
            able = [move for move in free if move.target in engine_rows and engine_rows[move.target].takes_work]
            if not able:
                return {}
            moved = self._move(connection, able)
            won = [move for move in able if move.workflow_id in moved]
            self._write_claims(connection, [(move.workflow_id, move.target, move.epoch + 1) for move in won])
            record_all(connection, self._clock, [self._moved_entry(move, engine_rows) for move in won])
            return {
                move.workflow_id: self._granted(moved[move.workflow_id], self._silent_for(move.holder, engine_rows))
                for move in won
            }

    def _lock_free(self, connection: Connection, moves: Sequence[Move]) -> list[Move]:
        """Those that are as named and that nobody has locked."""
        named = rows_of(connection, moves, _MOVE, name="wanted")
        rows = connection.execute(
            select(workflows.c.id)
            .join(named, _is_as_named(named))
            .order_by(workflows.c.id)
            .with_for_update(skip_locked=True, of=workflows)
        )
        locked = set(rows.scalars().all())
        return [move for move in moves if move.workflow_id in locked]

    def _move(self, connection: Connection, moves: Sequence[Move]) -> dict[str, AnyRow]:
        named = rows_of(connection, moves, _MOVE, name="wanted")
        is_taken = named.c.holder.is_not(None)
        rows = connection.execute(
            update(workflows)
            .where(
                _is_as_named(named),
                is_running,
                self._liveness.can_run(named.c.target),
                or_(not_(is_taken), self._may_be_taken()),
            )
            .values(
                engine_id=named.c.target,
                deposed_engine_id=case((is_taken, named.c.holder), else_=workflows.c.deposed_engine_id),
                deposed_witnessed=case((is_taken, self._liveness.witnessed_now()), else_=workflows.c.deposed_witnessed),
                **self.handed_over(),
            )
            .returning(workflows.c.id, workflows.c.epoch, workflows.c.turn, workflows.c.dispatched_witnessed)
        )
        return {row.id: row for row in rows.all()}

    def _write_claims(self, connection: Connection, granted: Sequence[tuple[str, str, int]]) -> None:
        rows_granted = [(id, engine_id, bucket_of(id), epoch) for id, engine_id, epoch in granted]
        named = rows_of(connection, rows_granted, _GRANTED, name="granted")
        connection.execute(self.written(named))

    def written(self, named: FromClause) -> Any:
        """The insert of claims as `named` (workflow_id, engine_id, bucket, epoch), over what is there.
        In the order of their ids, in which everybody locks claims."""
        now = self._clock.now()
        rows = select(
            named.c.workflow_id,
            named.c.engine_id,
            named.c.bucket,
            named.c.epoch,
            now,
            func.coalesce(self._expiry(named.c.engine_id), now),
        )
        insertion = self._database.insert_into(claims).from_select(
            ["workflow_id", "engine_id", "bucket", "epoch", "claimed_at", "expires_at"],
            # SQLite takes the ON of a conflict for that of a join, unless a WHERE comes before.
            rows.where(true()).order_by(named.c.workflow_id),
        )
        new = {name: insertion.excluded[name] for name in ("engine_id", "epoch", "claimed_at", "expires_at")}
        return insertion.on_conflict_do_update(index_elements=[claims.c.workflow_id], set_=new)

    def _grant(
        self,
        connection: Connection,
        workflow_id: str,
        run_id: str,
        epoch: int,
        *,
        holder: str | None,
        target: str,
        may: ColumnElement[bool],
        is_placing: bool = False,
    ) -> Grant:
        is_named = (
            workflows.c.id == workflow_id,
            workflows.c.run_id == run_id,
            workflows.c.engine_id.is_(None) if holder is None else workflows.c.engine_id == holder,
            workflows.c.epoch == epoch,
        )
        if not _lock_workflow(connection, is_named):
            return Grant(answer=TakeoverAnswer.LOST)
        engine_rows = self._lock_engines(connection, *(id for id in (target, holder) if id is not None))
        if target not in engine_rows or not engine_rows[target].takes_work:
            return Grant(answer=TakeoverAnswer.NO_TARGET)
        moved = connection.execute(
            update(workflows)
            .where(
                *is_named,
                is_running,
                self._liveness.can_run(literal(target)),
                may,
            )
            .values(engine_id=target, **self.handed_over(), **({} if holder is None else self._deposed(holder)))
            .returning(workflows.c.epoch, workflows.c.turn, workflows.c.dispatched_witnessed)
        ).one_or_none()
        if moved is None:
            return self._why_not(connection, is_named, target)
        self._write_claims(connection, [(workflow_id, target, moved.epoch)])
        if holder is not None or is_placing:
            move = Move(workflow_id, run_id, holder, epoch, target)
            record_all(connection, self._clock, [self._moved_entry(move, engine_rows)])
        return self._granted(moved, self._silent_for(holder, engine_rows))

    def handed_over(self) -> dict[str, Any]:
        """The values of a workflow that gets a holder, whoever that is."""
        return {
            "epoch": workflows.c.epoch + 1,
            "attempt_open": False,
            "dispatches": 0,
            "unanswered": 0,
            # The one who grants it sends the message next, if it may run; if that is lost, it is overdue after R.
            "dispatched_witnessed": case((self._liveness.may_run_now(), self._liveness.witnessed_now()), else_=null()),
        }

    def _granted(self, moved: AnyRow, silent_for: timedelta | None) -> Grant:
        return Grant(
            answer=TakeoverAnswer.WON,
            epoch=moved.epoch,
            turn=moved.turn,
            is_due=moved.dispatched_witnessed is not None,
            silent_for=silent_for,
        )

    def _moved_entry(self, move: Move, engine_rows: Mapping[str, AnyRow]) -> NewEntry:
        detail: dict[str, object] = {"node": engine_rows[move.target].node}
        if move.holder is not None:
            detail |= {"from": move.holder, **self._why_it_lost(engine_rows.get(move.holder))}
        event = "placed" if move.holder is None else "taken-over"
        return NewEntry(move.workflow_id, move.run_id, event, move.target, move.epoch + 1, detail)

    def _silent_for(self, holder: str | None, engine_rows: Mapping[str, AnyRow]) -> timedelta | None:
        if holder is None or self._why_it_lost(engine_rows.get(holder))["reason"] not in ("silent", "stopped"):
            return None
        return timedelta(milliseconds=engine_rows[holder].beat_age)

    def _deposed(self, holder: str) -> dict[str, object]:
        return {"deposed_engine_id": holder, "deposed_witnessed": self._liveness.witnessed_now()}

    def _lock_engines(self, connection: Connection, *wanted: str) -> dict[str, AnyRow]:
        """Lock the rows of targets and holders against drains and clean-ups until this transaction ends (O4).

        Not against heartbeats: with many takeovers at once some of them hold the row at any moment, and locks that are
        shared make an exclusive one wait for as long as that goes on.
        """
        rows = connection.execute(
            select(
                engines.c.id,
                engines.c.node,
                engines.c.status,
                self._liveness.can_take_work(engines).label("takes_work"),
                (self._clock.now() - engines.c.heartbeat_at).label("beat_age"),
                (self._liveness.witnessed_now() - engines.c.heartbeat_witnessed).label("silence"),
            )
            .where(engines.c.id.in_(wanted))
            .order_by(engines.c.id)
            .with_for_update(read=True, key_share=True, of=engines)
        ).all()
        return {row.id: row for row in rows}

    def _why_it_lost(self, holder: AnyRow | None) -> dict[str, object]:
        """For the history: what made the holder one that may be taken from (O4)."""
        if holder is None:
            return {"reason": "gone"}
        if holder.status == EngineStatus.STOPPED:
            return {"from_node": holder.node, "reason": "stopped"}
        is_silent = holder.silence > milliseconds(self._settings.silence_limit)
        reason = {"reason": "silent", "silent_ms": holder.silence} if is_silent else {"reason": "deaf"}
        return {"from_node": holder.node, **reason}

    def _why_not(self, connection: Connection, is_named: Sequence[ColumnElement[bool]], target: str) -> Grant:
        can_run = connection.execute(select(self._liveness.can_run(literal(target))).where(*is_named)).scalar_one()
        return Grant(answer=TakeoverAnswer.NOT_ELIGIBLE if can_run else TakeoverAnswer.NO_TARGET)

    def _expiry(self, engine_id: ColumnElement[str]) -> ColumnElement[int]:
        """O3: the holder's last heartbeat + T, whoever writes it."""
        ttl = literal(milliseconds(self._settings.claim_ttl), BigInteger)
        return select(engines.c.heartbeat_at + ttl).where(engines.c.id == engine_id).scalar_subquery()

    # -- renew

    def list_held(self, shard: Shard = WHOLE) -> tuple[HeldClaim, ...]:
        """Every claim there is in the shard, whoever holds it."""
        with self._database.reading() as connection:
            # A row for each claim takes twice the processor time of a row for all those of an engine and epoch.
            query = select(claims.c.engine_id, claims.c.epoch, listed(connection, claims.c.workflow_id))
            rows = connection.execute(
                query.where(*in_shard(claims.c.bucket, shard)).group_by(claims.c.engine_id, claims.c.epoch)
            )
            return tuple(HeldClaim(id, engine_id, epoch) for engine_id, epoch, ids in rows.all() for id in ids)

    def renew(self, claim: HeldClaim) -> Answer:
        """Set the claim's expiry to its holder's last heartbeat + T. There is no expiry test: late is fine (O3)."""
        try:
            return self.renew_all((claim,))[0]
        except StoreUnavailable:
            return Answer.UNKNOWN

    def renew_all(self, wanted: Sequence[HeldClaim]) -> tuple[Answer, ...]:
        """Renew many claims in one statement, one answer each, in order; each claim keeps its own condition. If some
        were lost, another one says which.

        Raises StoreUnavailable if it was not answered; then every answer of the call is unknown.
        """
        won = self._renew_named(wanted)
        return tuple(Answer.WON if claim in won else Answer.LOST for claim in wanted)

    def _renew_named(self, wanted: Sequence[HeldClaim]) -> frozenset[HeldClaim]:
        """Those that were renewed. Usually all are, which their number shows: to return each of them would cost as much
        as to find it."""
        named = frozenset(wanted)
        with self._database.transaction() as connection:
            go_by_ids(connection)
            are_wanted = are_named(connection, wanted)
            renewed = connection.execute(
                update(claims)
                .where(*are_wanted)
                .values(expires_at=func.coalesce(self._expiry(claims.c.engine_id), claims.c.expires_at))
            )
            if renewed.rowcount == len(named):
                return named
            # Ours stay locked until the commit, and what was lost never comes back under its epoch.
            return self._those_held(connection, are_wanted)

    def _those_held(self, connection: Connection, which: Sequence[ColumnElement[bool]]) -> frozenset[HeldClaim]:
        found = connection.execute(select(claims.c.workflow_id, claims.c.engine_id, claims.c.epoch).where(*which))
        return frozenset(HeldClaim(*row) for row in found.all())

    # -- release

    def release(self, claim: HeldClaim) -> Answer:
        """Delete the holder, keep the epoch (O6). LOST while an attempt is open: its end comes first."""
        try:
            with self._database.transaction() as connection:
                released = self._release(
                    connection,
                    claim.engine_id,
                    "released",
                    workflows.c.id == claim.workflow_id,
                    workflows.c.engine_id == claim.engine_id,
                    workflows.c.epoch == claim.epoch,
                    not_(workflows.c.attempt_open),
                )
        except StoreUnavailable:
            return Answer.UNKNOWN
        return Answer.WON if released else Answer.LOST

    def release_idle(self, engine_id: str) -> int:
        """Release what the engine holds but does not run at this moment; returns how many (O6).

        A workflow that somebody has locked just now is left out, so that no open transaction of a user holds up the
        others: call it again. Raises StoreUnavailable, and may have released some by then: call it again.
        """
        return self._release_free(engine_id, "draining", not_(workflows.c.attempt_open))

    def release_all(self, engine_id: str) -> int:
        """Release what the engine holds. A turn that is still open was aborted by the stop and does not count towards
        the limit of begun turns (O6, O11).

        A workflow that somebody has locked just now is left to the takeover from the engine, which stops next.
        """
        return self._release_free(engine_id, "stopping")

    def _release_free(self, engine_id: str, reason: str, *which: ColumnElement[bool]) -> int:
        """A transaction for every thousand: however many there are, no statement takes longer than one may."""
        total = 0
        while True:
            with self._database.transaction() as connection:
                released = self._release(connection, engine_id, reason, _some_free_of(engine_id, *which))
            total += released
            if released < SLICE:
                return total

    def _release(self, connection: Connection, engine_id: str, reason: str, *which: ColumnElement[bool]) -> int:
        released = connection.execute(
            update(workflows)
            .where(*which)
            .values(
                engine_id=None,
                dispatched_witnessed=None,
                dispatches=0,
                unanswered=0,
                attempt_open=False,
                begun=case((workflows.c.attempt_open, workflows.c.begun - 1), else_=workflows.c.begun),
            )
            .returning(workflows.c.id, workflows.c.run_id, workflows.c.epoch)
        ).all()
        self.drop(connection, [row.id for row in released])
        record_released(connection, self._clock, released, engine_id, reason)
        return len(released)

    def drop(self, connection: Connection, workflow_ids: Iterable[str]) -> None:
        """Delete the claim rows of workflows whose holder was deleted earlier in the same transaction."""
        drop_claims(connection, workflow_ids)


def claims_by_engine() -> Subquery:
    """How many claims (`n`) each engine holds, by `engine_id`."""
    return select(claims.c.engine_id, func.count().label("n")).group_by(claims.c.engine_id).subquery()


def drop_claims(connection: Connection, workflow_ids: Iterable[str]) -> None:
    """Delete the claim rows of workflows whose holder was deleted earlier in the same transaction."""
    ids = sorted(workflow_ids)
    for start in range(0, len(ids), SLICE):
        is_named = claims.c.workflow_id.in_(ids[start : start + SLICE])
        if len(ids) > 1:
            _lock_claims(connection, is_named)
        connection.execute(
            delete(claims).where(
                is_named,
                not_(exists().where(workflows.c.id == claims.c.workflow_id, workflows.c.engine_id.is_not(None))),
            )
        )


def _is_as_named(named: FromClause) -> ColumnElement[bool]:
    """Of a row and a `Move`: the workflow, its run, its holder or that it has none, and its epoch."""
    holder = workflows.c.engine_id
    return and_(
        workflows.c.id == named.c.workflow_id,
        workflows.c.run_id == named.c.run_id,
        workflows.c.epoch == named.c.epoch,
        or_(holder == named.c.holder, and_(holder.is_(None), named.c.holder.is_(None))),
    )


def _lock_claims(connection: Connection, which: ColumnElement[bool]) -> None:
    """Lock claims by their ids before many are changed at once. The statement that changes them goes by its plan, and a
    renewal and a release that meet could each wait for what the other one has."""
    if connection.dialect.name != "sqlite":
        connection.execute(select(claims.c.workflow_id).where(which).order_by(claims.c.workflow_id).with_for_update())


def _some_free_of(engine_id: str, *which: ColumnElement[bool]) -> ColumnElement[bool]:
    """A thousand of the engine's workflows that nobody has locked, or all if there are fewer; this locks them. Found
    by its claims, so that the cost follows them and not the workflows there are, and in no order, so that the
    first thousand does not cost the sorting of all: nobody waits here."""
    held = select(claims.c.workflow_id).where(claims.c.engine_id == engine_id)
    free = (
        select(workflows.c.id)
        .where(workflows.c.id.in_(held), workflows.c.engine_id == engine_id, *which)
        .limit(SLICE)
        .with_for_update(skip_locked=True, of=workflows)
    )
    return workflows.c.id.in_(free.correlate(None))


def _lock_workflow(connection: Connection, is_named: Sequence[ColumnElement[bool]]) -> bool:
    """Lock the workflow's row if it is as named. What the next statements read is then true until the transaction ends:
    a statement that waits for its own row would go on with what it read before the wait."""
    row = connection.execute(select(workflows.c.id).where(*is_named).with_for_update())
    return row.one_or_none() is not None
