"""What an operator asks of the whole store, on both stores."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from beds import BEAT, MS, SECOND, G, R, StoreBed, T
from sqlalchemy import update

from weft_tasks.model import NewWorkflow, WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.outbox import Debt, DebtKind
from weft_tasks.store.overview import Backlog, Homeless, StrandedClaims
from weft_tasks.store.tables import workflows

NOTHING = Backlog(in_hand=0, put_off=0, unowned=0, queued=0, late=0)


@pytest.fixture
def bed(store_bed: StoreBed) -> StoreBed:
    store_bed.engine("a")
    return store_bed


def test_an_empty_store_has_nothing_to_tell(store: Store) -> None:
    overview = store.overviews.read()
    assert (overview.engines, overview.counts, overview.backlog) == ((), {}, NOTHING)
    assert (overview.set_aside, overview.stranded, overview.homeless, overview.overdue_debts) == ((), (), (), 0)
    order = ["renewal", "reclaim", "signal-poll", "update-poll", "run-once"]
    assert [mark.kind for mark in overview.passes] == order
    for kind in reversed(order):
        store.pass_marks.count_skip(kind)
    assert list(store.pass_marks.read_all()) == order


def test_what_is_due_is_counted_once_by_what_it_waits_for(bed: StoreBed) -> None:
    bed.store.workflows.start_new(NewWorkflow(id="later", type="permit", input_json="null", delay=SECOND))
    bed.start("nobodys")
    bed.held("running")
    bed.begin("running", "task")
    bed.parked("parked", "a", "paid")
    bed.held("late")
    bed.live_through(R + MS, "a")
    bed.beat("a", in_hand=["task"])
    bed.write(update(workflows).where(workflows.c.id == "later").values(not_before_at=2**50))
    bed.held("queued")
    assert bed.store.overviews.backlog() == Backlog(in_hand=1, put_off=1, unowned=1, queued=1, late=1)
    assert bed.store.overviews.backlog().total == 5


def test_a_parked_workflow_is_no_backlog(bed: StoreBed) -> None:
    bed.parked("w", "a", "paid")
    assert bed.store.overviews.backlog() == NOTHING


def test_claims_of_a_silent_a_stopped_and_a_missing_engine_are_stranded(bed: StoreBed) -> None:
    for engine_id in ("silent", "stopped", "gone"):
        bed.engine(engine_id)
        bed.held(f"w-{engine_id}", by=engine_id)
    bed.held("w-a", by="a")
    bed.live_through(T + G + MS, "a", "stopped", "gone")
    bed.engines.stop("stopped")
    bed.remove_engine("gone")
    assert bed.store.overviews.stranded_claims() == (
        StrandedClaims(engine_id="gone", node=None, count=1),
        StrandedClaims(engine_id="silent", node="silent@host", count=1),
        StrandedClaims(engine_id="stopped", node="stopped@host", count=1),
    )


def test_types_that_no_live_engine_knows_are_named_with_their_versions(bed: StoreBed) -> None:
    bed.start("known")
    bed.start("unknown-1", "visa")
    bed.store.workflows.start_new(NewWorkflow(id="newer", type="permit", version=2, input_json="null"))
    bed.engine("dead", "visa")
    bed.acquired(bed.start("unknown-2", "visa"), "dead")
    bed.engines.stop("dead")
    assert bed.store.overviews.homeless() == (
        Homeless(type="permit", version=2, count=1),
        Homeless(type="visa", version=1, count=2),
    )


def test_workflows_that_were_set_aside_are_named_with_their_reasons(bed: StoreBed) -> None:
    bed.held("w")
    bed.held("other")
    error = json.dumps({"type": "SetAside", "message": "5 turns began"})
    aside = update(workflows).where(workflows.c.id == "w")
    bed.write(aside.values(status=WorkflowStatus.SET_ASIDE, error=error))
    (found,) = bed.store.overviews.set_aside()
    assert (found.id, found.type, found.reason) == ("w", "permit", "5 turns began")


def test_debts_older_than_two_intervals_are_overdue(bed: StoreBed) -> None:
    debt = Debt(id="d", kind=DebtKind.CALL, workflow_id="w", run_id="r", body={})
    with bed.store.database.transaction() as connection:
        bed.store.outbox.owe(connection, [debt])
    bed.advance(2 * R)
    assert bed.store.overviews.overdue_debts() == 0
    bed.advance(MS)
    assert bed.store.overviews.overdue_debts() == 1


def test_a_call_that_was_sent_and_awaits_its_reply_is_not_overdue(bed: StoreBed) -> None:
    debt = Debt(id="d", kind=DebtKind.CALL, workflow_id="w", run_id="r", body={"reply": "charged"})
    with bed.store.database.transaction() as connection:
        bed.store.outbox.owe(connection, [debt])
    bed.store.outbox.pay(debt)
    bed.advance(100 * R)
    assert bed.store.overviews.overdue_debts() == 0


def test_the_age_of_a_heartbeat_grows_although_no_engine_beats(bed: StoreBed) -> None:
    bed.advance(100 * R)
    (engine,) = bed.store.engines.list()
    assert engine.heartbeat_age_ms == 100 * R / MS
    assert engine.silence_ms <= (R + BEAT) / MS


def test_the_skew_is_between_the_databases_clock_and_ours(bed: StoreBed) -> None:
    ahead = timedelta(hours=1)
    bed.advance(datetime.now(UTC) + ahead - _now(bed))
    assert abs(bed.store.overviews.clock_skew() - ahead) < timedelta(seconds=5)


def test_the_database_of_this_machine_has_the_time_of_this_machine(store: Store) -> None:
    real = Store.open(Settings(database_url=store.database.engine.url.render_as_string(hide_password=False)))
    assert abs(real.overviews.clock_skew()) < timedelta(seconds=5)
    real.database.dispose()


def _now(bed: StoreBed) -> datetime:
    return bed.store.inspections.inspect(bed.start("clock").workflow_id).now
