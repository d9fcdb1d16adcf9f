"""A PostgreSQL of its own for a test."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from weft_tasks.testing.account import is_open_to_all, plain_account, popen_arguments
from weft_tasks.testing.databases import Databases
from weft_tasks.testing.errors import ProcessDied
from weft_tasks.testing.local_server import LocalServer
from weft_tasks.testing.processes import LocalProcess, tail
from weft_tasks.testing.programs import find_postgres_bin

SUPERUSER = "weft"

IPC_RMID = 0
"""The same number on Linux, macOS and the BSDs."""

SMALL = {
    "max_connections": "200",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    # In its folder instead of /dev/shm, so that a killed server leaves nothing behind.
    "dynamic_shared_memory_type": "mmap",
}

# Not synchronous_commit: without it a killed server loses commits that clients were told of, for 10% more speed.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


class LocalPostgres(LocalServer, Databases):
    """A PostgreSQL on 127.0.0.1, and on a socket in its folder: UTF-8, C locale, no passwords.

    PostgreSQL refuses to run as root; for root it runs as `postgres` or `nobody`. With `durable=False` a commit does
    not wait for the disk: it survives a `kill` of the server all the same, but not the loss of the machine.
    `settings` are laid over the rest, by their names in postgresql.conf.
    """

    name: ClassVar[str] = "postgres"

    def __init__(self, *, durable: bool = True, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(account=plain_account())
        self._settings = {**SMALL, **({} if durable else NOT_DURABLE), **(settings or {})}

    def url(self, dbname: str | None = None) -> str:
        return f"postgresql+psycopg://{SUPERUSER}@127.0.0.1:{self.port}/{dbname or 'postgres'}"

    def stop(self) -> None:
        """A server that was killed left its shared memory segment, which only a later start would have removed."""
        if self._process is not None:
            self._process.stop()
            self._remove_shared_memory()
        super().stop()

    def _prepare(self) -> None:
        """Make the data folder with initdb, which waits for no disk: the data is a test's."""
        done = subprocess.run(
            [
                *(str(self._bin() / "initdb"), "--pgdata", str(self._data), "--username", SUPERUSER),
                *("--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"),
            ],
            cwd=self.folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **popen_arguments(self._account),
        )
        if done.returncode != 0:
            raise ProcessDied("initdb", done.returncode, tail(done.stdout))

    def _make_process(self) -> LocalProcess:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            **self._settings,
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return LocalProcess(
            [str(self._bin() / "postgres"), "-D", str(self._data), *options],
            name=self.name,
            log_path=self.folder / "log",
            cwd=self.folder,
            # The fast shutdown: sessions are ended, and everything is written.
            stop_signal=signal.SIGINT,
            orphan_signal=signal.SIGINT,
            account=self._account,
        )

    def _answers(self) -> bool:
        """Its pid file says so, which is what pg_ctl goes by. A killed server leaves its file: the pid must match."""
        lines = self._pid_file()
        return lines[:1] == [str(self.process.pid)] and lines[-1].strip() == "ready"

    def _pid_file(self) -> list[str]:
        """Process id, folder, start time, port, socket folder, address, shared memory key and id, status."""
        try:
            return (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _remove_shared_memory(self) -> None:
        """A clean stop has removed the segment, and the pid file that names it."""
        for line in self._pid_file()[6:7]:
            ctypes.CDLL(None).shmctl(int(line.split()[1]), IPC_RMID, None)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _bin(self) -> Path:
        """The programs, linked into our folder if the account cannot reach them (a virtualenv below /root)."""
        found = find_postgres_bin()
        if self._account is None or is_open_to_all(found):
            return found
        return _link_installation(found, self.folder / "programs")


def _link_installation(bin_folder: Path, target: Path) -> Path:
    """Link what the programs need, in the same places relative to them; the new folder of the programs."""
    installation, package = bin_folder.parent, bin_folder.parent.parent
    libraries_of_wheel = package.with_name(f"{package.name}.libs")
    linked = target / package.name / installation.name
    if not linked.exists():
        _link_tree(installation, linked)
        if libraries_of_wheel.is_dir():
            _link_tree(libraries_of_wheel, target / libraries_of_wheel.name)
    return linked / bin_folder.name


def _link_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=_link_or_copy, symlinks=True)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target)
