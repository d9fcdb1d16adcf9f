"""The commands of deploy/, run: migration, engine, maintenance, beat, exporter and Flower of each kind, side by
side as there, on local servers. The probes say what they should of the engine that runs, and that has stopped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from checkout import ROOT
from deployment import show_logs
from manifests import Command, all_commands

from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.ports import free_port
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until

PATIENCE = timedelta(seconds=60)
READY = {
    "worker": "ready.",
    "beat": "beat: Starting",
    "exporter": "/metrics",
    "flower": "Visit me at",
}
"""By a word of the command, what its log says in the end."""


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """What the Secret, the env file and compose tell."""
    with LocalRedis() as redis, LocalPostgres(durable=False) as postgres:
        yield {"BROKER_URL": redis.url(), "DATABASE_URL": postgres.create_database()}


@pytest.mark.parametrize("source", ["systemd", "kubernetes", "compose"])
def test_the_commands_run_side_by_side_and_stop(source: str, addresses: dict[str, str], tmp_path: Path) -> None:
    commands = all_commands()[source]
    migrations = [command for command in commands if command.words[-1] == "migrate"]
    with ExitStack() as stack:
        for command in migrations:
            subprocess.run(argv(command), cwd=ROOT, env={**os.environ, **addresses}, check=True)
        running = [process(command, addresses, tmp_path) for command in commands if command not in migrations]
        for each in running:
            stack.callback(show_logs, each)
            stack.callback(each.kill)
            each.start()
        for each in running:
            each.wait_until_ready(PATIENCE)
        wait_until(lambda: pass_has_run(addresses["DATABASE_URL"]), what="a pass", timeout=PATIENCE)
        for command in commands:
            for name in command.probes:
                wait_for_probe(command, name, tmp_path)
        for each in running:
            each.terminate()
        for each in running:
            assert each.wait(PATIENCE) == 0, each.name
        for command in commands:
            assert not any(answers(probe, tmp_path) for probe in command.probes.values())


def wait_for_probe(command: Command, name: str, folder: Path) -> None:
    wait_until(lambda: answers(command.probes[name], folder), what=f"the {name} of {command.name}")


def process(command: Command, addresses: dict[str, str], folder: Path) -> LocalProcess:
    environment = {name: placed(value, folder) for name, value in command.environment.items()}
    (ready,) = (line for word, line in READY.items() if word in command.words)
    return LocalProcess(
        argv(command),
        name=f"{command.source} {command.name}",
        log_path=folder / f"{command.name}.log",
        env={**addresses, **environment, "PYTHONUNBUFFERED": "1"},
        cwd=ROOT,
        ready_line=ready,
    )


def argv(command: Command) -> list[str]:
    """As it stands, but for the ports, which may be taken here, and passwords, which are not in the files."""
    port = free_port()
    replaced = {"9808": f"{port}", "--port=5555": f"--port={port}", "--basic-auth=ops:": "--basic-auth=ops:secret"}
    words = [replaced.get(word, word) for word in command.words]
    return [str(Path(sys.executable).with_name("celery")), *words]


def answers(probe: tuple[str, ...], folder: Path) -> bool:
    words = [placed(word, folder) for word in probe]
    return subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode == 0


def placed(text: str, folder: Path) -> str:
    """The folders of the files for probes, which here are below the test's."""
    for there in ("/run/weft", "/tmp/weft"):
        text = text.replace(there, f"{folder}/run-weft")
    return text


def pass_has_run(database_url: str) -> bool:
    store = Store.open(Settings(database_url=database_url))
    try:
        return any(mark.result is not None for mark in store.pass_marks.read_all().values())
    finally:
        store.database.dispose()
