"""What must hold of the store's rows after every step: they are as the reference has them, and beyond that the promises
themselves, read off the rows alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reference import Reference, Row
from sqlalchemy import select

from weft_tasks.model import WorkflowStatus
from weft_tasks.store import Store
from weft_tasks.store.clock import milliseconds, milliseconds_of
from weft_tasks.store.tables import claims, clock, engines, signals, turns, workflows


class Invariants:
    """Remembers from step to step what must never be taken back."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._highest_epoch: dict[str, int] = {}
        self._ended: dict[str, str] = {}

    def check(self, store: Store) -> None:
        with store.database.reading() as connection:
            rows = {row.id: row for row in connection.execute(select(workflows))}
            held = {row.workflow_id: row for row in connection.execute(select(claims))}
            alive = {row.id: row for row in connection.execute(select(engines))}
            sent = connection.execute(select(signals).order_by(signals.c.run_id, signals.c.number)).all()
            committed = connection.execute(select(turns).order_by(turns.c.run_id, turns.c.turn)).all()
            witnessed = connection.execute(select(clock.c.witnessed)).scalar_one()
        self._are_as_expected(rows, held, alive)
        assert witnessed == milliseconds(self._reference._witnessed)
        self._epochs_never_go_down(rows)
        _one_holder_and_both_tables_name_it(rows, held)
        self._what_has_ended_stays_ended(rows)
        for workflow_id, row in rows.items():
            expected = self._reference.workflows[workflow_id]
            _turns_commit_once(row, [t for t in committed if t.run_id == row.run_id], expected)
            _signals_are_consumed_once_and_in_order([s for s in sent if s.run_id == row.run_id], expected)

    def _are_as_expected(self, rows: Mapping[str, Any], held: Mapping[str, Any], alive: Mapping[str, Any]) -> None:
        reference = self._reference
        assert {w: _workflow(row) for w, row in rows.items()} == {
            w: _expected_workflow(row) for w, row in reference.workflows.items()
        }
        assert {w: (c.engine_id, c.epoch, c.claimed_at, c.expires_at) for w, c in held.items()} == {
            w: (c.engine_id, c.epoch, milliseconds_of(c.claimed_at), milliseconds_of(c.expires_at))
            for w, c in reference.claims.items()
        }
        assert {
            e: (r.node, r.status, r.beat, r.heartbeat_at, r.heartbeat_witnessed, r.free_slots, r.deaf)
            for e, r in alive.items()
        } == {
            e: (
                *(r.node, r.status, r.beat, milliseconds_of(r.heartbeat_at), milliseconds(r.heartbeat_witnessed)),
                *(r.free_slots, r.is_deaf),
            )
            for e, r in reference.engines.items()
        }

    def _epochs_never_go_down(self, rows: Mapping[str, Any]) -> None:
        """Not even when an id is purged and used again (O7)."""
        for workflow_id, row in rows.items():
            assert row.epoch >= self._highest_epoch.get(workflow_id, 0)
            self._highest_epoch[workflow_id] = row.epoch

    def _what_has_ended_stays_ended(self, rows: Mapping[str, Any]) -> None:
        for row in rows.values():
            assert row.status == self._ended.get(row.run_id, row.status)
            if WorkflowStatus(row.status).is_ended:
                self._ended[row.run_id] = row.status


def _one_holder_and_both_tables_name_it(rows: Mapping[str, Any], held: Mapping[str, Any]) -> None:
    in_the_fence = {w: (row.engine_id, row.epoch) for w, row in rows.items() if row.engine_id is not None}
    assert in_the_fence == {w: (claim.engine_id, claim.epoch) for w, claim in held.items()}
    for row in rows.values():
        assert row.status == "running" or (row.engine_id is None and not row.attempt_open)
        assert row.engine_id is not None or not row.attempt_open
        assert row.due or not row.attempt_open, "an attempt that dies would leave it idle (O9)"


def _turns_commit_once(row: Any, committed: Sequence[Any], expected: Row) -> None:
    """Each number once, none left out, and by the attempts that the reference saw win (O1)."""
    assert [turn.turn for turn in committed] == list(range(row.turn))
    assert [(turn.turn, turn.attempt) for turn in committed] == expected.committed
    assert all(turn.epoch <= row.epoch for turn in committed)
    assert [turn.epoch for turn in committed] == sorted(turn.epoch for turn in committed)


def _signals_are_consumed_once_and_in_order(sent: Sequence[Any], expected: Row) -> None:
    assert [(s.number, s.name, s.consumed_turn) for s in sent] == [
        (s.number, s.name, s.consumed_turn) for s in expected.buffer
    ]
    for name in {signal.name for signal in sent}:
        fates = [s.consumed_turn for s in sent if s.name == name and s.consumed_turn != -1]
        consumed = [turn for turn in fates if turn is not None]
        assert fates[: len(consumed)] == consumed == sorted(consumed), "a later signal was consumed before an earlier"


def _workflow(row: Any) -> tuple[Any, ...]:
    dispatch = (row.dispatched_witnessed, row.dispatches, row.unanswered) if row.status == "running" else None
    return (
        *(row.run_id, row.type, row.status, row.engine_id, row.epoch, row.turn, row.attempt, row.due),
        *(row.attempt_open, row.begun, row.tries, row.inbox, row.turn_inbox, row.not_before_at, dispatch),
    )


def _expected_workflow(row: Row) -> tuple[Any, ...]:
    sent = None if row.dispatched_witnessed is None else milliseconds(row.dispatched_witnessed)
    dispatch = (sent, row.dispatches, row.unanswered) if row.status == "running" else None
    not_before = None if row.not_before is None else milliseconds_of(row.not_before)
    return (
        *(row.run_id, row.type, row.status, row.engine_id, row.epoch, row.turn, row.attempt, row.is_due),
        *(row.attempt_open, row.begun, row.tries, row.inbox, row.horizon, not_before, dispatch),
    )
