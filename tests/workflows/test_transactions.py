"""What a caller's transaction decides: all of it or nothing, whatever happens around the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from flows import MINUTE, collect, everything
from sqlalchemy import Column, Integer, MetaData, Table, insert, select
from sqlalchemy.orm import Session

from weft_tasks.errors import (
    InvalidInput,
    SignalKeyConflict,
    UnknownWorkflowType,
    UpdateKeyConflict,
    WorkflowAlreadyExists,
    WorkflowEnded,
    WorkflowNotFound,
)
from weft_tasks.model import WorkflowStatus
from weft_tasks.testing import WorkflowBed
from weft_tasks.workflows.turn import Turn

orders = Table("shop_orders", MetaData(), Column("id", Integer, primary_key=True))


@pytest.fixture
def shop(bed: WorkflowBed) -> Iterator[WorkflowBed]:
    """A bed whose database also has a table of the user's."""
    collector = bed.workflow("collect")(collect)

    @collector.update("add")
    def add(turn: Turn, payload: Any) -> int:
        turn.state.setdefault("added", []).append(payload)
        return len(turn.state["added"])

    engine = bed.weft.store.database.engine
    orders.create(engine)
    yield bed
    orders.drop(engine)


@contextmanager
def in_session(bed: WorkflowBed) -> Iterator[Session]:
    with Session(bed.weft.store.database.engine) as session:
        yield session


@contextmanager
def in_connection(bed: WorkflowBed) -> Iterator[Any]:
    with bed.weft.store.database.engine.connect() as connection:
        yield connection


callers = pytest.mark.parametrize("caller", [in_session, in_connection], ids=["session", "connection"])


def number_of_orders(bed: WorkflowBed) -> int:
    with bed.weft.store.database.engine.connect() as connection:
        return len(connection.execute(select(orders)).all())


def do_everything(bed: WorkflowBed, caller: Any) -> Any:
    """An order, a workflow for it, and a signal and an update to another one."""
    caller.execute(insert(orders).values(id=1))
    bed.weft.start("collect", "new", session=caller)
    bed.weft.signal("old", "event", 1, session=caller)
    return bed.weft.update("old", "add", 2, session=caller)


@callers
def test_a_commit_brings_the_callers_rows_and_everything_that_was_sent(
    shop: WorkflowBed, caller: Callable[[WorkflowBed], Any]
) -> None:
    shop.start("collect", "old")
    shop.run_due()
    with caller(shop) as own:
        answer = do_everything(shop, own)
        own.commit()
    shop.advance(MINUTE)
    assert number_of_orders(shop) == 1
    assert shop.describe("new").turn == 1
    assert shop.state("old") == {"events": [1], "added": [2]}
    assert answer.result(timeout=0) == 1


@callers
def test_after_a_rollback_nothing_at_all_has_happened(shop: WorkflowBed, caller: Callable[[WorkflowBed], Any]) -> None:
    shop.start("collect", "old")
    shop.run_due()
    before = everything(shop)
    with caller(shop) as own:
        answer = do_everything(shop, own)
        own.rollback()
    assert everything(shop) == before
    shop.advance(MINUTE)
    assert number_of_orders(shop) == 0
    assert [turn.workflow_id for turn in shop.turns] == ["old"]
    with pytest.raises(WorkflowNotFound):
        answer.result(timeout=0)


@callers
def test_until_the_commit_nobody_is_told(shop: WorkflowBed, caller: Callable[[WorkflowBed], Any]) -> None:
    with caller(shop) as own:
        shop.weft.start("collect", "new", session=own)
        assert shop.lose_messages() == 0
        own.rollback()


@callers
def test_a_process_that_dies_right_after_its_commit_has_sent_everything_all_the_same(
    shop: WorkflowBed, caller: Callable[[WorkflowBed], Any]
) -> None:
    """The rows are the truth: nobody was told, and the passes find them."""
    shop.start("collect", "old")
    shop.run_due()
    with caller(shop) as own:
        answer = do_everything(shop, own)
        own.commit()
    shop.lose_messages()
    shop.advance(MINUTE)
    assert shop.describe("new").turn == 1
    assert shop.state("old") == {"events": [1], "added": [2]}
    assert answer.result(timeout=0) == 1


def test_what_was_sent_within_a_savepoint_that_is_rolled_back_did_not_happen(shop: WorkflowBed) -> None:
    with in_session(shop) as session, session.begin():
        session.execute(insert(orders).values(id=1))
        shop.weft.start("collect", "kept", session=session)
        savepoint = session.begin_nested()
        session.execute(insert(orders).values(id=2))
        shop.weft.start("collect", "dropped", session=session)
        savepoint.rollback()
        shop.weft.signal("kept", "event", "closed", session=session)
    shop.run_due()
    assert number_of_orders(shop) == 1
    assert shop.result("kept") == ["closed"]
    with pytest.raises(WorkflowNotFound):
        shop.describe("dropped")


@callers
def test_a_workflow_can_be_started_signalled_and_asked_in_one_transaction(
    shop: WorkflowBed, caller: Callable[[WorkflowBed], Any]
) -> None:
    with caller(shop) as own:
        shop.weft.start("collect", "new", session=own)
        shop.weft.signal("new", "event", 1, session=own)
        answer = shop.weft.update("new", "add", 2, session=own)
        shop.weft.signal("new", "event", 3, session=own)
        own.commit()
    shop.advance(MINUTE)
    assert shop.state("new") == {"events": [1, 3], "added": [2]}
    assert answer.result(timeout=0) == 1


@callers
def test_a_workflow_that_the_same_transaction_has_started_is_one_that_exists(
    shop: WorkflowBed, caller: Callable[[WorkflowBed], Any]
) -> None:
    with caller(shop) as own:
        first = shop.weft.start("collect", "new", session=own)
        second = shop.weft.start("collect", "new", session=own, on_conflict="use-existing")
        assert second.run_id == first.run_id
        with pytest.raises(WorkflowAlreadyExists, match="status running"):
            shop.weft.start("collect", "new", session=own)
        own.commit()
    assert shop.describe("new").run_id == first.run_id


@callers
def test_a_key_that_the_same_transaction_has_used_is_used(
    shop: WorkflowBed, caller: Callable[[WorkflowBed], Any]
) -> None:
    with caller(shop) as own:
        shop.weft.start("collect", "new", session=own)
        receipts = [shop.weft.signal("new", "event", 1, key="k", session=own) for _ in range(2)]
        updates = [shop.weft.update("new", "add", 1, key="k", session=own).receipt for _ in range(2)]
        own.commit()
    assert [receipt.is_duplicate for receipt in receipts] == [False, True]
    assert updates[0] == updates[1]
    assert (shop.describe("new").pending_signals, shop.describe("new").pending_updates) == (1, 1)


@callers
def test_a_restart_that_is_rolled_back_leaves_the_ended_run_with_its_result(
    shop: WorkflowBed, caller: Callable[[WorkflowBed], Any]
) -> None:
    shop.start("collect", "w")
    shop.signal("w", "event", "closed")
    shop.run_due()
    before = everything(shop)
    with caller(shop) as own:
        shop.weft.start("collect", "w", session=own, on_conflict="restart-if-ended")
        own.rollback()
    assert everything(shop) == before
    assert shop.result("w") == ["closed"]


@callers
@pytest.mark.parametrize(
    ("error", "bad"),
    [
        (WorkflowAlreadyExists, lambda weft, own: weft.start("collect", "old", session=own)),
        (
            WorkflowAlreadyExists,
            lambda weft, own: weft.start("collect", "old", session=own, on_conflict="restart-if-ended"),
        ),
        (UnknownWorkflowType, lambda weft, own: weft.start("nonsense", session=own)),
        (InvalidInput, lambda weft, own: weft.start("collect", "", session=own)),
        (InvalidInput, lambda weft, own: weft.start("collect", input=object(), session=own)),
        (WorkflowNotFound, lambda weft, own: weft.signal("nobody", "event", session=own)),
        (WorkflowNotFound, lambda weft, own: weft.update("nobody", "add", session=own)),
        (WorkflowEnded, lambda weft, own: weft.signal("over", "event", session=own)),
        (WorkflowEnded, lambda weft, own: weft.update("over", "add", session=own)),
        (SignalKeyConflict, lambda weft, own: weft.signal("old", "event", 2, key="used", session=own)),
        (UpdateKeyConflict, lambda weft, own: weft.update("old", "add", 2, key="used", session=own)),
    ],
)
def test_what_is_refused_leaves_the_callers_transaction_as_it_was(
    shop: WorkflowBed, caller: Callable[[WorkflowBed], Any], error: type[Exception], bad: Callable[[Any, Any], Any]
) -> None:
    for id in ("old", "over"):
        shop.start("collect", id)
    shop.weft.terminate("over")
    shop.signal("old", "event", 1, key="used")
    shop.weft.update("old", "add", 1, key="used")
    shop.run_due()
    with caller(shop) as own:
        own.execute(insert(orders).values(id=1))
        with pytest.raises(error):
            bad(shop.weft, own)
        own.execute(insert(orders).values(id=2))
        own.commit()
    assert number_of_orders(shop) == 2
    assert shop.status("old") is WorkflowStatus.RUNNING


def test_a_start_that_is_put_off_belongs_to_the_transaction_as_well(shop: WorkflowBed) -> None:
    with in_session(shop) as session:
        shop.weft.start("collect", "kept", session=session, delay=timedelta(hours=1))
        session.commit()
        shop.weft.start("collect", "dropped", session=session, delay=timedelta(hours=1))
        session.rollback()
    shop.advance(hours=2)
    assert shop.describe("kept").turn == 1
    with pytest.raises(WorkflowNotFound):
        shop.describe("dropped")
