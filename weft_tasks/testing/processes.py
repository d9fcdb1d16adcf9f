"""A local process that a test starts, kills, freezes and starts again, alone or with everything that came from it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Self

from weft_tasks.testing.account import Account, popen_arguments
from weft_tasks.testing.errors import NotStarted, ProcessDied, WaitTimedOut
from weft_tasks.testing.family import Family
from weft_tasks.testing.guardian import guardian
from weft_tasks.testing.waiting import PATIENCE, wait_until

STOP_PATIENCE = timedelta(seconds=10)
"""What a process gets to stop by itself before it is killed."""


class LocalProcess:
    """One command in a session of its own, with its log in a file.

    "The family" is the process, its descendants, and whoever is left of its process group: for a Celery worker the
    pool, for PostgreSQL the backends. `env` is laid over this process's environment. As a context manager it is ready
    at entry and gone at exit. It can be started again after it ended, and appends to the same log.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        name: str,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        ready_line: str | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        orphan_signal: signal.Signals = signal.SIGKILL,
        account: Account | None = None,
    ) -> None:
        """`ready_line`: what its log says once it is ready. `orphan_signal`: what it gets if this process dies."""
        self.argv, self.name, self.log_path = tuple(argv), name, log_path
        self._env, self._cwd, self._account = dict(env or {}), cwd, account
        self._ready_line, self._stop_signal, self._orphan_signal = ready_line, stop_signal, orphan_signal
        self._process: subprocess.Popen[bytes] | None = None
        self._family: Family | None = None
        self._log_start = 0

    def start(self) -> Self:
        """Start the command; what is left of an earlier run is killed first. Does not wait until it is ready."""
        if self.is_running:
            return self
        self._kill_family()
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = self._spawn(log.fileno())
        self._family = Family(self._process.pid)
        guardian().guard(self._process.pid, self._orphan_signal)
        return self

    def wait_until_ready(self, timeout: timedelta = PATIENCE) -> Self:
        """Wait for the ready line, if it has one. Raises ProcessDied or WaitTimedOut."""
        if self._ready_line is not None:
            self.wait_for_log(self._ready_line, timeout)
        return self

    def stop(self, patience: timedelta = STOP_PATIENCE) -> None:
        """Ask the main process to stop, wait, then kill who is left of the family. Harmless when nothing runs."""
        if self.is_running:
            # Noted before it goes: the children of a dead process are found no more once they leave its group.
            self.member_pids()
            self.send_signal(self._stop_signal)
            self.thaw()
            try:
                self.wait(patience)
            except WaitTimedOut:
                self.kill()
        self._kill_family()

    def restart(self, patience: timedelta = STOP_PATIENCE) -> Self:
        """Stop, start, wait until ready."""
        self.stop(patience)
        return self.start().wait_until_ready()

    def __enter__(self) -> Self:
        try:
            return self.start().wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # -- signals -----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL the family, and return when all of it is gone."""
        self._kill_family()

    def kill_main_only(self) -> None:
        """SIGKILL the main process alone, and return when it is gone. What its children do is up to them."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def terminate(self) -> None:
        """SIGTERM to the main process alone, as an init system does. Does not wait."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, signal_number: int) -> None:
        """Send any signal to the main process alone."""
        self._started().send_signal(signal_number)

    def freeze(self) -> None:
        """SIGSTOP the family, and return when all of it stands still: it looks dead now, and does not know."""
        if self._family:
            self._family.freeze()
            wait_until(self._family.is_frozen, what=f"all processes of {self.name} to stand still")

    def thaw(self) -> None:
        if self._family:
            self._family.thaw()

    def freeze_main_only(self) -> None:
        """SIGSTOP the main process alone. Does not wait; it stands still a moment later."""
        self.send_signal(signal.SIGSTOP)

    def thaw_main_only(self) -> None:
        self.send_signal(signal.SIGCONT)

    # -- what there is to see ----------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def is_running(self) -> bool:
        """Whether the main process lives; a frozen one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; the negative signal number if a signal ended it."""
        return self._started().poll()

    def member_pids(self) -> tuple[int, ...]:
        """The living members of the family, the main process first."""
        return self._family.members() if self._family else ()

    def child_pids(self) -> tuple[int, ...]:
        """The living members of the family without the main process."""
        return tuple(member for member in self.member_pids() if member != self.pid)

    def wait(self, timeout: timedelta = PATIENCE) -> int:
        """Wait until the main process has ended; its exit code. Raises WaitTimedOut."""
        try:
            return self._started().wait(timeout.total_seconds())
        except subprocess.TimeoutExpired:
            raise WaitTimedOut(f"the end of {self.name}", timeout) from None

    def log_text(self) -> str:
        """What it wrote since its last start. The log file has the earlier runs as well."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def wait_for_log(self, text: str, timeout: timedelta = PATIENCE) -> None:
        """Wait until it wrote `text` since its last start. Raises ProcessDied or WaitTimedOut."""
        wait_until(lambda: self._has_logged(text), what=f"{text!r} in the log of {self.name}", timeout=timeout)

    def check_alive(self) -> None:
        """Raise ProcessDied, with the end of its log, if the main process has ended."""
        if (exit_code := self.exit_code) is not None:
            raise ProcessDied(self.name, exit_code, tail(self.log_text()))

    # -- private -----------------------------------------------------------------------------------------------------

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.argv,
            env={**os.environ, **self._env},
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **popen_arguments(self._account),
        )

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise NotStarted(self.name)
        return self._process

    def _has_logged(self, text: str) -> bool:
        """The end is looked at before the log: a process may write its last line and end between the two."""
        has_ended = not self.is_running
        found = text in self.log_text()
        if has_ended and not found:
            self.check_alive()
        return found

    def _kill_family(self) -> None:
        """Once all are gone the family is forgotten, because the system may give its pid to somebody else."""
        if self._family is None:
            return
        self._family.kill()
        self.wait()
        wait_until(lambda: not self.member_pids(), what=f"the end of all processes of {self.name}")
        guardian().release(self.pid)
        self._family = None


def tail(text: str, lines: int = 30) -> str:
    """The last lines of a log, for an error message."""
    return "\n".join(text.splitlines()[-lines:])
