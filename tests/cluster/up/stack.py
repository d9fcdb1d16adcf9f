"""`make up` in a clone of the repository, and a second terminal beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from weft_tasks.testing.account import Account, popen_arguments
from weft_tasks.testing.ports import free_port
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until

APP = "examples.order.app"
NAMES = ("redis", "engine-1", "engine-2", "maintenance", "beat", "flower", "exporter")
PATIENCE = timedelta(seconds=60)
CLIENT = """
import sys
from examples.order.app import weft
for id, card in zip(sys.argv[1::2], sys.argv[2::2]):
    order = weft.start("order", id, {"sku": "A-7", "amount": 20, "card": card})
    if not id.startswith("parked"):
        order.signal("packed", f"parcel-of-{id}")
for id in sys.argv[1::2]:
    if not id.startswith("parked"):
        print(weft.handle(id).result(timeout=60))
"""


class Stack:
    """The processes of `make up`."""

    def __init__(self, clone: Path, account: Account | None) -> None:
        self.clone, self._account = clone, account
        self.redis_port, self.flower_port, self.exporter_port = free_port(), free_port(), free_port()
        ports = (
            f"REDIS_PORT={self.redis_port}",
            f"FLOWER_PORT={self.flower_port}",
            f"EXPORTER_PORT={self.exporter_port}",
        )
        self.make = LocalProcess(
            # In the environment of the tests, which make must not install anew.
            ["make", "--old-file", f"{sys.prefix}/.installed", "up", f"VENV={sys.prefix}", f"APP={APP}", *ports],
            name="make up",
            log_path=clone.with_suffix(".log"),
            env=self._over(),
            cwd=clone,
            account=account,
        )

    def wait_until_well(self) -> None:
        """Until both engines are live and every pass has run."""
        self.make.wait_for_log("Ctrl-C stops all", PATIENCE)
        wait_until(self._is_well, what="two live engines and four passes", timeout=PATIENCE)

    def interrupt(self) -> None:
        """What a terminal does at Ctrl-C: SIGINT to everybody in the group in its foreground."""
        os.killpg(self.make.pid, signal.SIGINT)

    # -- the second terminal

    def run(self, *command: str) -> str:
        """Run Python, which is told where the broker is; what it prints."""
        ran = subprocess.run(
            [sys.executable, *command],
            cwd=self.clone,
            env={**os.environ, **self._over(), "BROKER_URL": f"redis://127.0.0.1:{self.redis_port}/0"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE.total_seconds(),
            check=True,
            **popen_arguments(self._account),
        )
        return ran.stdout

    def celery(self, *words: str) -> str:
        return self.run("-m", "celery", "-A", APP, *words)

    def order(self, **cards: str) -> str:
        """Place orders, by id the card, and wait until those have ended whose id does not begin with `parked`."""
        return self.run("-c", CLIENT, *(word for id, card in cards.items() for word in (id, card)))

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.celery("weft", "status", "--json"))
        return status

    def run_once(self) -> str:
        """Have a worker do it, as one does in a shell; its result."""
        task_id = self.celery("call", "weft.run_once").strip()
        return wait_until(lambda: self._result_of(task_id), what="the result of weft.run_once", timeout=PATIENCE)

    # -- processes

    def family(self) -> list[psutil.Process]:
        """All that came from `make up`."""
        return [psutil.Process(pid) for pid in self.make.member_pids()]

    def main_process(self, node: str) -> psutil.Process:
        """Of a worker. Its children have its command line."""
        return next(
            process for process in self.family() if _names(process, node) and not _names(process.parent(), node)
        )

    def _is_well(self) -> bool:
        self.make.check_alive()
        status = self.status()
        live = [engine["node"].partition("@")[0] for engine in status["engines"] if engine["status"] == "live"]
        began = [a_pass["pass"] for a_pass in status["passes"] if a_pass["began_ago_s"] is not None]
        return sorted(live) == ["engine-1", "engine-2"] and len(began) >= 4

    def _result_of(self, task_id: str) -> str | None:
        shown = self.celery("result", task_id)
        return shown if "run_once" in shown else None

    def _over(self) -> dict[str, str]:
        return {"HOME": str(self.clone), "EXAMPLE_FOLDER": str(self.clone / "var")}


def _names(process: psutil.Process | None, node: str) -> bool:
    return process is not None and any(argument.startswith(f"{node}@") for argument in process.cmdline())
