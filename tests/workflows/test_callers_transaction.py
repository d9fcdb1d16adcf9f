"""Start, signal and update within the caller's own transaction: with it they happen, and without it they never did."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable

import pytest
from sqlalchemy import Connection
from sqlalchemy.orm import Session, sessionmaker

from weft_tasks.celery_host.after_commit import AfterCommit
from weft_tasks.errors import WorkflowAlreadyExists, WorkflowNotFound
from weft_tasks.testing.bed import WorkflowBed
from weft_tasks.testing.waiting import wait_until
from weft_tasks.workflows.turn import Turn, TurnEnd


@pytest.fixture
def shop(bed: WorkflowBed) -> WorkflowBed:
    @bed.workflow("order")
    def order(turn: Turn) -> TurnEnd | None:
        for payment in turn.take("paid"):
            return turn.complete(payment.payload)
        turn.wait("paid")
        return None

    @order.update("note")
    def note(turn: Turn, text: str) -> str:
        turn.state["note"] = text
        return text

    return bed


@pytest.fixture
def new_session(shop: WorkflowBed) -> Callable[[], Session]:
    return sessionmaker(shop.weft.store.database.engine)


def test_what_a_session_sent_is_delivered_right_after_its_commit(
    shop: WorkflowBed, new_session: Callable[[], Session]
) -> None:
    with new_session() as session:
        with session.begin():
            shop.weft.start("order", "o1", session=session)
            shop.weft.start("order", "o2", session=session)
        shop.run_due()
        with session.begin():
            shop.weft.signal("o1", "paid", 20, session=session)
            answer = shop.weft.update("o2", "note", "fragile", session=session)
        shop.run_due()
    assert shop.result("o1") == 20
    assert answer.result(timeout=0) == "fragile"


def test_what_a_session_rolled_back_never_happened(shop: WorkflowBed, new_session: Callable[[], Session]) -> None:
    with new_session() as session:
        shop.weft.start("order", "o1", session=session)
        session.rollback()
        shop.weft.start("order", "o2", session=session)
        session.commit()
    shop.run_due()
    assert shop.owner("o2")
    assert [turn.workflow_id for turn in shop.turns] == ["o2"]
    with pytest.raises(WorkflowNotFound):
        shop.describe("o1")


@pytest.mark.parametrize("on_conflict", ["error", "use-existing"])
def test_an_id_that_is_taken_leaves_the_callers_transaction_usable(
    shop: WorkflowBed, new_session: Callable[[], Session], on_conflict: str
) -> None:
    """PostgreSQL aborts a transaction in which a statement fails: the caller's rows would be gone without a word."""
    shop.weft.start("order", "taken")
    with new_session() as session, session.begin():
        with contextlib.suppress(WorkflowAlreadyExists):
            shop.weft.start("order", "taken", session=session, on_conflict=on_conflict)
        shop.weft.start("order", "free", session=session)
    assert shop.weft.describe("free").id == "free"


def test_what_a_connection_sent_is_delivered_soon_after_its_commit(shop: WorkflowBed) -> None:
    with shop.weft.store.database.engine.connect() as connection:
        shop.weft.start("order", "o1", session=connection)
        connection.rollback()
        shop.weft.start("order", "o2", session=connection)
        shop.weft.start("order", "o3", session=connection)
        connection.commit()

    def both_are_told() -> bool:
        shop.run_due()
        return {turn.workflow_id for turn in shop.turns} == {"o2", "o3"}

    wait_until(both_are_told, what="the messages of both")


# -- the acts themselves, without a workflow


def test_a_savepoint_is_no_commit(new_session: Callable[[], Session]) -> None:
    commits, done = AfterCommit(), []
    with new_session() as session, session.begin():
        session.connection()
        with session.begin_nested():
            commits.call(session, lambda: done.append("inner"))
        commits.call(session, lambda: done.append("outer"))
        assert done == []
    assert done == ["inner", "outer"]


def test_a_session_that_is_closed_without_a_commit_forgets(new_session: Callable[[], Session]) -> None:
    commits, done = AfterCommit(), []
    session = new_session()
    session.connection()
    commits.call(session, lambda: done.append("lost"))
    session.close()
    session.connection()
    commits.call(session, lambda: done.append("kept"))
    session.commit()
    assert done == ["kept"]


def test_a_session_in_use_for_long_gathers_nothing(new_session: Callable[[], Session]) -> None:
    commits, done = AfterCommit(), []
    with new_session() as session:
        for number in range(3):
            session.connection()
            commits.call(session, lambda number=number: done.append(number))  # type: ignore[misc]
            session.commit()
        assert done == [0, 1, 2]
        assert len(session.dispatch.after_commit) == 1
        gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None


def test_a_connection_that_is_closed_without_a_commit_forgets(shop: WorkflowBed) -> None:
    commits, done = AfterCommit(), []

    def begin() -> Connection:
        connection = shop.weft.store.database.engine.connect()
        connection.begin()
        return connection

    with begin() as connection:
        commits.call(connection, lambda: done.append("lost"))
    with begin() as connection:
        commits.call(connection, lambda: done.append("kept"))
        connection.commit()
    wait_until(lambda: done, what="the act")
    assert done == ["kept"]
