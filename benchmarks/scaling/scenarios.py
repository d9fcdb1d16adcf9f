"""What happens to the fleets that are simulated, and what is kept of each run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.measuring import percentile
from benchmarks.scaling.costs import Costs
from benchmarks.scaling.fleet import Life
from benchmarks.scaling.simulation import Outcome, Plan, Ran, renewal_seconds, simulate
from weft_tasks.results import PassKind, PassStatus
from weft_tasks.settings import Settings

SHARDS = (1, 2, 4, 8, 16)
SIZES = (50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000)
CORES = (2, 4, 8, 16)
CURVE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    what: str
    lives: Sequence[Life]
    lasts: float
    shards: int


def scenarios(engines: int, shards: int, seed: int) -> tuple[Scenario, ...]:
    """Each with one shard and with several."""
    tenth = max(1, engines // 10)
    made = (
        ("one engine", "kill -9 of one engine every minute", crashes(engines, seed, victims=1, times=10), 700.0),
        ("one in ten", f"kill -9 of {tenth} engines at once", crashes(engines, seed, victims=tenth, times=1), 240.0),
        ("rolling", "deploy, an engine every 6 s", deploy(engines, seed, every=6, back_after=10), 6.0 * engines + 90),
        ("all at once", "deploy of all engines at once", deploy(engines, seed, every=0, back_after=20), 600.0),
    )
    return tuple(
        Scenario(name=name, what=what, lives=lives, lasts=lasts, shards=count)
        for count in sorted({1, shards})
        for name, what, lives, lasts in made
    )


def crashes(engines: int, seed: int, *, victims: int, times: int, every: float = 60) -> list[Life]:
    """So many random engines die at one moment, and again, each time at another moment between two ticks. Nobody takes
    their names, so that only their silence tells; new engines come after a minute."""
    rng = random.Random(seed)
    alive, over = _first(engines, rng), []
    for number in range(1, times + 1):
        moment = number * every + rng.random() * Settings().renew_interval.total_seconds()
        for _ in range(victims):
            victim = alive.pop(rng.randrange(len(alive)))
            over.append(replace(victim, ends_at=moment, is_clean=False))
            over.append(Life(engine_id=f"{victim.engine_id}+", born_at=moment + 60))
    return [*alive, *over]


def deploy(engines: int, seed: int, *, every: float, back_after: float) -> list[Life]:
    """SIGTERM to one engine after the other, each back as a new one; with `every` 0 to all within a second."""
    rng = random.Random(seed)
    lives = []
    for number, life in enumerate(_first(engines, rng)):
        ends = 30 + (number * every if every else rng.random())
        lives.append(replace(life, ends_at=ends))
        lives.append(Life(engine_id=f"{life.engine_id}+", born_at=ends + back_after))
    return lives


def _first(engines: int, rng: random.Random) -> list[Life]:
    """All beating when the run begins, each in its own rhythm."""
    every = Settings().heartbeat_interval.total_seconds()
    return [Life(engine_id=f"engine-{number:03}", born_at=-rng.random() * every) for number in range(engines)]


def report_of(workflows: int, engines: int, shards: int, cores: float, seed: int, costs: Costs) -> dict[str, Any]:
    """Everything that the page shows."""
    still = Plan(workflows=workflows, lives=_first(engines, random.Random(seed)), lasts=0, store_cores=cores)
    return {
        "command": "python -m benchmarks.scaling",
        "workflows": workflows,
        "engines": engines,
        "store_cores": cores,
        "seed": seed,
        "renewals": [
            {"claims": size, "shards": count, "seconds": _renewal(replace(still, workflows=size), count, costs)}
            for count in SHARDS
            for size in SIZES
        ],
        "renewals_by_cores": [
            {"cores": few, "shards": count, "seconds": _renewal(replace(still, store_cores=few), count, costs)}
            for few in CORES
            for count in SHARDS
        ],
        "runs": [
            _run(scenario, workflows, cores, seed, costs) for scenario in scenarios(engines, shards, seed)
        ],
    }  # fmt: skip


def _renewal(plan: Plan, shards: int, costs: Costs) -> float:
    return round(renewal_seconds(replace(plan, settings=Settings(shards=shards)), costs), 2)


def _run(scenario: Scenario, workflows: int, cores: float, seed: int, costs: Costs) -> dict[str, Any]:
    plan = Plan(
        workflows=workflows,
        lives=scenario.lives,
        lasts=scenario.lasts,
        settings=Settings(shards=scenario.shards),
        store_cores=cores,
        maintenance_cores=4 * scenario.shards,
        seed=seed,
    )
    outcome = simulate(plan, costs)
    return {"name": scenario.name, "what": scenario.what, "shards": scenario.shards, **summary(outcome, scenario.lasts)}


def summary(outcome: Outcome, lasts: float) -> dict[str, Any]:
    fleet = outcome.fleet
    seconds = range(int(lasts))
    busy = [outcome.store.busy(second) for second in seconds]
    log = [outcome.load.log_bytes[second] / 1e6 for second in seconds]
    statements = [outcome.load.statements[second] for second in seconds]
    waits = sorted(fleet.recovered_s)
    points = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {
        "recovered": len(waits),
        "waiting": len(fleet.orphaned_at),
        "recovery_s": {name: round(percentile(waits, share), 1) for name, share in points.items()} if waits else {},
        "renewal": _passes(outcome, PassKind.RENEWAL),
        "reclaim": _passes(outcome, PassKind.RECLAIM),
        "moves_of_one": round(sum(fleet.moved.values()) / len(fleet.moved), 2) if fleet.moved else 0,
        "cores_busy": _mean_and_most(busy),
        "log_mb_s": _mean_and_most(log),
        "statements_s": _mean_and_most(statements),
        "waits_curve": [round(percentile(waits, n / CURVE), 2) for n in range(CURVE + 1)] if waits else [],
        "cores_curve": [round(value, 2) for value in busy],
        "log_curve": [round(value, 2) for value in log],
    }


def _passes(outcome: Outcome, kind: PassKind) -> dict[str, Any]:
    ran: list[Ran] = [each for each in outcome.passes if each.kind is kind]
    return {
        "passes": len(ran),
        "longest_s": round(max(each.took for each in ran), 1),
        "cut": sum(each.status is PassStatus.DEADLINE_REACHED for each in ran),
        "unread": sum(each.status is PassStatus.DISCOVERY_FAILED for each in ran),
        "most_moved": max(each.moved for each in ran),
    }


def _mean_and_most(values: Sequence[float]) -> list[float]:
    return [round(sum(values) / len(values), 1), round(max(values), 1)]
