"""Run one example: start what it needs as local processes, run its client, print what happens, stop everything.

    python -m examples.run order --database sqlite

That is a Redis, a worker and beat, each the ordinary command. BROKER_URL and DATABASE_URL, if set, name servers to use.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from examples.eventlog.cluster import servers
from weft_tasks.testing.celery_commands import celery_beat, celery_worker
from weft_tasks.testing.ports import free_port
from weft_tasks.testing.processes import LocalProcess

EXAMPLES = ("order", "approval", "fanout", "webshop")
START_PATIENCE = timedelta(seconds=90)
CLIENT_TIME_LIMIT_S = 180
TASK_LINE = re.compile(r"(?P<time>\d\d:\d\d:\d\d),\d+: .*\] examples\.\w+\.app\.(?P<task>\w+)\[[^]]+\]: (?P<said>.*)")
"""What a task's logger writes, as Celery formats it."""


def run(name: str, database: str, folder: Path) -> int:
    """Returns the exit status of the example's client."""
    app = f"examples.{name}.app"
    with ExitStack() as stack:
        at = stack.enter_context(servers(database, folder))
        environment = {**at.environment, "EXAMPLE_FOLDER": str(folder)}
        subprocess.run(_python("celery", "--app", app, "weft", "migrate"), env=_over(environment), check=True)
        worker = celery_worker(
            app,
            node="engine-1@%h",
            concurrency=4,
            log_folder=folder,
            env=environment,
            extra=["--without-gossip", "--without-mingle"],
        )
        processes: list[LocalProcess] = [worker, celery_beat(app, log_folder=folder, env=environment)]
        if name == "webshop":
            environment["WEBSHOP_URL"] = f"http://127.0.0.1:{(port := free_port())}"
            processes.append(_web("examples.webshop.web:web", port, folder, environment))
        stack.callback(_stop, processes)
        for process in processes:
            print(f"$ {_shown(process)}", flush=True)
            process.start()
        for process in processes:
            process.wait_until_ready(START_PATIENCE)
        print(f"$ python -m examples.{name}.client", flush=True)
        client = subprocess.run(
            _python(f"examples.{name}.client"), env=_over(environment), timeout=CLIENT_TIME_LIMIT_S, check=False
        )
        _print_what_tasks_said(worker.log_text())
        return client.returncode


def _web(app: str, port: int, folder: Path, environment: Mapping[str, str]) -> LocalProcess:
    return LocalProcess(
        _python("uvicorn", app, "--port", str(port)),
        name="uvicorn",
        log_path=folder / "uvicorn.log",
        env=environment,
        ready_line="Application startup complete",
    )


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def _over(environment: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **environment}


def _shown(process: LocalProcess) -> str:
    return " ".join(process.argv[2:])


def _print_what_tasks_said(log: str) -> None:
    """The lines that the example's own tasks logged in the worker."""
    said = [match for line in log.splitlines() if (match := TASK_LINE.search(line))]
    if said:
        print("what the tasks did:")
    for line in said:
        print(f"  {line['time']}  {line['task']}: {line['said']}")


def _stop(processes: list[LocalProcess]) -> None:
    """Side by side: a worker takes a second to stop."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(LocalProcess.stop, processes))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.run", description="Run one example.")
    parser.add_argument("name", choices=EXAMPLES)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=f"weft-{asked.name}-") as folder:
        return run(asked.name, asked.database, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
