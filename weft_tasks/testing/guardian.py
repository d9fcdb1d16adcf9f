"""Nothing outlives the Python process that started it, however that process ends.

One small guardian process for each Python process that starts others. It reads a pipe that closes when its parent
dies, by `kill -9` too, and ends what is left. PR_SET_PDEATHSIG was not taken: it needs Python code between fork and
exec (a deadlock when threads run), fires when the starting *thread* ends, and reaches one process instead of a family.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import subprocess
import sys
from pathlib import Path

from weft_tasks.testing import family

LAST_WAIT_SECONDS = 2 * family.GRACE_SECONDS


def guardian() -> Guardian:
    """The guardian of this Python process; a forked child gets its own."""
    return _guardian_of(os.getpid())


class Guardian:
    """Told about processes and folders, it ends and removes those that are left when this process ends."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        orders, self._pipe = os.pipe()
        self._process = subprocess.Popen(
            # -P: the script's own folder is no place to import from, it has modules with common names.
            [sys.executable, "-P", str(Path(family.__file__)), str(self._owner)],
            stdin=orders,
            stdout=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        os.close(orders)
        atexit.register(self._dismiss)

    def guard(self, pid: int, last_signal: int) -> None:
        """Send `last_signal` at the end, and SIGKILL to the whole family a moment later, unless released before."""
        self._tell("guard", pid, last_signal)

    def release(self, pid: int) -> None:
        self._tell("release", pid)

    def keep(self, folder: Path) -> None:
        """Remove `folder` at the end, unless it is forgotten before."""
        self._tell("keep", folder)

    def forget(self, folder: Path) -> None:
        self._tell("forget", folder)

    def _tell(self, *words: object) -> None:
        """A dead guardian is no reason to fail: it only covers an abnormal end of this process."""
        line = "\t".join(map(str, words)) + "\n"
        with contextlib.suppress(OSError):
            os.write(self._pipe, line.encode())

    def _dismiss(self) -> None:
        """At exit: let it do its work now, so that nothing is left when this process is gone."""
        if os.getpid() != self._owner:
            return
        os.close(self._pipe)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_WAIT_SECONDS)


@functools.cache
def _guardian_of(pid: int) -> Guardian:
    return Guardian()
