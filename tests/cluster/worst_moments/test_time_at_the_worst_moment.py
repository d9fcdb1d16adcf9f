"""Timeouts and the death of the owner: what a turn was given stays, and each deadline comes true once (O9)."""

from __future__ import annotations

import json
from typing import Any

from deployment import Gate
from worst import LONG, WorstDeployment

UNDELIVERABLE = -1


def tries(gate: Gate) -> dict[int, list[Any]]:
    """By turn, what each try noted that it was given."""
    noted: dict[int, list[Any]] = {}
    for number, *given in map(json.loads, gate.path.read_text().splitlines()):
        noted.setdefault(number, []).append(given)
    return noted


def test_a_timeout_that_passes_while_the_owner_is_dead_in_mid_turn_comes_in_the_turn_after_it(
    cluster: WorstDeployment,
) -> None:
    """The turn began before the deadline: its second try, after the deadline, still sees none."""
    id, gate = "timeout-in-mid-turn", cluster.gate("timeout-in-mid-turn")
    fired = cluster.arm("before-commit-of-turn-1", id)
    handle = cluster.weft.start("patient", id, str(gate.path))
    cluster.wait_until_parked(id, timeout=LONG)
    (deadline,) = [wait.deadline for wait in cluster.weft.describe(id).waits if wait.name == "answer"]
    handle.signal("poke")
    cluster.wait_for_the_kill(fired)
    assert handle.result(timeout=LONG) == {"pokes": 1, "ended by": "timeout"}
    noted = tries(gate)
    assert noted[1] == [noted[1][0]] * 2
    began_at, timed_out, came = noted[1][0]
    assert (began_at < deadline.isoformat(), timed_out, came) == (True, False, ["poke"])
    assert [given[1:] for given in noted[2]] == [[True, []]]
    assert [turn for turn, _epoch in cluster.committed_turns(id)] == [0, 1, 2]
    ended = handle.describe()
    assert ended.ended_at >= deadline


def test_the_turn_that_a_timeout_began_stays_timed_out_though_an_answer_comes_before_its_second_try(
    cluster: WorstDeployment,
) -> None:
    id, gate = "timeout-tried-again", cluster.gate("timeout-tried-again")
    fired = cluster.arm("before-commit-of-turn-1", id)
    handle = cluster.weft.start("patient", id, str(gate.path))
    cluster.wait_for_the_kill(fired)
    handle.signal("answer", "too late")
    assert handle.result(timeout=LONG) == {"pokes": 0, "ended by": "timeout"}
    noted = tries(gate)
    assert set(noted) == {1}
    assert noted[1] == [noted[1][0]] * 2
    assert noted[1][0][1:] == [True, []]
    signals = cluster.query("SELECT name, consumed_turn FROM weft_signals WHERE workflow_id = :id", id=id)
    assert signals == [("answer", UNDELIVERABLE)]
