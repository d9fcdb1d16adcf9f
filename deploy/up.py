"""Run the Procfile until Ctrl-C: Redis, two engines, maintenance, beat, Flower and the exporter as local processes.

    python -m deploy.up --app examples.order.app

BROKER_URL and DATABASE_URL, if set, name servers to use; else Redis is ours and the store is an SQLite file here. Any
runner of Procfiles will do instead, after `weft migrate`. This one tells only the main process of a worker to stop, so
that its pool ends its turns; it stops Redis last; and it stays when a process ends, so that you see what comes of it.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from weft_tasks.errors import WeftError
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.programs import find_redis_server
from weft_tasks.testing.waiting import wait_until

PROCFILE = Path("Procfile")
PROCFILE_LINE = re.compile(r"^(?P<name>[A-Za-z0-9_-]+):\s*(?P<command>.+)$", re.MULTILINE)
FOLDER = Path("var/up")
"""Logs, and what Redis keeps."""
REDIS = "redis"
LOOK_S = 0.1
STOP_PATIENCE = timedelta(seconds=30)
"""How long the turns and tasks that run get to end."""
COLOURS = (36, 33, 32, 35, 34, 31)


class Refused(WeftError):
    """Why nothing was started, in one line."""


class Output:
    """Prints lines behind the name of who wrote them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._width = max(map(len, names))
        self._colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(names)} if sys.stdout.isatty() else {}

    def write(self, name: str, line: str) -> None:
        prefix = f"{name.ljust(self._width)} |"
        if name in self._colours:
            prefix = f"\033[{self._colours[name]}m{prefix}\033[0m"
        print(f"{prefix} {line}", flush=True)


class Shown:
    """A process whose log is printed as it grows."""

    def __init__(self, process: LocalProcess, output: Output) -> None:
        self.process, self._output = process, output
        self._printed = 0
        self._has_ended = False

    def start(self) -> None:
        self.process.log_path.unlink(missing_ok=True)
        self.process.start()

    def show(self) -> None:
        """Print the lines since the last look, and once how it ended."""
        has_ended = not self.process.is_running
        *lines, _unfinished = self._unread().split(b"\n")
        for line in lines:
            self._printed += len(line) + 1
            self._output.write(self.process.name, line.decode(errors="replace"))
        if has_ended and not self._has_ended:
            self._has_ended = True
            self._output.write("up", f"{self.process.name} has ended, {_ending(self.process.exit_code)}")

    def _unread(self) -> bytes:
        with self.process.log_path.open("rb") as log:
            log.seek(self._printed)
            return log.read()


class Up:
    """The processes of a Procfile. Redis answers before the others start, and stops after they have."""

    def __init__(self, commands: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._output = Output(("up", *commands))
        self._all = [Shown(self._process(name, command), self._output) for name, command in commands.items()]
        self._started: list[Shown] = []
        self._interrupts = 0

    def run(self) -> int:
        """Returns the exit status: 0 after Ctrl-C, 1 if something could not be started or nothing is left."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)
        servers = [shown for shown in self._all if shown.process.name == REDIS]
        others = [shown for shown in self._all if shown not in servers]
        try:
            self._start(servers)
            self._migrate()
            self._start(others)
            self._output.write(
                "up", f"started {', '.join(shown.process.name for shown in self._all)}. Ctrl-C stops all"
            )
            while not self._interrupts and any(shown.process.is_running for shown in others):
                self._look()
            return 0 if self._interrupts else 1
        except WeftError as error:
            self._output.write("up", str(error))
            return 1
        finally:
            self._stop(others)
            self._stop(servers)
            self._output.write("up", "all have stopped")

    def _process(self, name: str, command: str) -> LocalProcess:
        return LocalProcess(
            ["sh", "-c", f"exec {command}"], name=name, log_path=FOLDER / f"{name}.log", env=self._environment
        )

    def _start(self, several: Sequence[Shown]) -> None:
        for shown in several:
            shown.start()
            self._started.append(shown)
            if shown.process.name == REDIS:
                self._wait_for_redis(shown.process)

    def _wait_for_redis(self, process: LocalProcess) -> None:
        wait_until(lambda: self._answers(process), what="an answer of Redis")

    def _answers(self, process: LocalProcess) -> bool:
        """Whether it is this Redis that answers."""
        process.check_alive()
        try:
            with redis.Redis.from_url(self._environment["BROKER_URL"], retry=Retry(NoBackoff(), 0)) as client:
                return bool(client.info("server")["process_id"] == process.pid)
        except redis.RedisError:
            return False

    def _migrate(self) -> None:
        command = ["celery", "-A", self._environment["APP"], "weft", "migrate"]
        ran = subprocess.run(
            command,
            env={**os.environ, **self._environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        for line in ran.stdout.splitlines():
            self._output.write("up", line)
        if ran.returncode:
            raise Refused(f"`{' '.join(command)}` failed, so nothing else was started")

    def _look(self) -> None:
        for shown in self._started:
            shown.show()
        time.sleep(LOOK_S)

    def _stop(self, several: Sequence[Shown]) -> None:
        """SIGTERM to each main process; SIGKILL to whole families after the patience, or with the second Ctrl-C."""
        asked = [shown for shown in several if shown in self._started]
        interrupts, deadline = self._interrupts, time.monotonic() + STOP_PATIENCE.total_seconds()
        for shown in asked:
            if shown.process.is_running:
                shown.process.terminate()
        while any(shown.process.is_running for shown in asked):
            if self._interrupts > interrupts or time.monotonic() > deadline:
                self._output.write("up", "killing who is left")
                break
            self._look()
        for shown in asked:
            shown.process.kill()
            shown.show()

    def _note(self, _number: int, _frame: object) -> None:
        """Only counted: whoever is interrupted may hold a lock."""
        self._interrupts += 1


def commands_of(procfile: str) -> dict[str, str]:
    """The command of each process, by its name."""
    return {found["name"]: found["command"] for found in PROCFILE_LINE.finditer(procfile)}


def up(app: str, *, redis_port: int, flower_port: int, exporter_port: int) -> int:
    """Run the Procfile of the working directory. Raises Refused or ProgramNotFound."""
    commands = commands_of(PROCFILE.read_text(encoding="utf-8"))
    programs = [str(Path(sys.executable).parent)]
    ports = {"REDIS_PORT": redis_port, "FLOWER_PORT": flower_port, "EXPORTER_PORT": exporter_port}
    environment = {"APP": app, "PYTHONUNBUFFERED": "1", **{name: str(port) for name, port in ports.items()}}
    if "BROKER_URL" in os.environ:
        environment["BROKER_URL"] = os.environ["BROKER_URL"]
        del commands[REDIS]
    else:
        programs.append(str(find_redis_server().parent))
        _refuse_if_taken(redis_port, "REDIS_PORT", f"BROKER_URL=redis://127.0.0.1:{redis_port}/0 uses the Redis there")
        environment["BROKER_URL"] = f"redis://127.0.0.1:{redis_port}/0"
    _refuse_if_taken(flower_port, "FLOWER_PORT", "another `make up` may run")
    _refuse_if_taken(exporter_port, "EXPORTER_PORT", "another `make up` may run")
    os.environ["PATH"] = os.pathsep.join([*programs, os.environ["PATH"]])
    FOLDER.mkdir(parents=True, exist_ok=True)
    return Up(commands, environment).run()


def _refuse_if_taken(port: int, variable: str, remedy: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise Refused(f"port {port} of 127.0.0.1 is taken: {variable}=NUMBER takes another; {remedy}") from None


def _ending(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"exit status {exit_code}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.up", description="Run the Procfile until Ctrl-C.")
    parser.add_argument("--app", default="weft_tasks", help="the Celery application (default: weft_tasks)")
    parser.add_argument("--redis-port", type=int, default=6379)
    parser.add_argument("--flower-port", type=int, default=5555)
    parser.add_argument("--exporter-port", type=int, default=9808)
    asked = parser.parse_args()
    try:
        ports = {"redis_port": asked.redis_port, "flower_port": asked.flower_port, "exporter_port": asked.exporter_port}
        return up(asked.app, **ports)
    except WeftError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
