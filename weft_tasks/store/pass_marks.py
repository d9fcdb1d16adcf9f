"""When each pass last ran, in the store: what tells a stale tick (O2), a health check, and who asked for a pass.

With several shards each pass of a shard has a mark, named like `renewal[2/4]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from sqlalchemy import BigInteger, Boolean, Connection, Executable, Select, Text, case, or_, select, update

from weft_tasks.results import PassKind
from weft_tasks.settings import Settings
from weft_tasks.shards import shards_of
from weft_tasks.store.clock import StoreClock, milliseconds, moment_of
from weft_tasks.store.database import AnyRow, Database
from weft_tasks.store.given import as_given, given
from weft_tasks.store.payloads import decode
from weft_tasks.store.tables import passes

RUN_ONCE = "run-once"
_IS_NAMED = passes.c.kind == given("kind", Text())
_KINDS = frozenset(kind.value for kind in PassKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassMark:
    """What the store knows of the latest pass of a kind. Ages are measured by the database's clock."""

    kind: str
    began_at: datetime | None = None
    finished_at: datetime | None = None
    began_ago_ms: int | None = None
    skipped: int = 0
    requested: int = 0
    runs: int = 0
    """Passes of this kind that ended, ever, and how long they took together."""
    ran_ms: int = 0
    token: str | None = None
    result: dict[str, Any] | None = None

    @property
    def began_ago(self) -> timedelta | None:
        return None if self.began_ago_ms is None else timedelta(milliseconds=self.began_ago_ms)

    @property
    def took(self) -> timedelta | None:
        """How long the latest pass took; None while it runs, and if none ever did."""
        if self.began_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.began_at

    def lag(self, interval: timedelta) -> timedelta | None:
        """How long the next pass is overdue: the time since the last one began, beyond the interval. None for
        `run-once`, which is not scheduled, and for a pass that never ran."""
        if self.kind == RUN_ONCE or self.began_ago is None:
            return None
        return max(self.began_ago - interval, timedelta(0))


class PassMarks:
    """The verbs on pass marks. StoreUnavailable means unknown."""

    def __init__(self, database: Database, clock: StoreClock, settings: Settings) -> None:
        self._database = database
        self._clock = clock
        self._fresh_ms = milliseconds(settings.renew_interval) // 2
        shards = shards_of(settings.shards)
        self._names = (*(shard.named(kind.value) for kind in PassKind for shard in shards), RUN_ONCE)

    def begin(self, kind: str, token: str, *, even_if_recent: bool = False) -> bool:
        """Mark the pass as begun now by `token`, without a result yet. False if it began less than R/2 ago.

        The first pass of a shard makes its mark: no schema knows how many there will be. A mark from the future
        counts as old: the database's clock was set back.
        """
        named = as_given(kind=kind, token=token, even_if_recent=even_if_recent)
        with self._database.statement() as connection:
            if _is_of_one_of_several_shards(kind):
                self._make(connection, kind)
            return bool(connection.execute(self._begun, named).rowcount)

    @cached_property
    def _begun(self) -> Executable:
        # Not the time at which the statement began: a tick that was faster meanwhile is not one from the future.
        now = self._clock.now_after_locks()
        is_stale = or_(passes.c.began_at.is_(None), passes.c.began_at <= now - self._fresh_ms, passes.c.began_at > now)
        values = {"began_at": now, "token": given("token", Text()), "finished_at": None, "result": None}
        return update(passes).where(_IS_NAMED, or_(given("even_if_recent", Boolean()), is_stale)).values(values)

    def _make(self, connection: Connection, kind: str) -> None:
        new = self._database.insert_into(passes).values(kind=kind, requested=0, skipped=0, runs=0, ran_ms=0)
        connection.execute(new.on_conflict_do_nothing(index_elements=[passes.c.kind]))

    def finish(self, kind: str, token: str, result_json: str, *, took: timedelta) -> None:
        """Count the pass that `token` began, and keep its result unless a later one has begun since."""
        with self._database.statement() as connection:
            connection.execute(
                self._finished, as_given(kind=kind, token=token, result=result_json, took=milliseconds(took))
            )

    @cached_property
    def _finished(self) -> Executable:
        is_latest = passes.c.token == given("token", Text())
        return (
            update(passes)
            .where(_IS_NAMED)
            .values(
                runs=passes.c.runs + 1,
                ran_ms=passes.c.ran_ms + given("took", BigInteger()),
                finished_at=case((is_latest, self._clock.now()), else_=passes.c.finished_at),
                result=case((is_latest, given("result", Text())), else_=passes.c.result),
            )
        )

    def count_skip(self, kind: str) -> None:
        with self._database.statement() as connection:
            connection.execute(update(passes).where(passes.c.kind == kind).values(skipped=passes.c.skipped + 1))

    def request(self, kind: str) -> None:
        """Ask for a pass at once: whoever runs one now runs another right after it."""
        with self._database.statement() as connection:
            connection.execute(update(passes).where(passes.c.kind == kind).values(requested=passes.c.requested + 1))

    def read(self, kind: str) -> PassMark:
        with self._database.reading() as connection:
            row = connection.execute(self._mark, as_given(kind=kind)).one_or_none()
        return PassMark(kind=kind) if row is None else _mark(row)

    def read_all(self) -> Mapping[str, PassMark]:
        """The marks of every pass that runs by these settings, in the order in which they run, `run-once` last.

        Those of another number of shards stay in the store, and are not shown."""
        with self._database.reading() as connection:
            found = {row.kind: row for row in connection.execute(self._marks())}
        return {name: _mark(found[name]) if name in found else PassMark(kind=name) for name in self._names}

    @cached_property
    def _mark(self) -> Executable:
        return self._marks().where(_IS_NAMED)

    def _marks(self) -> Select[Any]:
        return select(passes, (self._clock.now() - passes.c.began_at).label("age"))


def _is_of_one_of_several_shards(name: str) -> bool:
    """Only the marks of the whole store are there from the migration on."""
    kind, bracket, _ = name.partition("[")
    return bool(bracket) and kind in _KINDS


def _mark(row: AnyRow) -> PassMark:
    return PassMark(
        kind=row.kind,
        began_at=None if row.began_at is None else moment_of(row.began_at),
        finished_at=None if row.finished_at is None else moment_of(row.finished_at),
        began_ago_ms=row.age,
        skipped=row.skipped,
        requested=row.requested,
        runs=row.runs,
        ran_ms=row.ran_ms,
        token=row.token,
        result=decode(row.result),
    )
