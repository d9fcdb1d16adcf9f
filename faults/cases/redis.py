"""Redis: gone, silent, emptied, full, out of connections, slow."""

from __future__ import annotations

from datetime import timedelta

from faults.case import Cases
from faults.checks import DUE_BOUND
from faults.kinds import RECONNECT_S, RedisCommand, RedisGone, RedisSetting, RedisSilent, Slow
from faults.scene import Scene

cases = Cases("Redis")


@cases.case(
    "redis-killed-and-empty", "Signals are accepted all the time, no claim moves, and the rows send it all again."
)
def _(scene: Scene) -> None:
    with scene.workload(10):
        scene.pause(2)
        scene.strike(RedisGone(), 3)
        scene.pause(5)


@cases.case("redis-restarted-three-times", "Workers consume again each time, without a human.")
def _(scene: Scene) -> None:
    with scene.workload(14):
        for seconds in (0.2, 1, 2):
            scene.pause(2)
            scene.strike(RedisGone(), seconds)


@cases.case(
    "redis-silent",
    "Frozen without a reset: a request waits no longer than its publish timeout, and no claim moves.",
)
def _(scene: Scene) -> None:
    with scene.workload(12):
        scene.pause(2)
        scene.strike(RedisSilent(), 8)
        scene.expect_moves_only_from()


@cases.case("redis-flushall", "Messages and locks are gone; the next passes send again what is due.")
def _(scene: Scene) -> None:
    with scene.workload(9):
        for _round in range(3):
            scene.pause(2)
            scene.strike(RedisCommand(("FLUSHALL",)))
        scene.expect_moves_only_from()


@cases.case("redis-script-flush", "No tick fails: a lock's script that is gone is loaded again.")
def _(scene: Scene) -> None:
    with scene.workload(6):
        for _round in range(20):
            scene.pause(0.25)
            scene.strike(RedisCommand(("SCRIPT", "FLUSH")))
        scene.expect_moves_only_from()


@cases.case(
    "redis-connection-limit",
    "No process gets a connection for a while: what is accepted stays in its row and runs once they do.",
    bound=DUE_BOUND + timedelta(seconds=10),
)
def _(scene: Scene) -> None:
    with scene.workload(10):
        scene.pause(2)
        scene.strike(RedisSetting("maxclients", "1"), 4)
        scene.pause(4)


@cases.case(
    "redis-out-of-memory",
    "With noeviction it refuses writes: no message goes out, signals are accepted, and all runs once there is room.",
)
def _(scene: Scene) -> None:
    with scene.workload(10):
        scene.pause(2)
        scene.strike(RedisSetting("maxmemory", "1"), 5)
        scene.pause(3)
        scene.expect_moves_only_from()


@cases.case(
    "redis-replaced-by-an-empty-replica",
    "After a failover that lost everything each lock is taken anew, and the fence keeps a second pass harmless.",
)
def _(scene: Scene) -> None:
    with scene.workload(10):
        scene.pause(2)
        # What a client of a failover sees: its connections end, and the address answers at once with nothing in it.
        scene.strike(RedisGone(), 0)
        scene.pause(RECONNECT_S / 2)


@cases.case(
    "redis-slow-by-200-ms",
    "Everything takes longer, heartbeats do not: no claim moves, and nobody waits for more than the bound.",
    needs={"all_by_proxy": True},
    bound=DUE_BOUND + timedelta(seconds=5),
)
def _(scene: Scene) -> None:
    with scene.workload(12, rate=2):
        scene.pause(1)
        scene.strike(Slow("redis", 0.1), 8)
        scene.expect_moves_only_from()
