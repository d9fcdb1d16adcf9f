"""Attempts at a turn: what a message must name for one to be opened (O10), what opening writes (O9), and the fence that
every write of the attempt stands behind (O1). All of it about a row of `weft_workflows`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, Text, func, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from weft_tasks.store.clock import StoreClock
from weft_tasks.store.given import as_given, given
from weft_tasks.store.liveness import Liveness
from weft_tasks.store.tables import engines, is_running, workflows

TURN_IS_OVER: Mapping[str, Any] = MappingProxyType(
    {"begun": 0, "tries": 0, "turn_inbox": None, "turn_began_at": None, "not_before_at": None}
)
"""What a row has between two turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTurn:
    """What a message names and what an open attempt adds to it, as values that come with the execution."""

    workflow_id: Any
    run_id: Any
    engine_id: Any
    epoch: Any
    turn: Any
    attempt: Any


GIVEN_TURN = GivenTurn(
    workflow_id=given("workflow_id", workflows.c.id.type),
    run_id=given("run_id", workflows.c.run_id.type),
    engine_id=given("engine_id", workflows.c.engine_id.type),
    epoch=given("epoch", workflows.c.epoch.type),
    turn=given("turn", workflows.c.turn.type),
    attempt=given("attempt", workflows.c.attempt.type),
)


def is_named_by(message: Any) -> tuple[ColumnElement[bool], ...]:
    """O10: the row is at the turn that the message (or `GIVEN_TURN`) names, and held as it says."""
    return (
        workflows.c.id == message.workflow_id,
        workflows.c.run_id == message.run_id,
        workflows.c.engine_id == message.engine_id,
        workflows.c.epoch == message.epoch,
        workflows.c.turn == message.turn,
    )


def fence(begun: Any) -> tuple[ColumnElement[bool], ...]:
    """O1: workflow, run, engine, epoch, turn and attempt, in the WHERE of every write of an owner. `begun` is a
    `BegunTurn`, or `GIVEN_TURN`."""
    return *is_named_by(begun), workflows.c.attempt == begun.attempt, workflows.c.attempt_open, is_running


def opened(clock: StoreClock, task: ColumnElement[str], beat: ColumnElement[int]) -> dict[str, Any]:
    """O9: the values of a row whose next attempt begins. `task` is the JSON of its Celery task id, `beat` its engine's
    heartbeat by now. The horizon and the time are those of the turn's first begin."""
    return {
        "attempt": workflows.c.attempt + 1,
        "attempt_open": True,
        "attempt_task": task,
        "attempt_beat": beat,
        "begun": workflows.c.begun + 1,
        "turn_inbox": func.coalesce(workflows.c.turn_inbox, workflows.c.inbox),
        "turn_began_at": func.coalesce(workflows.c.turn_began_at, clock.now()),
        "dispatches": 0,
        "unanswered": 0,
    }


def opening(clock: StoreClock, liveness: Liveness, *, begun_turn_limit: int) -> ReturningUpdate[Any]:
    """O9: the statement that opens the next attempt at the turn that `GIVEN_TURN` names.

    Its `task`, the JSON of a Celery task id, is given too. Returns the row, and whether its engine is marked as deaf.
    """
    engine = engines.c.id == GIVEN_TURN.engine_id
    beat = select(engines.c.beat).where(engine).scalar_subquery()
    is_deaf = select(engines.c.deaf).where(engine).scalar_subquery()
    return (
        update(workflows)
        .where(
            *is_named_by(GIVEN_TURN),
            is_running,
            liveness.may_run_now(),
            liveness.no_attempt_runs(),
            liveness.is_live(GIVEN_TURN.engine_id),
            workflows.c.begun < begun_turn_limit,
        )
        .values(opened(clock, given("task", Text()), beat))
        .returning(workflows, is_deaf.label("engine_is_deaf"))
    )


def message_given(message: Any) -> dict[str, Any]:
    """The values of `GIVEN_TURN` that a message has."""
    return as_given(
        workflow_id=message.workflow_id,
        run_id=message.run_id,
        engine_id=message.engine_id,
        epoch=message.epoch,
        turn=message.turn,
    )


def attempt_given(begun: Any) -> dict[str, Any]:
    """The values of `GIVEN_TURN` that an open attempt has."""
    return message_given(begun) | as_given(attempt=begun.attempt)
