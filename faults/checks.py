"""The always-checks: what must hold of every run, read off the ledger, the clients' receipts and the store's rows by
plain SELECTs. The product's own counters are not asked.

Pure: values in, findings out; `gather` reads the values.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import select

from faults.app import INTERVAL_S, NAMES, TTL_S
from faults.watcher import Seen
from faults.world import World
from weft_tasks.store.tables import claims, history, outbox, signals, turns, updates, workflows

GRACE_S = 2 * INTERVAL_S
SILENCE_S = TTL_S + GRACE_S
DUE_BOUND = timedelta(seconds=TTL_S + GRACE_S + 3 * INTERVAL_S)
"""T + G + 3R; a pass comes on top, and what a busy machine adds."""
SLACK = timedelta(seconds=6)
TIMER_EARLY_MS = 5
CELERYS_OWN = ("ConnectionError", "OperationalError", "TimeoutError")
"""What a task's reply says that could not be stored or sent as the task ended."""


class Window(NamedTuple):
    """A fault's time by this machine's clock: with the node that it makes unfit, and whether it halts everybody."""

    began: float
    ended: float
    node: str | None
    halts: bool
    takes_redis: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that a verdict is made of, for the workflows of one prefix."""

    receipts: Sequence[Mapping[str, Any]]
    effects: Sequence[Mapping[str, Any]]
    workflows: Mapping[str, Any]
    turns: Sequence[Any]
    signals: Sequence[Any]
    updates: Sequence[Any]
    claims: Sequence[Any]
    debts: Sequence[Any]
    history: Sequence[Any]
    seen: Seen
    windows: Sequence[Window]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: its sentence, and each thing that breaks it."""

    check: str
    broken: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.broken


def gather(world: World, prefix: str, since: int, seen: Seen, windows: Sequence[Window]) -> Facts:
    """Read the store past the product; `since` is the ledger's position at the beginning."""
    ours = f"{prefix}/"
    with world.weft.store.database.reading() as connection:

        def rows(table: Any) -> list[Any]:
            column = table.c.id if table is workflows else table.c.workflow_id
            return list(connection.execute(select(table).where(column.startswith(ours, autoescape=True))))

        found = {table.name: rows(table) for table in (workflows, turns, signals, updates, claims, outbox, history)}
    return Facts(
        receipts=world.receipts(prefix),
        effects=[line for line in world.ledger.lines(since) if str(line.get("workflow", "")).startswith(ours)],
        workflows={row.id: row for row in found["weft_workflows"]},
        turns=sorted(found["weft_turns"], key=lambda row: (row.run_id, row.turn)),
        signals=sorted(found["weft_signals"], key=lambda row: (row.run_id, row.number)),
        updates=found["weft_updates"],
        claims=found["weft_claims"],
        debts=found["weft_outbox"],
        history=sorted(found["weft_history"], key=lambda row: row.id),
        seen=seen,
        windows=windows,
    )


def judge(facts: Facts, due_bound: timedelta) -> tuple[Finding, ...]:
    """Every check, each with what breaks it."""
    checks = {
        "every workflow that a client started has completed": _not_completed(facts),
        "every accepted signal was consumed exactly once": _signals_not_once(facts),
        "signals of one name were consumed in the order of their numbers": _out_of_order(facts),
        "every accepted update was applied exactly once, and its one answer fits": _updates_not_once(facts),
        "each turn was committed once, none was left out, and epochs never went down": _turns_not_once(facts),
        "of one workflow the ledger's committed rows carry epochs that never go down": _ledger_goes_down(facts),
        "a row of an older epoch is of an engine that a fault had deposed, and did not commit": _late_effects(facts),
        "no timer fired before its time": _early_timers(facts),
        "every called task's reply and every child's came exactly once": _replies_not_once(facts),
        "no engine lost a workflow that beat within the last T": _robbed(facts),
        "no workflow was due for longer than its bound, outages left out": _idle(facts, due_bound),
        "nothing is owed at the end: no claim of an ended workflow, no unsent task or reply": _owed(facts),
    }
    return tuple(Finding(check=check, broken=tuple(broken)) for check, broken in checks.items())


def sentences() -> tuple[str, ...]:
    """What is checked, in words."""
    nothing = Facts(
        receipts=(),
        effects=(),
        workflows={},
        turns=(),
        signals=(),
        updates=(),
        claims=(),
        debts=(),
        history=(),
        seen=Seen(),
        windows=(),
    )
    return tuple(finding.check for finding in judge(nothing, DUE_BOUND)) + OF_PROCESSES


OF_PROCESSES = (
    "every worker and both beats run",
    "no tick and no turn ended with an unexpected error",
    "no lock key lives for longer than its 2R",
    "every client got an answer to everything",
)


def longest_recovery_s(facts: Facts) -> float:
    """The longest time that a workflow was due, outages left out."""
    return max((_without_outages(s.began, s.ended, facts.windows) for s in facts.seen.stretches), default=0.0)


# -- the checks


def _not_completed(facts: Facts) -> list[str]:
    started = {line["workflow"] for line in facts.receipts if line["kind"] in ("start", "signal", "update")}
    status = {id: row.status for id, row in facts.workflows.items()}
    return [f"{id} is {status.get(id, 'gone')}" for id in sorted(started) if status.get(id) != "completed"] + [
        f"{id} is {status[id]}" for id in sorted(set(status) - started) if status[id] != "completed"
    ]


def _signals_not_once(facts: Facts) -> list[str]:
    broken = []
    told: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for line in facts.receipts:
        if line["kind"] == "signal":
            told[line["workflow"], line["name"]][line["key"]] = line["number"]
    for (id, name), sent in told.items():
        got = [tuple(entry) for entry in _state(facts, id).get(name, [])]
        keys = [key for _number, key in got]
        broken += [f"{id} {name} {key} lost" for key in sent if key not in keys]
        broken += [f"{id} {name} {key} twice" for key in set(keys) if keys.count(key) > 1]
        broken += [f"{id} {name} {key} has another number" for number, key in got if sent.get(key, number) != number]
    broken += [f"{row.workflow_id} {row.number} never consumed" for row in facts.signals if row.consumed_turn is None]
    return broken


def _out_of_order(facts: Facts) -> list[str]:
    broken = []
    for id in facts.workflows:
        for name in NAMES:
            numbers = [number for number, _key in _state(facts, id).get(name, [])]
            if numbers != sorted(numbers):
                broken.append(f"{id} {name}: {numbers}")
    return broken


def _updates_not_once(facts: Facts) -> list[str]:
    asked = {(line["workflow"], line["key"]) for line in facts.receipts if line["kind"] == "update"}
    answers = {(line["workflow"], line["key"]): line["answer"] for line in facts.receipts if line["kind"] == "answer"}
    broken = [f"{id} {key} was never answered" for id, key in sorted(asked - set(answers))]
    for (id, key), answer in answers.items():
        added = _state(facts, id).get("added", [])
        if added.count(key) != 1 or added[answer - 1 : answer] != [key]:
            broken.append(f"{id} {key}: answer {answer}, applied {added.count(key)} times")
    return broken + [
        f"{row.workflow_id} {row.key} is {row.status}" for row in facts.updates if row.status != "answered"
    ]


def _turns_not_once(facts: Facts) -> list[str]:
    broken, by_run = [], defaultdict(list)
    for turn in facts.turns:
        by_run[turn.run_id].append(turn)
    for row in facts.workflows.values():
        committed = by_run.get(row.run_id, [])
        if [turn.turn for turn in committed] != list(range(row.turn)):
            broken.append(f"{row.id}: turns {[turn.turn for turn in committed]} of {row.turn}")
        epochs = [turn.epoch for turn in committed]
        if epochs != sorted(epochs) or any(epoch > row.epoch for epoch in epochs):
            broken.append(f"{row.id}: epochs {epochs}, now {row.epoch}")
    return broken


def _ledger_goes_down(facts: Facts) -> list[str]:
    broken: list[str] = []
    latest: dict[str, int] = {}
    for line in _committed(facts):
        if line["epoch"] < latest.get(line["run"], 0):
            broken.append(f"{line['workflow']} turn {line['turn']}: epoch {line['epoch']} after {latest[line['run']]}")
        latest[line["run"]] = max(line["epoch"], latest.get(line["run"], 0))
    return broken


def _late_effects(facts: Facts) -> list[str]:
    committed = {(turn.run_id, turn.turn, turn.attempt) for turn in facts.turns}
    nodes = {beat.engine: beat.node for beat in facts.seen.beats}
    broken: list[str] = []
    latest: dict[str, int] = {}
    for line in _by_turns(facts):
        if line["epoch"] < latest.get(line["run"], 0):
            is_committed = (line["run"], line["turn"], line["attempt"]) in committed
            if is_committed or not _was_unfit(facts, nodes.get(line["engine"]), line["at"]):
                broken.append(f"{line['workflow']} {line['what']} by {line['engine']}, epoch {line['epoch']}")
        latest[line["run"]] = max(line["epoch"], latest.get(line["run"], 0))
    return broken


def _early_timers(facts: Facts) -> list[str]:
    """Timed from the begin of the turn that slept: its engine may be frozen between the timer's row and the commit."""
    seconds = {line["workflow"]: line["input"] for line in facts.receipts if line.get("type") == "alarm"}
    broken = []
    by_turn = {(turn.workflow_id, turn.turn): turn for turn in facts.turns}
    for id, lasts in seconds.items():
        slept, rang = by_turn.get((id, 0)), by_turn.get((id, 1))
        if slept and rang and rang.began_at - slept.began_at < 1000 * lasts - TIMER_EARLY_MS:
            broken.append(f"{id}: {rang.began_at - slept.began_at} ms instead of {lasts} s")
    return broken


def _replies_not_once(facts: Facts) -> list[str]:
    broken = []
    for id, row in facts.workflows.items():
        if row.type == "caller" and row.status == "completed":
            state = _state(facts, id)
            noted = ["noted" if _is_celerys_own(reply) else reply for reply in state.get("noted", ())]
            if noted != ["noted"] or state.get("grown") != ["grown"]:
                broken.append(f"{id}: {state}")
    return broken


def _is_celerys_own(reply: object) -> bool:
    """Celery counts a task as failed that has ended well when Redis was not to be reached at that moment."""
    return isinstance(reply, dict) and reply.get("type") in CELERYS_OWN


def _robbed(facts: Facts) -> list[str]:
    """Takeovers from an engine that was seen alive. A deaf one that beats may lose what is due, if Redis was away
    or it was cut off itself."""
    broken = []
    for entry in facts.history:
        if entry.event != "taken-over":
            continue
        at, holder, reason = entry.at / 1000, json.loads(entry.detail).get("from"), json.loads(entry.detail)["reason"]
        beats = [beat for beat in facts.seen.beats if beat.engine == holder and beat.heartbeat_at < at]
        node = beats[-1].node if beats else None
        is_alive = bool(beats) and beats[-1].status == "live" and at - max(b.heartbeat_at for b in beats) < TTL_S
        if reason == "deaf" and _may_be_deaf(facts, node, at):
            continue
        if is_alive and not _was_unfit(facts, node, at):
            broken.append(f"{entry.workflow_id} from {node} ({holder}) as {reason}, epoch {entry.epoch}")
    return broken


def _idle(facts: Facts, bound: timedelta) -> list[str]:
    limit = (bound + SLACK).total_seconds()
    lasted = [(_without_outages(s.began, s.ended, facts.windows), s) for s in facts.seen.stretches]
    return [f"{s.workflow} turn {s.turn}: {seconds:.1f} s" for seconds, s in lasted if seconds > limit]


def _owed(facts: Facts) -> list[str]:
    return [f"claim on {row.workflow_id} by {row.engine_id}" for row in facts.claims] + [
        f"{row.kind} {row.id} of {row.workflow_id}" for row in facts.debts
    ]


# -- private


def _state(facts: Facts, id: str) -> dict[str, Any]:
    row = facts.workflows.get(id)
    return {} if row is None else dict(json.loads(row.state))


def _by_turns(facts: Facts) -> list[Mapping[str, Any]]:
    return [line for line in facts.effects if "epoch" in line]


def _committed(facts: Facts) -> list[Mapping[str, Any]]:
    attempts = {(turn.run_id, turn.turn, turn.attempt) for turn in facts.turns}
    return [line for line in _by_turns(facts) if (line["run"], line["turn"], line["attempt"]) in attempts]


def _was_unfit(facts: Facts, node: str | None, at: float) -> bool:
    """Whether a fault had made this node unfit shortly before."""
    return node is None or any(
        window.node == node and window.began <= at <= window.ended + SILENCE_S + 2 * INTERVAL_S
        for window in facts.windows
    )


def _may_be_deaf(facts: Facts, node: str | None, at: float) -> bool:
    return any(
        (window.takes_redis or window.node == node) and window.began <= at <= window.ended + 40
        for window in facts.windows
    )


def _without_outages(began: float, ended: float, windows: Sequence[Window]) -> float:
    """The length of a time without what lies in halting windows, which may overlap."""
    left = ended - began
    reached = began
    for window in sorted(window for window in windows if window.halts):
        start, end = max(window.began, reached), min(window.ended, ended)
        if end > start:
            left -= end - start
            reached = end
    return left
