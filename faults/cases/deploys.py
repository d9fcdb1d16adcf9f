"""Deploys: engines restarted one by one under load, and all at once."""

from __future__ import annotations

from faults.case import Cases
from faults.kinds import Stopped
from faults.scene import Scene
from faults.world import ENGINES, LONG

cases = Cases("Deploys")


@cases.case(
    "rolling-restart",
    "Each engine hands over what it has; nothing is set aside, tried twice or late, and nobody is deposed.",
)
def _(scene: Scene) -> None:
    with scene.workload(20):
        for name in ENGINES:
            scene.strike(Stopped(name))
            scene.world.processes[name].wait_until_ready(LONG)
            scene.wait("three live engines", scene.world.is_well, 20)
        scene.expect_moves_only_from()


@cases.case("all-engines-restarted-at-once", "Nobody runs turns for a moment; then all goes on under the new engines.")
def _(scene: Scene) -> None:
    faults = [EveryEngineStopped(name) for name in ENGINES]
    with scene.workload(12):
        scene.pause(2)
        with scene.during(*faults):
            scene.pause(1)
        scene.wait("three live engines", scene.world.is_well, 40)


class EveryEngineStopped(Stopped):
    """As one of all that stop: nobody is left to take turns until they are back."""

    halts = True
    lag_s = 10
