"""The three faults, each on one engine while the client is sending: killed, stopped cleanly, frozen.

Each function returns once the engine's workflows have moved, with what was measured. All times are of the database's
clock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from examples.eventlog.ledger import Ledger, Move, MoveKind
from weft_tasks.testing.celery_commands import WorkerProcess
from weft_tasks.testing.errors import WaitTimedOut
from weft_tasks.testing.waiting import wait_until

PATIENCE = timedelta(seconds=60)
"""For what takes seconds, on a machine that may be busy with other things."""
EXIT_PATIENCE = timedelta(seconds=5)
FREEZE_TRIES = 50
BEAT_PATIENCE = timedelta(seconds=1.2)
"""Two heartbeats: if none is written for so long, all engines wait for a lock that a frozen process holds."""
THAW_FOR_S = 0.2

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a fault did to the workflows of one engine."""

    engine_id: str
    held: int
    moved_ms: tuple[int, ...]
    """From the fault to the new owner, for each workflow that moved."""
    moved_to: Mapping[str, int]
    """How many of them each node got."""
    loads: Mapping[str, int]
    """The claims of each other live node afterwards: the least loaded got the most."""
    refused: int = 0
    """The engine's commits that were refused afterwards."""

    def __str__(self) -> str:
        shares = ", ".join(f"{count} to {node}" for node, count in sorted(self.moved_to.items()))
        return f"{len(self.moved_ms)} moved within {max(self.moved_ms, default=0) / 1000:.2f} s ({shares or 'none'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The three of a run."""

    killed: Outcome
    drained: Outcome
    frozen: Outcome


def kill(engine: WorkerProcess, ledger: Ledger, say: Say) -> Outcome:
    """SIGKILL the worker with its pool. Its claims stay its own until T + G of silence have passed."""
    engine_id, children = _engine_with_claims(engine, ledger), len(engine.child_pids())
    since = ledger.now_ms()
    engine.kill()
    held = ledger.claims_of(engine_id)
    say(f"{engine.node}: SIGKILL, to its {children} pool processes too; it holds {len(held)} workflows")
    _wait_until_claims_are_gone(engine, engine_id, ledger)
    outcome = _outcome(engine_id, held, ledger.moves(MoveKind.TAKEN_OVER, since_ms=since), since, ledger)
    say(f"{engine.node}: {outcome}")
    return outcome


def drain(engine: WorkerProcess, ledger: Ledger, say: Say) -> Outcome:
    """SIGTERM: the worker hands over what is idle at once, and each busy workflow with its turn's commit."""
    engine_id = _engine_with_claims(engine, ledger)
    held = ledger.claims_of(engine_id)
    since = ledger.now_ms()
    engine.terminate()
    say(f"{engine.node}: SIGTERM; it holds {len(held)} workflows")
    _wait_until_claims_are_gone(engine, engine_id, ledger)
    wait_until(lambda: not held & ledger.unowned(), what=f"new owners for what {engine.node} held", timeout=PATIENCE)
    outcome = _outcome(engine_id, held, ledger.moves(MoveKind.PLACED, since_ms=since), since, ledger)
    say(f"{engine.node}: {outcome}")
    _wait_for_its_end(engine, say)
    return outcome


def freeze(engine: WorkerProcess, ledger: Ledger, say: Say) -> Outcome:
    """SIGSTOP the worker with its pool while it has a turn in hand; SIGCONT once its workflows have moved. What it then
    wants to commit is refused."""
    engine_id = _engine_with_claims(engine, ledger)
    since = _freeze_with_a_turn_in_hand(engine, engine_id, ledger)
    held = ledger.claims_of(engine_id)
    say(f"{engine.node}: SIGSTOP, to its pool too; it holds {len(held)} workflows and has a turn in hand")
    _wait_until_claims_are_gone(engine, engine_id, ledger)
    outcome = _outcome(engine_id, held, ledger.moves(MoveKind.TAKEN_OVER, since_ms=since), since, ledger)
    engine.thaw()
    say(f"{engine.node}: {outcome}; SIGCONT")
    refused = wait_until(lambda: ledger.refusals_of(engine_id), what="the refusal of a stale commit", timeout=PATIENCE)
    say(f"{engine.node}: awake, and its stale commit was refused")
    return replace(outcome, refused=refused)


def wait_until_back(engine: WorkerProcess, outcome: Outcome, ledger: Ledger, say: Say) -> None:
    """Wait until the engine that was started again is live under its old node name, and its predecessor is not."""

    def is_back() -> bool:
        engine.check_alive()
        living = ledger.live_engines_on(engine.node)
        return bool(living) and outcome.engine_id not in living

    wait_until(is_back, what=f"{engine.node} to be back", timeout=PATIENCE)
    say(f"{engine.node}: started again, and live as a new engine")


# -- private


def _wait_for_its_end(engine: WorkerProcess, say: Say) -> None:
    """Celery waits up to 30 s for a pool process to which it had just given a task; a supervisor is less patient."""
    try:
        engine.wait(EXIT_PATIENCE)
    except WaitTimedOut:
        say(f"{engine.node}: holds nothing, and has not ended after {EXIT_PATIENCE.total_seconds():g} s: SIGKILL")
        engine.kill()


def _engine_with_claims(engine: WorkerProcess, ledger: Ledger) -> str:
    """The id of the engine, once it holds something."""

    def look() -> list[str]:
        engine.check_alive()
        return [engine_id for engine_id in ledger.live_engines_on(engine.node) if ledger.claims_of(engine_id)]

    return wait_until(look, what=f"a workflow on {engine.node}", timeout=PATIENCE)[0]


def _freeze_with_a_turn_in_hand(engine: WorkerProcess, engine_id: str, ledger: Ledger) -> int:
    """Freeze until the frozen engine has a turn in hand, and heartbeats of others are still written; the time of it.

    SQLite has one writer at a time. Frozen inside a write, the engine would stop all others: their heartbeats, and so
    the witnessed clock, and nothing would move until it thaws.
    """
    for _ in range(FREEZE_TRIES):
        wait_until(lambda: ledger.turns_in_hand(engine_id), what=f"a turn on {engine.node}", timeout=PATIENCE)
        since = ledger.now_ms()
        engine.freeze()
        if ledger.turns_in_hand(engine_id) and _is_beating(ledger):
            return since
        engine.thaw()
        time.sleep(THAW_FOR_S)
    raise WaitTimedOut(f"{engine.node} to be frozen with a turn in hand", PATIENCE)


def _is_beating(ledger: Ledger) -> bool:
    since = ledger.now_ms()
    try:
        return wait_until(
            lambda: ledger.has_heartbeat_since(since), what="a heartbeat of another engine", timeout=BEAT_PATIENCE
        )
    except WaitTimedOut:
        return False


def _wait_until_claims_are_gone(engine: WorkerProcess, engine_id: str, ledger: Ledger) -> None:
    wait_until(lambda: not ledger.claims_of(engine_id), what=f"the claims of {engine.node} to move", timeout=PATIENCE)


def _outcome(engine_id: str, held: frozenset[str], moves: Iterable[Move], since_ms: int, ledger: Ledger) -> Outcome:
    first: dict[str, Move] = {}
    for move in moves:
        if move.workflow_id in held and move.from_engine in (None, engine_id):
            first.setdefault(move.workflow_id, move)
    nodes = ledger.nodes()
    return Outcome(
        engine_id=engine_id,
        held=len(held),
        moved_ms=tuple(move.at_ms - since_ms for move in first.values()),
        moved_to=Counter(nodes.get(move.to_engine, move.to_engine) for move in first.values()),
        loads={node: load for node, load in ledger.loads().items() if node != nodes.get(engine_id)},
    )
