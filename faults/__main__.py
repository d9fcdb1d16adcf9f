"""The fault bench.

    python -m faults                             every named case, one after the other
    python -m faults --case engine-killed        one of them, or several
    python -m faults --seed 7                    a mixed schedule; --seeds 1-20 for many
    python -m faults --soak 1200                 twenty minutes with a fault every ten seconds, and what grew
    python -m faults --list                      the cases, with what is expected of each

--database postgres (the default) or sqlite. Reports are in var/faults/. Ends with status 1 if anything does not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from faults import report
from faults.case import Case
from faults.cases import ALL
from faults.scene import Scene
from faults.schedule import draw
from faults.soak import SETTINGS, soak
from faults.world import World
from weft_tasks import WeftError

OUTPUT = Path("var/faults")
MIXED_S = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.list:
        for case in ALL.values():
            print(f"{case.name:<36} {case.expected}")
        return 0
    if options.soak:
        runs = run_soak(options.soak, options.database, options.seed_of_clients)
        name = f"soak-{options.database}"
    elif options.seeds:
        runs = run_seeds(options.seeds, options.database, options.seconds)
        name = f"mixed-{options.database}-{options.seeds[0]}-{options.seeds[-1]}"
    else:
        chosen = [ALL[name] for name in options.case] if options.case else list(ALL.values())
        runs = run_cases(chosen, options.database, options.seed_of_clients)
        name = (
            f"cases-{options.database}"
            if not options.case
            else f"case-{options.database}-{'+'.join(options.case)[:60]}"
        )
    path = OUTPUT / f"{name}.json"
    report.write(path, runs)
    broken = [run for run in runs if not run["holds"]]
    print(f"\n{len(runs) - len(broken)} of {len(runs)} hold: {path}")
    for run in broken:
        print(f"  not: {run['name']}")
    return 1 if broken else 0


def run_cases(cases: Sequence[Case], database: str, seed: int) -> list[dict[str, Any]]:
    """One after the other in a standing world; a case with needs of its own, or after a broken one, gets another."""
    runs: list[dict[str, Any]] = []
    with ExitStack() as stack:
        standing: World | None = None
        for case in cases:
            reason = case.missing() if database in case.databases else f"not on {database}"
            if reason is not None:
                print(f"{case.name}: skipped, {reason}\n", flush=True)
                continue
            if case.needs:
                with _world(database, case.name, **case.needs) as world:
                    runs.append(_run(case, world, seed))
                continue
            if standing is None:
                standing = stack.enter_context(_world(database, "standing"))
            runs.append(_run(case, standing, seed))
            if not runs[-1]["holds"]:
                stack.close()
                standing = None
    return runs


def run_seeds(seeds: Sequence[int], database: str, seconds: float) -> list[dict[str, Any]]:
    """The mixed schedule of each seed, in a world of its own."""
    runs = []
    for seed in seeds:
        entries = draw(seed, database, seconds)
        print(f"seed {seed} on {database}:\n" + "\n".join(f"  {entry}" for entry in entries), flush=True)
        with _world(database, f"seed-{seed}") as world:
            scene = Scene(world=world, prefix=f"seed-{seed}", seed=seed)
            began = time.monotonic()
            with _reported(scene), scene.workload(seconds):
                scene.play(entries)
            runs.append(report.facts_of(f"mixed schedule {seed}", scene, time.monotonic() - began))
            print(report.text_of(runs[-1]) + "\n", flush=True)
            _keep_logs(world, f"seed-{database}-{seed}", runs[-1]["holds"])
    return runs


def run_soak(seconds: float, database: str, seed: int) -> list[dict[str, Any]]:
    """Rounds in one world; what grew is in the last one's report."""
    runs = []
    with _world(database, "soak", settings=SETTINGS) as world:
        for scene, wall_s in soak(world, seconds, seed):
            runs.append(report.facts_of(scene.prefix, scene, wall_s))
            print(report.text_of(runs[-1]) + "\n", flush=True)
            _keep_logs(world, f"{scene.prefix}-{database}", runs[-1]["holds"])
    return runs


def _run(case: Case, world: World, seed: int) -> dict[str, Any]:
    scene = Scene(world=world, prefix=case.name, seed=seed, due_bound=case.bound)
    began = time.monotonic()
    with _reported(scene):
        world.heal()
        case.play(scene)
    run = report.facts_of(case.name, scene, time.monotonic() - began, case.expected)
    print(report.text_of(run) + "\n", flush=True)
    _keep_logs(world, f"{case.name}-{world.database}", run["holds"])
    return run


@contextmanager
def _reported(scene: Scene) -> Iterator[None]:
    """What the bench itself could not do is a check that does not hold, not the end of all other runs."""
    try:
        yield
    except (WeftError, OSError, AssertionError) as error:
        traceback.print_exc()
        scene.expect("the bench could do what it wanted", False, f"{type(error).__name__}: {error}"[:500])
        scene.findings = (*scene.findings, *scene.expectations)


@contextmanager
def _world(database: str, name: str, **needs: Any) -> Iterator[World]:
    with (
        tempfile.TemporaryDirectory(prefix=f"weft-faults-{name}-") as folder,
        World(
            database,
            Path(folder),
            **needs,
        ) as world,
    ):
        yield world


def _keep_logs(world: World, name: str, holds: bool) -> None:
    """Of a run that does not hold: the logs of all processes, the ledger and the receipts."""
    if holds:
        return
    kept = OUTPUT / name
    kept.mkdir(parents=True, exist_ok=True)
    for path in (*world.logs.iterdir(), *world.folder.glob("*.jsonl")):
        (kept / path.name).write_bytes(path.read_bytes())


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="*", choices=sorted(ALL), metavar="NAME")
    parser.add_argument("--seed", type=lambda text: [int(text)], dest="seeds", metavar="N")
    parser.add_argument("--seeds", type=_range, metavar="A-B")
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--seconds", type=float, default=MIXED_S, help="length of a mixed schedule (default: 30)")
    parser.add_argument("--seed-of-clients", type=int, default=1, help="what the clients of the named cases do")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="rounds under faults, and what grew meanwhile")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args(arguments)


def _range(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


if __name__ == "__main__":
    sys.exit(main())
