"""10,000 signals and 2,000 updates, from 8 client processes to 500 workflows, on 3 engines of which one is killed with
SIGKILL every 5 seconds: each must be consumed once, in order per workflow and name, and each update answered once.

python -m benchmarks.exactly_once [--signals N] [--updates N] [--workflows N] [--clients N] [--database postgres|sqlite]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from weft_tasks.testing.celery_commands import WorkerProcess, celery_beat, celery_worker
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess

APP = "benchmarks.exactly_once.app"
ENGINES = ("engine-1", "engine-2", "engine-3")
REPORT = Path("var/benchmarks/exactly_once.json")
LONGEST_S = 600


def main() -> int:
    options = _options()
    report = run(options)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    print(f"written to {REPORT}")
    return 0 if report["passed"] else 1


def run(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-bench-")))
        environment = stack.enter_context(_servers(options.database, folder))
        os.environ.update(environment)
        from benchmarks.exactly_once.app import weft

        weft.migrate()
        engines = [_worker(name, "weft.turns", folder, environment) for name in ENGINES]
        others = [_worker("maintenance", "weft.maintenance", folder, environment)]
        for process in (*engines, *others, celery_beat(APP, log_folder=folder, env=environment)):
            stack.callback(process.stop)
            process.start()
        for process in (*engines, *others):
            process.wait_until_ready()
        for number in range(options.workflows):
            weft.start("collector", f"w{number}")
        began = time.monotonic()
        clients = [stack.enter_context(_client(n, options, folder, environment)) for n in range(options.clients)]
        kills = _kill_while(clients, engines, options.kill_every)
        sent_s = time.monotonic() - began
        for client in clients:
            if client.exit_code != 0:
                raise RuntimeError(f"{client.name} failed:\n{client.log_text()[-2000:]}")
        _finish(weft, options.workflows)
        report = _verdict(weft, folder, options)
        return {
            **report,
            "engines_killed": kills,
            "database": options.database,
            "seed": options.seed,
            "clients_done_s": round(sent_s, 1),
            "wall_s": round(time.monotonic() - began, 1),
            "takeovers": len(weft.store.history.list(event="taken-over", limit=1_000_000)),
            "commits_refused": len(weft.store.history.list(event="commit-refused", limit=1_000_000)),
        }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--signals", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=2_000)
    parser.add_argument("--workflows", type=int, default=500)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kill-every", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


@contextmanager
def _servers(database: str, folder: Path) -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        redis = stack.enter_context(LocalRedis())
        url = f"sqlite:///{folder}/weft.sqlite3"
        if database == "postgres":
            url = stack.enter_context(LocalPostgres()).create_database()
        yield {"BROKER_URL": redis.url(), "DATABASE_URL": url}


def _worker(name: str, queue: str, folder: Path, environment: dict[str, str]) -> WorkerProcess:
    return celery_worker(
        APP,
        node=f"{name}@%h",
        queues=[queue],
        concurrency=2,
        log_folder=folder,
        env={**os.environ, **environment},
        extra=["--without-gossip", "--without-mingle", "--loglevel", "INFO"],
    )


def _client(number: int, options: argparse.Namespace, folder: Path, environment: dict[str, str]) -> LocalProcess:
    share = [str(total // options.clients) for total in (options.signals, options.updates)]
    return LocalProcess(
        [
            *(sys.executable, "-m", "benchmarks.exactly_once.client"),
            *(str(number), str(options.seed), str(options.workflows), *share),
            str(folder / f"client-{number}.jsonl"),
        ],
        name=f"client {number}",
        log_path=folder / f"client-{number}.log",
        env={**os.environ, **environment},
    )


def _kill_while(clients: list[LocalProcess], engines: list[WorkerProcess], every: float) -> int:
    """Kill one engine after the other, pool and all, and start it again under its name, until the clients are done."""
    end = time.monotonic() + LONGEST_S
    kills = 0
    for engine in itertools.cycle(engines):
        due = time.monotonic() + every
        while time.monotonic() < due:
            if not any(client.is_running for client in clients):
                return kills
            if time.monotonic() > end:
                raise TimeoutError(f"the clients were not done after {LONGEST_S} s")
            time.sleep(0.1)
        engine.kill()
        engine.start()
        kills += 1
    return kills


def _finish(weft: Any, workflows: int) -> None:
    for number in range(workflows):
        weft.signal(f"w{number}", "finish", key="finish")
    for number in range(workflows):
        weft.handle(f"w{number}").result(timeout=timedelta(minutes=2).total_seconds())


def _verdict(weft: Any, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Hold what the clients were told against what the workflows committed."""
    signals: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    answers: dict[str, dict[str, int]] = defaultdict(dict)
    for path in folder.glob("client-*.jsonl"):
        for line in path.read_text().splitlines():
            facts = json.loads(line)
            if facts["kind"] == "signal":
                signals[facts["workflow"], facts["name"]].append((facts["number"], facts["key"]))
            else:
                answers[facts["workflow"]][facts["key"]] = facts["answer"]
    accepted = sum(len(sent) for sent in signals.values())
    answered = sum(len(given) for given in answers.values())
    out_of_order = lost = doubled = wrong_answers = 0
    for number in range(options.workflows):
        state = weft.describe(f"w{number}").state
        for name in ("a", "b"):
            told = [key for _number, key in sorted(signals[f"w{number}", name])]
            got = state.get(name, [])
            lost += len(set(told) - set(got))
            doubled += len(got) - len(set(got))
            out_of_order += told != got
        added = state.get("added", [])
        given = answers[f"w{number}"]
        doubled += len(added) - len(set(added))
        wrong_answers += sum(1 for key, answer in given.items() if added[answer - 1 : answer] != [key])
        wrong_answers += len(set(added) ^ set(given))
    expected = (
        options.signals // options.clients * options.clients,
        options.updates // options.clients * options.clients,
    )
    passed = (accepted, answered) == expected and not (lost or doubled or out_of_order or wrong_answers)
    return {
        "passed": passed,
        "signals_accepted": accepted,
        "updates_answered": answered,
        "lost": lost,
        "doubled": doubled,
        "sequences_out_of_order": out_of_order,
        "wrong_answers": wrong_answers,
    }


if __name__ == "__main__":
    sys.exit(main())
