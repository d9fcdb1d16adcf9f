"""A process and all that came from it: list it, freeze it, thaw it, kill it.

Run as a script this file is the guardian: it ends the families of a process that died without ending them itself.
`guardian.py` starts it; it imports nothing of the package, so that it starts in a few hundredths of a second.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator

import psutil

GONE = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


class Family:
    """A process, its descendants, and its process group, which must bear the process's own id.

    Both relations are needed. PostgreSQL's backends leave the process group of their parent; the children of a
    dead parent are nobody's descendants any more. Whoever was seen once is remembered.
    """

    def __init__(self, pid: int) -> None:
        self._head = psutil.Process(pid)
        self._seen = {self._head: None}

    def members(self) -> tuple[int, ...]:
        """The living ones, the head first. Zombies do not count."""
        self._forget_the_dead()
        everybody = {process: _parent_and_group(process) for process in psutil.process_iter()}
        while newcomers := [process for process, kin in everybody.items() if self._is_newcomer(process, kin)]:
            self._seen.update(dict.fromkeys(newcomers))
        self._forget_the_dead()
        return tuple(process.pid for process in self._seen)

    def freeze(self) -> None:
        """SIGSTOP everybody, the head before the others, and look again until nobody new has turned up."""
        frozen: set[int] = set()
        while awake := [pid for pid in self.members() if pid not in frozen]:
            for pid in awake:
                send(pid, signal.SIGSTOP)
            frozen.update(awake)

    def is_frozen(self) -> bool:
        """Whether all have stopped, which takes each a moment after its signal."""
        return all(_status(process) in (psutil.STATUS_STOPPED, *GONE) for process in self._seen)

    def thaw(self) -> None:
        for pid in self.members():
            send(pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL everybody. They are frozen first, so that nobody forks or notices a death in the meantime."""
        self.freeze()
        for pid in self.members():
            send(pid, signal.SIGKILL)

    def _forget_the_dead(self) -> None:
        self._seen = {process: None for process in self._seen if _is_alive(process)}

    def _is_newcomer(self, process: psutil.Process, kin: tuple[int, int]) -> bool:
        parent, group = kin
        is_kin = parent in {seen.pid for seen in self._seen} or (group == self._head.pid and self._owns_its_pid())
        return is_kin and process not in self._seen

    def _owns_its_pid(self) -> bool:
        """While anybody is left in its group the system gives the head's pid to nobody; afterwards it may."""
        return self._head.is_running() or not psutil.pid_exists(self._head.pid)


def send(pid: int, signal_number: int) -> None:
    """Send a signal to one process; one that is gone already is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal_number)


def _parent_and_group(process: psutil.Process) -> tuple[int, int]:
    """Zeros for a process that is gone, which nobody's family has."""
    try:
        return process.ppid(), os.getpgid(process.pid)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return 0, 0


def _is_alive(process: psutil.Process) -> bool:
    """A pid that the system has given to somebody else since is not alive."""
    return process.is_running() and _status(process) not in GONE


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)


# -- the guardian ----------------------------------------------------------------------------------------------------

GRACE_SECONDS = 5.0


def guard(parent: int) -> None:
    """Obey the parent's orders until its pipe closes or it is gone; then end what it left, and remove its folders."""
    families: dict[str, tuple[Family, int]] = {}
    folders: set[str] = set()
    for verb, subject, *rest in _orders(parent):
        match verb:
            case "guard":
                with contextlib.suppress(psutil.NoSuchProcess):
                    families[subject] = Family(int(subject)), int(rest[0])
            case "release":
                families.pop(subject, None)
            case "keep":
                folders.add(subject)
            case "forget":
                folders.discard(subject)
    _end(list(families.values()))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _orders(parent: int) -> Iterator[list[str]]:
    """One order a line, its words parted by tabs, until the pipe closes.

    A forked child of the parent may hold the pipe open, so it is over too when the parent is gone and all is read.
    """
    buffer = b""
    while True:
        parent_lives = os.getppid() == parent
        if select.select([0], [], [], 1.0 if parent_lives else 0.0)[0]:
            chunk = os.read(0, 65536)
            *lines, buffer = (buffer + chunk).split(b"\n")
            yield from (line.decode().split("\t") for line in lines)
            if not chunk:
                return
        elif not parent_lives:
            return


def _end(families: list[tuple[Family, int]]) -> None:
    """Give the head of each family its last signal, and the family a moment; kill who is still there."""
    for family, last_signal in families:
        _begin_the_end(family, last_signal)
    deadline = time.monotonic() + GRACE_SECONDS
    while any(family.members() for family, _ in families) and time.monotonic() < deadline:
        time.sleep(0.02)
    for family, _ in families:
        family.kill()


def _begin_the_end(family: Family, last_signal: int) -> None:
    if last_signal == signal.SIGKILL:
        family.kill()
        return
    for head in family.members()[:1]:
        send(head, last_signal)
    family.thaw()


if __name__ == "__main__":
    guard(int(sys.argv[1]))
