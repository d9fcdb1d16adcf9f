"""The fault bench itself: the same seed draws the same schedule, and each of its checks can fail."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faults.checks import DUE_BOUND, Facts, Window, judge, longest_recovery_s
from faults.kinds import Killed, Slow
from faults.schedule import draw
from faults.watcher import Beat, Seen, Stretch
from faults.world import World

AT = 1_000_000.0
ENDED = 1


def row(**columns: Any) -> Any:
    return SimpleNamespace(**columns)


def turn(number: int, epoch: int = 1, attempt: int = 1, **columns: Any) -> Any:
    at = int(AT * 1000) + 1000 * number
    who = {"run_id": "r", "workflow_id": "p/w", "turn": number, "epoch": epoch, "attempt": attempt, "engine_id": "e1"}
    return row(**{**who, "began_at": at, "committed_at": at + 10, **columns})


def effect(what: str, number: int, epoch: int = 1, attempt: int = 1) -> dict[str, Any]:
    who = {"workflow": "p/w", "run": "r", "engine": "e1", "at": AT + number}
    return {"what": what, "turn": number, "epoch": epoch, "attempt": attempt, **who}


def good() -> Facts:
    """One collector that got two signals and an update, and has completed."""
    state = {"a": [[1, "k1"], [2, "k2"]], "b": [], "added": ["u1"]}
    collector = row(
        id="p/w", type="collector", run_id="r", status="completed", turn=3, epoch=2, state=json.dumps(state)
    )
    return Facts(
        receipts=[
            {"kind": "start", "type": "collector", "workflow": "p/w", "input": None},
            {"kind": "signal", "workflow": "p/w", "name": "a", "key": "k1", "number": 1},
            {"kind": "signal", "workflow": "p/w", "name": "a", "key": "k2", "number": 2},
            {"kind": "update", "workflow": "p/w", "key": "u1", "number": 3},
            {"kind": "answer", "workflow": "p/w", "key": "u1", "answer": 1},
        ],
        effects=[effect("signal k1", 1), effect("signal k2", 2, epoch=2), effect("update u1", 2, epoch=2)],
        workflows={"p/w": collector},
        turns=[turn(0), turn(1), turn(2, epoch=2)],
        signals=[row(workflow_id="p/w", number=1, consumed_turn=1), row(workflow_id="p/w", number=2, consumed_turn=2)],
        updates=[row(workflow_id="p/w", key="u1", status="answered")],
        claims=[],
        debts=[],
        history=[],
        seen=Seen(),
        windows=[],
    )


def broken(facts: Facts) -> list[str]:
    return [finding.check for finding in judge(facts, DUE_BOUND) if not finding.holds]


def with_state(**changes: Any) -> Facts:
    facts = good()
    was = facts.workflows["p/w"]
    state = {**json.loads(was.state), **changes}
    return dataclasses.replace(facts, workflows={"p/w": row(**{**vars(was), "state": json.dumps(state)})})


def taken_over(reason: str, beat_age_s: float, windows: tuple[Window, ...] = ()) -> Facts:
    beat = Beat(
        seen=AT, engine="e1", node="engine-1", status="live", heartbeat_at=AT - beat_age_s, is_deaf=reason == "deaf"
    )
    detail = json.dumps({"from": "e1", "from_node": "engine-1@local", "reason": reason})
    entry = row(event="taken-over", at=int(AT * 1000), detail=detail, workflow_id="p/w", epoch=2, engine_id="e2")
    return dataclasses.replace(good(), history=[entry], seen=Seen(beats=[beat]), windows=windows)


def test_what_is_well_breaks_nothing() -> None:
    assert broken(good()) == []


@pytest.mark.parametrize(
    ("facts", "check"),
    [
        (dataclasses.replace(good(), workflows={}), "every workflow that a client started has completed"),
        (with_state(a=[[1, "k1"]]), "every accepted signal was consumed exactly once"),
        (with_state(a=[[1, "k1"], [2, "k2"], [2, "k2"]]), "every accepted signal was consumed exactly once"),
        (with_state(a=[[2, "k2"], [1, "k1"]]), "signals of one name were consumed in the order of their numbers"),
        (with_state(added=["u1", "u1"]), "every accepted update was applied exactly once, and its one answer fits"),
        (with_state(added=[]), "every accepted update was applied exactly once, and its one answer fits"),
        (
            dataclasses.replace(good(), turns=[turn(0), turn(2, epoch=2)]),
            "each turn was committed once, none was left out, and epochs never went down",
        ),
        (
            dataclasses.replace(good(), turns=[turn(0), turn(1, epoch=2), turn(2, epoch=1)]),
            "each turn was committed once, none was left out, and epochs never went down",
        ),
        (
            dataclasses.replace(good(), effects=[effect("a", 2, epoch=2), effect("b", 1)]),
            "of one workflow the ledger's committed rows carry epochs that never go down",
        ),
        (
            dataclasses.replace(
                good(),
                effects=[effect("a", 2, epoch=2), effect("b", 1, attempt=9)],
                seen=Seen(
                    beats=[Beat(seen=AT, engine="e1", node="engine-1", status="live", heartbeat_at=AT, is_deaf=False)]
                ),
            ),
            "a row of an older epoch is of an engine that a fault had deposed, and did not commit",
        ),
        (
            dataclasses.replace(good(), claims=[row(workflow_id="p/w", engine_id="e1")]),
            "nothing is owed at the end: no claim of an ended workflow, no unsent task or reply",
        ),
        (taken_over("silent", beat_age_s=1), "no engine lost a workflow that beat within the last T"),
        (taken_over("deaf", beat_age_s=1), "no engine lost a workflow that beat within the last T"),
    ],
)
def test_each_check_can_fail(facts: Facts, check: str) -> None:
    assert check in broken(facts)


def test_an_engine_that_was_silent_for_long_or_under_a_fault_may_lose_its_workflows() -> None:
    frozen = Window(AT - 10, AT - 1, "engine-1", False, False)
    no_redis = Window(AT - 30, AT - 20, None, True, True)
    assert broken(taken_over("silent", beat_age_s=7)) == []
    assert broken(taken_over("silent", beat_age_s=1, windows=(frozen,))) == []
    assert broken(taken_over("deaf", beat_age_s=1, windows=(no_redis,))) == []


def rings_after_a_second(seconds: float, **slept: Any) -> Facts:
    """An alarm of so many seconds; `slept` are columns of its first turn."""
    receipts = [{"kind": "start", "type": "alarm", "workflow": "p/alarm", "input": seconds}]
    turns = [turn(0, workflow_id="p/alarm", **slept), turn(1, workflow_id="p/alarm")]
    alarm = row(id="p/alarm", type="alarm", run_id="r", status="completed", turn=2, epoch=1, state="{}")
    return dataclasses.replace(
        good(), receipts=receipts, turns=turns, workflows={"p/alarm": alarm}, signals=[], updates=[], effects=[]
    )


def test_a_timer_that_rings_early_is_found() -> None:
    assert broken(rings_after_a_second(2.0)) == ["no timer fired before its time"]


def test_a_timer_rings_in_time_though_its_engine_was_frozen_in_the_middle_of_the_commit() -> None:
    assert broken(rings_after_a_second(0.9, committed_at=int(AT * 1000) + 800)) == []


def test_a_workflow_that_was_due_for_long_is_found_unless_nobody_could_work() -> None:
    idle = Stretch(workflow="p/w", turn=1, began=AT, ended=AT + 60)
    facts = dataclasses.replace(good(), seen=Seen(stretches=[idle]))
    assert broken(facts) == ["no workflow was due for longer than its bound, outages left out"]
    outages = [Window(AT + 5, AT + 40, None, True, False), Window(AT + 30, AT + 58, None, True, False)]
    excused = dataclasses.replace(facts, windows=outages)
    assert broken(excused) == []
    assert longest_recovery_s(excused) == pytest.approx(7)
    # A fault that halts nobody excuses nothing.
    harmless = dataclasses.replace(facts, windows=[Window(AT, AT + 60, "engine-1", False, False)])
    assert broken(harmless) != []


LOST_REDIS = {"type": "ConnectionError", "message": "Connection refused.", "traceback": ""}


@pytest.mark.parametrize(
    ("noted", "holds"),
    [
        (["noted"], True),
        (["noted", "noted"], False),
        # Celery's own failure: the task had ended well.
        ([LOST_REDIS], True),
        ([LOST_REDIS, "noted"], False),
        ([{**LOST_REDIS, "type": "ValueError"}], False),
    ],
)
def test_a_reply_that_came_twice_or_is_another_one_is_found(noted: list[object], holds: bool) -> None:
    state = json.dumps({"noted": noted, "grown": ["grown"]})
    caller = row(id="p/c", type="caller", run_id="r", status="completed", turn=3, epoch=2, state=state)
    facts = dataclasses.replace(good(), receipts=[], workflows={"p/c": caller}, signals=[], updates=[], effects=[])
    assert broken(facts) == ([] if holds else ["every called task's reply and every child's came exactly once"])


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_the_same_seed_draws_the_same_schedule(database: str) -> None:
    drawn = [[str(entry) for entry in draw(seed, database, 40)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("seed", range(50))
def test_a_schedule_leaves_an_engine_and_never_touches_one_subject_twice_at_once(seed: int) -> None:
    entries = draw(seed, "postgres", 60)
    assert len(entries) >= 5
    for entry in entries:
        node = entry.fault.node
        if node is not None:
            at_once = {
                other.fault.node
                for other in entries
                if other.fault.node and other.begins_s <= entry.begins_s < other.ends_s
            }
            assert len(at_once) <= 2
            assert [o for o in entries if o.fault.node == node and o.begins_s <= entry.begins_s < o.ends_s] == [entry]


def test_a_bound_is_longer_than_what_the_rules_allow() -> None:
    assert timedelta(seconds=4 + 2 + 3) == DUE_BOUND


# -- the bench's supervisor


def test_what_ended_by_itself_is_started_again_and_what_a_fault_holds_down_is_not(tmp_path: Path) -> None:
    world: Any = World("sqlite", tmp_path)
    world.engines = {"engine-1": StubProcess(is_running=False)}
    world.maintenance = StubProcess(is_running=False)
    world.beats = {"beat-1": StubProcess(is_running=True)}
    world.supervise({Killed("engine-1").holds_down, Slow("redis", 0.2).holds_down})
    assert world.started_again == ["maintenance"]
    assert world.maintenance.is_running
    assert not world.engines["engine-1"].is_running


@dataclasses.dataclass
class StubProcess:
    is_running: bool

    def start(self) -> None:
        self.is_running = True
