"""Engines: killed, frozen, stopped, out of memory, starved, and with a clock of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from faults.case import POSTGRES, Cases
from faults.checks import DUE_BOUND
from faults.kinds import Frozen, Killed, MainKilled, PoolProcessKilled, Stopped
from faults.scene import Scene
from faults.world import clock, libfaketime, no_faketime

cases = Cases("Engines")
ONE, TWO = "engine-1", "engine-2"


@cases.case("engine-killed", "Its workflows move within T + G + R and a pass, and only its own.")
def _(scene: Scene) -> None:
    with scene.workload(12):
        scene.pause(2)
        scene.strike(Killed(ONE), 9)
        scene.expect_moves_only_from(ONE)


@cases.case("engine-killed-and-started-at-once", "Its successor waits for it in vain, and its workflows move at once.")
def _(scene: Scene) -> None:
    with scene.workload(8):
        scene.pause(2)
        scene.strike(Killed(ONE), 0)
        scene.pause(6)
        scene.expect_moves_only_from(ONE)


@cases.case("main-process-killed", "The pool dies with it, and its workflows move.")
def _(scene: Scene) -> None:
    with scene.workload(12):
        scene.pause(2)
        scene.strike(MainKilled(ONE), 9)
        scene.expect_moves_only_from(ONE)


@cases.case("pool-process-killed", "The engine replaces it, and no workflow moves.")
def _(scene: Scene) -> None:
    with scene.workload(8):
        for _round in range(4):
            scene.pause(1.5)
            scene.strike(PoolProcessKilled(ONE))
        scene.expect_moves_only_from()


@cases.case("engine-frozen", "Frozen past T + G it loses its workflows; awake again, what it still commits is refused.")
def _(scene: Scene) -> None:
    with scene.workload(13):
        scene.pause(2)
        scene.strike(Frozen(ONE), 9)
        scene.expect_moves_only_from(ONE)


@cases.case("engine-frozen-shortly", "Frozen for less than T it loses nothing.")
def _(scene: Scene) -> None:
    with scene.workload(8):
        scene.pause(2)
        scene.strike(Frozen(ONE), 3)
        scene.pause(2)
        scene.expect_moves_only_from()


@cases.case("engine-stopped", "It hands over what it has, waits for its turns, and ends; nothing is tried twice.")
def _(scene: Scene) -> None:
    with scene.workload(8):
        scene.pause(2)
        scene.strike(Stopped(ONE), 2)


@cases.case(
    "engine-stopped-with-a-turn-in-hand",
    "It waits for the turn, which commits under its first claim and attempt, and hands over everything else at once.",
)
def _(scene: Scene) -> None:
    world = scene.world
    with scene.workload(10):
        id, gate = f"{scene.prefix}/held", world.folder / f"gate-{scene.prefix}"
        gate.unlink(missing_ok=True)
        world.weft.start("endless", id, str(gate), on_conflict="restart-if-ended")
        scene.wait("its turn to begin", lambda: any(e.get("workflow") == id for e in world.ledger.lines()), 15)
        node = next(e.node for e in world.weft.store.engines.list() if e.id == world.weft.describe(id).engine_id)
        fault = Stopped(node.partition("@")[0])
        at = scene.begin(fault)
        scene.pause(3)
        gate.touch()
        scene.wait("its turn to end", lambda: world.weft.describe(id).status == "completed", 10)
        turns = world.query("SELECT turn, attempt, epoch FROM weft_turns WHERE workflow_id = :id", id=id)
        scene.expect("it committed at its first attempt", [tuple(t) for t in turns] == [(0, 1, 1)], str(turns))
        scene.end(fault, at)


@cases.case("engine-stopped-then-killed", "What it had not handed over yet moves as that of a killed engine.")
def _(scene: Scene) -> None:
    with scene.workload(10):
        scene.pause(2)
        scene.world.processes[ONE].terminate()
        scene.pause(0.1)
        scene.strike(Killed(ONE), 7)


@cases.case(
    "engine-killed-while-the-machine-is-busy",
    "All cores taken by others: heartbeats still go out, so nobody but the killed engine loses anything.",
    bound=DUE_BOUND + timedelta(seconds=10),
)
def _(scene: Scene) -> None:
    with scene.workload(14, rate=2), burning(os.cpu_count() or 2):
        scene.pause(3)
        scene.strike(Killed(ONE), 9)
        scene.expect_moves_only_from(ONE)


@cases.case(
    "engine-host-45-s-off",
    "One host's clock is 45 s ahead, another's 45 s behind: no claim moves, since no two clocks are compared (O2).",
    needs={"clocks": {ONE: clock("+45s"), TWO: clock("-45s")} if libfaketime() else {}},
    databases=POSTGRES,
    missing=no_faketime,
)
def _(scene: Scene) -> None:
    with scene.workload(8):
        scene.pause(6)
        scene.expect_moves_only_from()


@cases.case(
    "engine-host-clock-jumps",
    "One host's clock jumps an hour ahead and two hours back: no claim moves, and it goes on taking turns.",
    needs={"jumping": (ONE,)},
    databases=POSTGRES,
    missing=no_faketime,
)
def _(scene: Scene) -> None:
    with scene.workload(12):
        for offset in ("+3600s", "-3600s", "+0s"):
            scene.pause(2.5)
            scene.world.set_clock(ONE, offset)
        scene.expect_moves_only_from()


@contextmanager
def burning(cores: int) -> Iterator[None]:
    """As many processes that take all the CPU they get, one for each core."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
