"""The store: one SQL database, and every statement that is sent to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from sqlalchemy import select

from weft_tasks.settings import Settings
from weft_tasks.store.aborts import Aborts
from weft_tasks.store.at_once import AtOnce
from weft_tasks.store.claims import Claims
from weft_tasks.store.clock import DatabaseClock, StoreClock, milliseconds
from weft_tasks.store.counters import Counters
from weft_tasks.store.database import Database, Limits
from weft_tasks.store.endings import Endings
from weft_tasks.store.engines import Engines
from weft_tasks.store.gauges import Gauges
from weft_tasks.store.history import History
from weft_tasks.store.inspection import Inspections
from weft_tasks.store.lifecycle import Lifecycle
from weft_tasks.store.outbox import Outbox
from weft_tasks.store.overview import Overviews
from weft_tasks.store.pass_marks import PassMarks
from weft_tasks.store.signals import Signals
from weft_tasks.store.tables import store as store_row
from weft_tasks.store.turns import Turns
from weft_tasks.store.updates import Updates
from weft_tasks.store.workflows import Workflows


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The verbs on one database, by what they are about. Opens no connection before the first verb."""

    database: Database
    claims: Claims
    engines: Engines
    workflows: Workflows
    turns: Turns
    signals: Signals
    updates: Updates
    outbox: Outbox
    lifecycle: Lifecycle
    aborts: Aborts
    pass_marks: PassMarks
    history: History
    inspections: Inspections
    overviews: Overviews
    counters: Counters
    gauges: Gauges

    @classmethod
    def open(cls, settings: Settings, *, clock: StoreClock | None = None, limits: Limits | None = None) -> Self:
        """The store that the settings name. `limits` other than the settings' are for the heart."""
        clock = clock or DatabaseClock()
        database = Database(settings.database_url, limits or limits_of(settings))
        claims = Claims(database, clock, settings)
        at_once = AtOnce(database, clock, settings, claims=claims)
        workflows = Workflows(database, clock, settings)
        outbox = Outbox(database, clock, settings)
        engines, pass_marks = Engines(database, clock, settings), PassMarks(database, clock, settings)
        history = History(database, clock)
        endings = Endings(clock, outbox, milliseconds(settings.cancel_bound))
        return cls(
            database=database,
            claims=claims,
            engines=engines,
            workflows=workflows,
            turns=Turns(
                database,
                clock,
                settings,
                claims=claims,
                workflows=workflows,
                outbox=outbox,
                endings=endings,
                at_once=at_once,
            ),
            signals=Signals(database, clock, settings, at_once=at_once),
            updates=Updates(database, clock, settings),
            outbox=outbox,
            aborts=Aborts(database),
            lifecycle=Lifecycle(database, clock, settings, claims=claims, endings=endings),
            pass_marks=pass_marks,
            history=history,
            inspections=Inspections(database, clock, settings, workflows=workflows, history=history),
            overviews=Overviews(database, clock, settings, engines=engines, pass_marks=pass_marks, workflows=workflows),
            counters=Counters(database),
            gauges=Gauges(database, clock, settings),
        )

    def id(self) -> str:
        """The random id that this database got with its schema."""
        with self.database.reading() as connection:
            return str(connection.execute(select(store_row.c.store_id)).scalar_one())


def limits_of(settings: Settings) -> Limits:
    """What a worker process or a client may cost the database."""
    return Limits(
        statement_timeout=settings.statement_timeout,
        connect_timeout=settings.connect_timeout,
        lock_wait=max(settings.renew_interval, settings.statement_timeout),
        pool_size=settings.database_pool_size,
    )


def heart_limits_of(settings: Settings) -> Limits:
    """What the heart may: no connection kept over a fork, and never longer than one statement, for a fork waits."""
    return Limits(
        statement_timeout=settings.statement_timeout,
        connect_timeout=settings.connect_timeout,
        lock_wait=settings.statement_timeout,
        pool_size=0,
    )
