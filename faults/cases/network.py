"""The network between one engine and its servers: cut in one direction and both, for long, flapping, slow."""

from __future__ import annotations

from datetime import timedelta

from faults.case import POSTGRES, Cases
from faults.checks import DUE_BOUND
from faults.kinds import ConnectionsReset, Cut, Slow
from faults.scene import Scene
from faults.world import FAR_ENGINE

cases = Cases("The network of one engine")
DEAF = DUE_BOUND + timedelta(seconds=6)
"""An engine that does not hear counts as deaf after 6 messages, sent at most once per R and then less often."""


@cases.case(
    "engine-cut-from-redis",
    "It beats, so its claims stay; once it counts as deaf its due workflows move, and the parked ones stay.",
    bound=DEAF + timedelta(seconds=8),
)
def _(scene: Scene) -> None:
    with scene.workload(16):
        scene.pause(2)
        scene.strike(Cut("redis"), 12)
        scene.expect_moves_only_from(FAR_ENGINE)


@cases.case(
    "engine-cut-from-redis-one-way",
    "Its requests are swallowed, or the answers: the same as a cut in both directions.",
    bound=DEAF + timedelta(seconds=8),
)
def _(scene: Scene) -> None:
    with scene.workload(16):
        scene.pause(1)
        scene.strike(Cut("redis", "to-server"), 5)
        scene.pause(2)
        scene.strike(Cut("redis", "to-client"), 5)
        scene.expect_moves_only_from(FAR_ENGINE)


@cases.case(
    "engine-cut-from-database",
    "It cannot beat: its workflows move after T + G, and its commits are refused.",
    databases=POSTGRES,
)
def _(scene: Scene) -> None:
    with scene.workload(14):
        scene.pause(2)
        scene.strike(Cut("database"), 10)
        scene.expect_moves_only_from(FAR_ENGINE)


@cases.case(
    "engine-cut-from-database-one-way",
    "A commit whose answer is swallowed is unknown, and resolved once: its row tells whether it had arrived.",
    databases=POSTGRES,
)
def _(scene: Scene) -> None:
    with scene.workload(14):
        for way in ("to-client", "to-server"):
            scene.pause(1)
            scene.strike(Cut("database", way), 4)
        scene.expect_moves_only_from(FAR_ENGINE)


@cases.case("engine-cut-for-less-than-t", "It misses heartbeats, and keeps what it has.", databases=POSTGRES)
def _(scene: Scene) -> None:
    with scene.workload(9):
        scene.pause(2)
        scene.strike(Cut("database"), 2.5)
        scene.pause(2)
        scene.expect_moves_only_from()


@cases.case("engine-flapping", "Connections end again and again: its workflows stay, and the fleet does not churn.")
def _(scene: Scene) -> None:
    servers = ("redis",) if scene.world.database == "sqlite" else ("redis", "database")
    with scene.workload(12):
        for _round in range(8):
            for server in servers:
                scene.strike(ConnectionsReset(server), 0)  # type: ignore[arg-type]
            scene.pause(1)
        moved = sum(scene.moves().values())
        scene.figures["workflows moved"] = moved
        scene.expect_moves_only_from(FAR_ENGINE)


@cases.case(
    "engine-far-away", "It is slower than the others (50 ms to the database, 200 ms to Redis), and keeps what it has."
)
def _(scene: Scene) -> None:
    far = [Slow("redis", 0.1)] + ([] if scene.world.database == "sqlite" else [Slow("database", 0.025)])
    with scene.workload(10, rate=3):
        with scene.during(*far):
            scene.pause(8)
        scene.expect_moves_only_from()
