"""A row that none of ours wrote, among good ones: its own workflow fails with the reason, and no pass stops at it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from celery import signature
from sqlalchemy import text

from weft_tasks.errors import DamagedRow
from weft_tasks.events import OutcomeUnknown, PassCompleted
from weft_tasks.results import PassFailed
from weft_tasks.testing.bed import WorkflowBed
from weft_tasks.workflows.turn import Turn

DAMAGES = [
    ("weft_workflows", "state", "{not json"),
    ("weft_workflows", "waits", "[[["),
    ("weft_workflows", "waits", '[["x"]]'),
    ("weft_workflows", "waits", "7"),
    ("weft_workflows", "input", ""),
    ("weft_signals", "payload", "{bad"),
    ("weft_updates", "payload", "{bad"),
]


@pytest.fixture
def two(bed: WorkflowBed) -> WorkflowBed:
    """Two workflows of one kind, parked, each with a signal on its way; damage will come to the first."""
    bed.workflow("keeper")(_keeper).update("echo")(lambda _turn, payload: payload)
    for id in ("bad", "good"):
        bed.start("keeper", id)
    bed.run_due()
    for id in ("bad", "good"):
        bed.weft.store.signals.send(id, "event", "1", key=None)
        bed.weft.update(id, "echo", 2)
    return bed


def _keeper(turn: Turn) -> None:
    turn.state.setdefault("got", []).extend(signal.payload for signal in turn.take("event"))
    turn.wait("event", timeout=30)


def damage(bed: WorkflowBed, table: str, column: str, value: str) -> None:
    key = "id" if table == "weft_workflows" else "workflow_id"
    with bed.weft.store.database.transaction() as connection:
        changed = connection.execute(
            text(f"UPDATE {table} SET {column} = :value WHERE {key} LIKE 'bad%'"), {"value": value}
        )
        assert changed.rowcount == 1


def assert_no_pass_failed(bed: WorkflowBed) -> None:
    passes: list[Any] = [event.result for event in bed.events if isinstance(event, PassCompleted)]
    assert passes
    assert not [result for result in passes if isinstance(result, PassFailed)]


@pytest.mark.parametrize(("table", "column", "value"), DAMAGES)
def test_a_damaged_row_fails_its_own_workflow_with_the_reason(
    two: WorkflowBed, table: str, column: str, value: str
) -> None:
    damage(two, table, column, value)
    two.run_due()
    two.advance(minutes=1)
    assert two.describe("good").state == {"got": [1]}
    assert two.describe("good").pending_updates == 0
    (status, error) = _status_and_error(two, "bad")
    assert status == "failed"
    assert column in error or "JSONDecodeError" in error
    assert_no_pass_failed(two)


def test_a_poll_wakes_a_parked_workflow_whose_waits_are_damaged_and_all_others(bed: WorkflowBed) -> None:
    bed.workflow("keeper")(_keeper)
    for id in ("bad", "good"):
        bed.start("keeper", id)
    bed.run_due()
    damage(bed, "weft_workflows", "waits", "[[[")
    waits = bed.weft.store.signals.list_waiting()
    assert {wait.workflow_id for wait in waits} == {"bad", "good"}
    bed.advance(seconds=31)
    assert [wait.workflow_id for wait in bed.weft.store.signals.list_ready() if wait.workflow_id == "good"] == []
    assert bed.describe("good").turn == 2
    assert_no_pass_failed(bed)


def test_a_description_of_a_damaged_row_says_where(two: WorkflowBed) -> None:
    damage(two, "weft_workflows", "input", "{")
    with pytest.raises(DamagedRow, match="workflow 'bad'"):
        two.describe("bad")


def test_a_damaged_debt_is_reported_and_those_behind_it_are_paid(bed: WorkflowBed) -> None:
    @bed.workflow("calls")
    def calls(turn: Turn) -> None:
        if turn.number == 0:
            turn.call(signature("x.y"), reply="came")
        turn.wait("came")

    for id in ("bad-call", "good-call"):
        bed.start("calls", id)
    bed.run_due()
    with bed.weft.store.database.transaction() as connection:
        connection.execute(text("UPDATE weft_outbox SET sent_witnessed = NULL, next_look_witnessed = 0"))
    damage(bed, "weft_outbox", "body", "{bad")
    before = len(bed.calls)
    bed.advance(timedelta(seconds=30))
    assert [call.workflow_id for call in bed.calls[before:]][:1] == ["good-call"]
    told = [event for event in bed.events if isinstance(event, OutcomeUnknown)]
    assert {event.workflow_id for event in told} == {"bad-call"}
    assert "weft_outbox.body is damaged" in told[0].error
    assert_no_pass_failed(bed)


def _status_and_error(bed: WorkflowBed, id: str) -> tuple[str, str]:
    with bed.weft.store.database.reading() as connection:
        row = connection.execute(text("SELECT status, error FROM weft_workflows WHERE id = :id"), {"id": id}).one()
    return row.status, row.error or ""
