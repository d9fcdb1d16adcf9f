"""A deployment of which any worker may kill itself at an armed moment."""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import moments_app
from deployment import HERE as SUITE
from deployment import Deployment

from weft_tasks.testing.celery_commands import WorkerProcess
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until
from weft_tasks.weft import Weft

DATABASES = ("postgresql", "sqlite")
PATHS = (Path(__file__).parent, SUITE)
LONG = timedelta(seconds=60)
"""Far longer than a takeover takes, for a busy machine."""
CANCEL_BOUND = timedelta(seconds=15)
SETTINGS = {
    "weft_begun_turn_limit": 3,
    "weft_cancel_bound": CANCEL_BOUND.total_seconds(),
    # A killed worker can take a message along that Redis has handed over and kombu not yet noted.
    "weft_call_resend_after": 10,
    # So that an activity whose worker was killed is redelivered within the test.
    "broker_transport_options": {
        "socket_timeout": 10,
        "socket_connect_timeout": 3,
        "visibility_timeout": 8,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
}


class WorstDeployment(Deployment):
    """A deployment of `moments_app`, and its cluster."""

    app = "moments_app"
    paths = PATHS

    def __init__(self, *, env: dict[str, str], folder: Path) -> None:
        super().__init__(env={**env, "WORST_FOLDER": str(folder)}, folder=folder, celery=SETTINGS)
        self.workers: dict[str, WorkerProcess] = {}
        self.ends: dict[int, int | None] = {}
        """By process id, the exit codes of workers that died."""

    def client(self, script: str, *arguments: str) -> LocalProcess:
        """A client in a process of its own, to be killed by itself."""
        return LocalProcess(
            [sys.executable, str(Path(__file__).parent / script), *arguments],
            name=script,
            log_path=self.folder / f"{script}.log",
            env={**self.env, "PYTHONPATH": os.pathsep.join([*map(str, PATHS), os.environ.get("PYTHONPATH", "")])},
        )

    @cached_property
    def weft(self) -> Weft:
        weft = moments_app.build(self.env)
        weft.app.finalize()
        return weft

    # -- deaths

    def arm(self, moment: str, id: str) -> Path:
        return moments_app.arm(self.folder, moment, id)

    def wait_for_the_kill(self, fired: Path) -> None:
        """Wait until a worker killed itself at an armed moment, pool and all; it is started again."""
        wait_until(fired.exists, what=f"the kill {fired.name}", timeout=LONG)
        group = int(fired.read_text())
        wait_until(lambda: self._has_ended(group), what=f"the end of worker {group}")
        assert self.ends[group] == -signal.SIGKILL

    def _has_ended(self, pid: int) -> bool:
        self.revive()
        return pid in self.ends

    def revive(self) -> None:
        """Start again what has died, and remember how it died."""
        for worker in self.workers.values():
            if not worker.is_running:
                self.ends[worker.pid] = worker.exit_code
                worker.start()

    def wait_until_well(self) -> None:
        """Every worker is ready, and its engine is the live one of its node."""
        self.revive()
        for worker in self.workers.values():
            worker.wait_until_ready(LONG)
        wait_until(lambda: all(self._is_well(node) for node in ("e1", "e2")), what="two live engines", timeout=LONG)

    def _is_well(self, node: str) -> bool:
        engines = [engine for engine in self.engines(node) if engine.status == "live"]
        return len(engines) == 1 and engines[0].silence_ms < 1500 and not engines[0].is_deaf

    def node_of(self, id: str) -> str | None:
        """The node of the engine that holds a workflow."""
        holder = self.weft.describe(id).engine_id
        return next((node for node in ("e1", "e2") if self.engine(node).id == holder), None)

    def wait_until_none(self, statement: str, **parameters: Any) -> None:
        wait_until(lambda: not self.query(statement, **parameters), what=f"nothing left of {statement}", timeout=LONG)

    def wait_for_the_kills(self, *fired: Path) -> None:
        """Wait for several, in whatever order they come."""
        for one in fired:
            self.wait_for_the_kill(one)

    def effects(self, id: str) -> list[str]:
        path = self.folder / f"effects-of-{id}"
        return path.read_text().split() if path.exists() else []
