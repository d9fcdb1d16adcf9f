"""The rules once more, in memory: FakeClaims for ownership, and here what a turn, a signal and an ending from outside
do to a row. The property tests hold the SQL store to it, answer by answer and row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from weft_tasks.model import TurnMessage, WorkflowStatus
from weft_tasks.store.turns import Discard
from weft_tasks.testing.fakes import FakeClaims, FakeWorkflow

RUNNING = WorkflowStatus.RUNNING


@dataclass(slots=True, kw_only=True)
class Signal:
    number: int
    name: str
    consumed_turn: int | None = None


@dataclass(slots=True, kw_only=True)
class Row(FakeWorkflow):
    """A workflow's row with what turns and signals need."""

    inbox: int = 0
    horizon: int | None = None
    not_before: datetime | None = None
    tries: int = 0
    buffer: list[Signal] = field(default_factory=list)
    committed: list[tuple[int, int]] = field(default_factory=list)
    """Turn and attempt of each commit, in order."""

    @property
    def pending(self) -> list[Signal]:
        return [signal for signal in self.buffer if signal.consumed_turn is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An open attempt as its process remembers it, however long ago."""

    message: TurnMessage
    attempt: int
    horizon: int
    seen: tuple[int, ...]


class Reference(FakeClaims):
    """FakeClaims with turns, signals and endings. `workflows` holds Rows."""

    def __init__(self) -> None:
        super().__init__()
        self.workflows: dict[str, Row] = {}  # type: ignore[assignment]
        self.floor = 0

    def started(self, message: TurnMessage, type_name: str) -> None:
        """The row of a start, under the run id that the store drew."""
        self.workflows[message.workflow_id] = Row(
            id=message.workflow_id,
            type=type_name,
            run_id=message.run_id,
            epoch=self.floor,
            dispatched_witnessed=self.witnessed_now(),
        )

    # -- begin

    def begin(self, message: TurnMessage, task_id: str) -> Attempt | Discard:
        row = self.workflows.get(message.workflow_id)
        mismatch = self._mismatch(row, message)
        if mismatch is not None or row is None:
            return mismatch or Discard.NO_WORKFLOW
        if row.begun >= self.settings.begun_turn_limit:
            self._fence_off(row, WorkflowStatus.SET_ASIDE)
            row.is_due = False
            return Discard.SET_ASIDE
        self.open_attempt(row.id, task_id)
        row.horizon = row.inbox if row.horizon is None else row.horizon
        seen = tuple(s.number for s in row.pending if s.number <= row.horizon)
        return Attempt(message=message, attempt=row.attempt, horizon=row.horizon, seen=seen)

    def _mismatch(self, row: Row | None, message: TurnMessage) -> Discard | None:
        """The first thing in which the row differs from the message (O10)."""
        if row is None:
            return Discard.NO_WORKFLOW
        checks = (
            (row.run_id == message.run_id, Discard.OTHER_RUN),
            (row.status is RUNNING, Discard.NOT_RUNNING),
            ((row.engine_id, row.epoch) == (message.engine_id, message.epoch), Discard.OTHER_OWNER),
            (row.turn == message.turn, Discard.OTHER_TURN),
            (row.is_due, Discard.NOT_DUE),
            (row.not_before is None or row.not_before <= self.now, Discard.TOO_EARLY),
            (not self.attempt_runs(row), Discard.IN_HAND),
            (self._is_live(row.engine_id), Discard.ENGINE_NOT_LIVE),
        )
        return next((reason for holds, reason in checks if not holds), None)

    # -- the endings of an attempt: each says whether the fence held (O1)

    def commit(self, attempt: Attempt, status: WorkflowStatus, consumed: Sequence[int], waits: Sequence[str]) -> bool:
        row = self._fenced(attempt)
        if row is None:
            return False
        row.committed.append((row.turn, row.attempt))
        for signal in row.buffer:
            if signal.number in consumed:
                signal.consumed_turn = row.turn
            elif status is not RUNNING and signal.consumed_turn is None:
                signal.consumed_turn = -1
        row.signals = [signal.name for signal in row.pending]
        row.turn, row.tries, row.status = row.turn + 1, 0, status
        row.waits = dict.fromkeys(waits)
        row.is_due = status is RUNNING and row.inbox > attempt.horizon
        self._turn_is_over(row)
        if status is not RUNNING:
            self._let_go(row)
        return True

    def settle(self, attempt: Attempt) -> bool:
        row = self._fenced(attempt)
        if row is None:
            return False
        row.tries, row.is_due = 0, row.inbox > attempt.horizon
        self._turn_is_over(row)
        return True

    def retry_later(self, attempt: Attempt, delay: timedelta) -> bool:
        row = self._fenced(attempt)
        if row is None:
            return False
        row.tries, row.begun, row.not_before = row.tries + 1, 0, self.now + delay
        self.close_attempt(row)
        row.dispatched_witnessed = None
        return True

    def _fenced(self, attempt: Attempt) -> Row | None:
        row, named = self.workflows.get(attempt.message.workflow_id), attempt.message
        if row is None or row.status is not RUNNING or not row.attempt_open:
            return None
        current = (row.run_id, row.engine_id, row.epoch, row.turn, row.attempt)
        return row if current == (named.run_id, named.engine_id, named.epoch, named.turn, attempt.attempt) else None

    def _turn_is_over(self, row: Row) -> None:
        row.begun, row.horizon, row.not_before = 0, None, None
        self.close_attempt(row)

    # -- signals

    def send(self, workflow_id: str, name: str) -> bool:
        """Whether somebody is to be told."""
        row = self.workflows[workflow_id]
        row.inbox += 1
        row.buffer.append(Signal(number=row.inbox, name=name))
        row.signals.append(name)
        if name not in row.waits or row.is_due or row.attempt_open:
            return False
        row.is_due = True
        if row.engine_id is None or row.status is not RUNNING:
            return False
        row.dispatched_witnessed = self.witnessed_now()
        return True

    def woken(self, workflow_id: str) -> None:
        """What a wake does that was won, beyond what FakeClaims says of it."""
        self.workflows[workflow_id].inbox += 1

    # -- endings from outside (O7)

    def terminate(self, workflow_id: str) -> None:
        row = self.workflows[workflow_id]
        self._fence_off(row, WorkflowStatus.TERMINATED)
        row.is_due = False
        for signal in row.pending:
            signal.consumed_turn = -1

    def suspend(self, workflow_id: str) -> None:
        self._fence_off(self.workflows[workflow_id], WorkflowStatus.SUSPENDED)

    def resume(self, workflow_id: str) -> None:
        row = self.workflows[workflow_id]
        self._fence_off(row, RUNNING)
        row.is_due = True

    def retry(self, workflow_id: str) -> None:
        row = self.workflows[workflow_id]
        self._fence_off(row, RUNNING)
        row.is_due, row.begun, row.tries, row.not_before = True, 0, 1, None

    def purge(self) -> int:
        ended = [row for row in self.workflows.values() if row.status.is_ended]
        for row in ended:
            self.floor = max(self.floor, row.epoch)
            del self.workflows[row.id]
        return len(ended)

    def _fence_off(self, row: Row, status: WorkflowStatus) -> None:
        row.status, row.epoch = status, row.epoch + 1
        row.begun -= row.attempt_open and status is not WorkflowStatus.SET_ASIDE
        row.attempt_open = False
        self._let_go(row)
