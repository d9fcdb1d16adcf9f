"""Times are the database's, in UTC, whatever zone a process or a session lives in (O2, field report 48)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from weft_tasks.model import NewWorkflow
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.clock import DatabaseClock, ManualClock, milliseconds, milliseconds_of, moment_of
from weft_tasks.store.tables import claims, engines

ZONES = ("Asia/Kolkata", "America/Los_Angeles", "Pacific/Kiritimati", "UTC")
MINUTE = timedelta(minutes=1)
UNHURRIED = {"claim_ttl": 10 * MINUTE, "renew_interval": MINUTE, "grace": 2 * MINUTE}
"""The clock is the database's own: nothing may become overdue or silent while a test waits for a slow machine."""


@pytest.fixture
def opened_in(
    backend: str, fresh_store: Callable[[str], tuple[Store, ManualClock]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Store]]:
    """Opens the store, under the database's own clock, as a process in some zone would."""
    url = fresh_store(backend)[0].database.engine.url.render_as_string(hide_password=False)
    stores: list[Store] = []

    def open_in(zone: str) -> Store:
        monkeypatch.setenv("TZ", zone)
        monkeypatch.setenv("PGTZ", zone)
        time.tzset()
        stores.append(Store.open(Settings(database_url=url, **UNHURRIED), clock=DatabaseClock()))
        return stores[-1]

    yield open_in
    for store in stores:
        store.database.dispose()
    monkeypatch.undo()
    time.tzset()


def test_rows_written_in_any_zone_are_of_this_moment_and_in_the_order_in_which_they_were_written(
    opened_in: Callable[[str], Store],
) -> None:
    before = datetime.now(UTC)
    for number, zone in enumerate(ZONES):
        store = opened_in(zone)
        store.engines.register(f"e{number}", node=zone, host="h", pid=1, types=["permit"], slots=1)
        message = store.workflows.start(f"w{number}", "permit", "null")
        assert store.claims.acquire(message.workflow_id, message.run_id, message.epoch, f"e{number}").answer == "won"

    for zone in ZONES:
        store = opened_in(zone)
        created = [workflow.created_at for workflow in store.workflows.list()]
        assert created == sorted(created)
        assert all(before - MINUTE < moment < datetime.now(UTC) + MINUTE for moment in created)
        assert {moment.utcoffset() for moment in created} == {timedelta(0)}
        with store.database.reading() as connection:
            rows = connection.execute(
                select(claims.c.expires_at, engines.c.heartbeat_at).join(engines, engines.c.id == claims.c.engine_id)
            ).all()
        assert [expires - heartbeat for expires, heartbeat in rows] == [600_000] * len(ZONES)
        assert len(store.workflows.list_engines_taking_work()) == len(ZONES)
        assert store.workflows.list_reclaim_candidates() == ()


def test_a_start_at_a_time_of_any_zone_begins_at_that_moment(opened_in: Callable[[str], Store]) -> None:
    store = opened_in("Asia/Kolkata")
    store.engines.register("e", node="n", host="h", pid=1, types=["permit"], slots=1)
    soon = datetime.now(UTC) + timedelta(hours=1)
    for workflow_id, at in (("past", soon - timedelta(hours=2)), ("future", soon.astimezone())):
        new = NewWorkflow(id=workflow_id, type="permit", input_json="null", at=at)
        message = store.workflows.start_new(new)
        grant = store.claims.acquire(workflow_id, message.run_id, message.epoch, "e")
        assert (grant.answer, grant.is_due) == ("won", workflow_id == "past")


def test_the_databases_clock_is_this_machines_and_goes_on_within_a_transaction(
    opened_in: Callable[[str], Store],
) -> None:
    store, clock = opened_in("America/Los_Angeles"), DatabaseClock()
    with store.database.transaction() as connection:
        first = connection.execute(select(clock.now(), clock.now_after_locks())).one()
        while (later := connection.execute(select(clock.now_after_locks())).scalar_one()) == first[1]:
            pass
    assert later > first[1]
    assert abs(moment_of(first[0]) - datetime.now(UTC)) < MINUTE
    assert abs(first[0] - first[1]) < 1000


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 59, 59, 999000, tzinfo=UTC),
        datetime(1969, 7, 20, tzinfo=UTC),
    ],
)
def test_a_moment_comes_back_from_its_milliseconds(moment: datetime) -> None:
    assert moment_of(milliseconds_of(moment)) == moment


def test_what_is_less_than_a_millisecond_is_cut_off_downwards() -> None:
    assert milliseconds(timedelta(microseconds=1999)) == 1
    assert milliseconds(timedelta(microseconds=-1)) == -1
