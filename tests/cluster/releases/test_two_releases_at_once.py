"""A rolling deploy of the suite itself: workers of this release and of the next, side by side on one store.

The next release is this one with a higher version and a migration that adds to the schema, in an own environment.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
from checkout import copy_checkout
from deployment import show_logs
from next_release import REVISION, add_migration

from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until
from weft_tasks.weft import Weft

HERE = Path(__file__).parent
PATIENCE = timedelta(seconds=60)
THIS_VERSION, NEXT_VERSION = version("weft-tasks"), "9.0.0"
QUIET = ("--loglevel", "INFO", "--without-gossip", "--without-mingle")
IDS = tuple(f"permit-{n}" for n in range(8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An environment with one release, and where its processes log."""

    python: Path
    folder: Path
    env: dict[str, str]

    def migrate(self) -> str:
        command = [self.python, "-m", "celery", "-A", "release_app", "weft", "migrate"]
        env = {**os.environ, **self.env}
        return subprocess.run(command, cwd=HERE, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout

    def engine(self, name: str) -> LocalProcess:
        return self.process(name, "worker", "-n", f"{name}@local", "-Q", "celery,weft.turns", "-c", "2", *QUIET)

    def process(self, name: str, *words: str, ready: str = "ready.") -> LocalProcess:
        return LocalProcess(
            [str(self.python), "-m", "celery", "-A", "release_app", *words],
            name=name,
            log_path=self.folder / f"{name}.log",
            env=self.env,
            cwd=HERE,
            ready_line=ready,
        )


class Client:
    """The application as a client of this release, and what the store has."""

    def __init__(self, weft: Weft) -> None:
        self._weft = weft

    def start(self) -> None:
        for id in IDS:
            self._weft.start("permit", id)
        wait_until(lambda: all(map(self.ran_on, IDS)), what="the first turns", timeout=PATIENCE)

    def ran_on(self, id: str) -> list[str]:
        """The release of each of its turns."""
        return list((self._weft.describe(id).state or {}).get("ran on", []))

    def signal_all(self, payload: str = "go on") -> set[str]:
        """Signal every workflow, and wait for its turn; the releases of these turns."""
        turns = {id: len(self.ran_on(id)) for id in IDS}
        for id in IDS:
            self._weft.signal(id, "event", payload)
        for id in IDS:
            wait_until(lambda id=id: len(self.ran_on(id)) > turns[id], what=f"a turn of {id}", timeout=PATIENCE)  # type: ignore[misc]
        return {self.ran_on(id)[-1] for id in IDS}

    def holders(self) -> set[str]:
        """The nodes that hold a claim."""
        nodes = {engine.id: engine.node.partition("@")[0] for engine in self._weft.store.engines.list()}
        with self._weft.store.database.reading() as connection:
            return {
                nodes[engine_id] for (engine_id,) in connection.exec_driver_sql("SELECT engine_id FROM weft_claims")
            }

    def wait_for_holders(self, *nodes: str) -> None:
        wait_until(lambda: self.holders() == set(nodes), what=f"{nodes} to hold everything", timeout=PATIENCE)


@pytest.fixture(scope="module")
def next_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the next release, and for the rest what the tests have."""
    checkout = copy_checkout(tmp_path_factory.mktemp("next"))
    project = checkout / "pyproject.toml"
    project.write_text(project.read_text().replace(f'version = "{THIS_VERSION}"', f'version = "{NEXT_VERSION}"'))
    add_migration(checkout / "weft_tasks" / "store" / "migrations")
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", str(checkout)], check=True)
    (packages,) = environment.glob("lib/*/site-packages")
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture
def env(local_redis: LocalRedis) -> Iterator[dict[str, str]]:
    with LocalPostgres(durable=False) as server:
        url = server.create_database()
        yield {"BROKER_URL": local_redis.url(), "DATABASE_URL": url, "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def client(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Client:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    weft: Weft = runpy.run_path(str(HERE / "release_app.py"))["weft"]
    weft.app.finalize()
    return Client(weft)


@pytest.fixture
def start() -> Iterator[Callable[..., None]]:
    with ExitStack() as stack:

        def start_all(*processes: LocalProcess) -> None:
            for process in processes:
                stack.callback(show_logs, process)
                stack.callback(process.kill)
                process.start()
            for process in processes:
                process.wait_until_ready(PATIENCE)

        yield start_all


def test_workers_of_two_releases_share_a_store_and_take_over_from_each_other(
    next_python: Path, env: dict[str, str], client: Client, start: Callable[..., None], tmp_path: Path
) -> None:
    this = Release(python=Path(sys.executable), folder=tmp_path, env=env)
    next_ = Release(python=next_python, folder=tmp_path, env=env)
    this.migrate()
    old_1, old_2, new = this.engine("old-1"), this.engine("old-2"), next_.engine("new")
    passes = this.process("passes", "worker", "-n", "passes@local", "-Q", "weft.maintenance", *QUIET)
    beat = this.process("beat", "beat", "-S", "celery.beat:Scheduler", "--loglevel", "INFO", ready="beat: Starting")
    start(old_1, old_2, passes, beat)
    client.start()

    # The next release migrates while this one runs, and this one runs on.
    assert f"is at revision {REVISION}" in next_.migrate()
    assert client.signal_all() == {THIS_VERSION}

    # An engine of the next takes over from one of this that stops.
    start(new)
    old_1.stop()
    client.wait_for_holders("old-2", "new")
    assert client.signal_all() == {THIS_VERSION, NEXT_VERSION}

    # It dies, and one of this takes over from it.
    new.kill()
    client.wait_for_holders("old-2")
    assert client.signal_all() == {THIS_VERSION}

    # One of this that has stopped does not come up again; the rollout goes on to its end.
    old_1.start()
    assert old_1.wait(PATIENCE) == 1
    assert f"at revision {REVISION}, which this release" in old_1.log_text()
    start(new)
    old_2.stop()
    client.wait_for_holders("new")
    assert client.signal_all("closed") == {NEXT_VERSION}
