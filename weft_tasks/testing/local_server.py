"""What a local Redis and a local PostgreSQL have in common: one process, one port, one temporary folder."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from weft_tasks.testing.account import Account, make_folder
from weft_tasks.testing.errors import NotStarted, ProcessDied
from weft_tasks.testing.guardian import guardian
from weft_tasks.testing.ports import free_port
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until

PORT_TRIES = 3


class LocalServer(ABC):
    """A server of its own for a test. As a context manager it answers at entry, and is gone without trace at exit.

    It keeps its port through kill, pause and restart. It ends with this Python process, however that ends.
    """

    name: ClassVar[str]

    def __init__(self, *, account: Account | None = None) -> None:
        self.port = free_port()
        self._account = account
        self._folder: Path | None = None
        self._process: LocalProcess | None = None

    def start(self) -> Self:
        """Start, or start again after a kill, and return once it answers. Raises ProcessDied with its log's end."""
        if self._folder is not None:
            self._launch()
            return self
        try:
            self._start_anew()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop it, kill it if it takes too long, and remove its folder with all data. Harmless when nothing runs."""
        if self._process is not None:
            self._process.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            guardian().forget(self._folder)
        self._process = self._folder = None

    def kill(self) -> None:
        """SIGKILL all of it. The folder stays, so that `start` finds what a crash would have left."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP all of it: connections stay open and nothing answers."""
        self.process.freeze()

    def resume(self) -> None:
        self.process.thaw()

    def restart(self, *, empty: bool = False) -> None:
        """Stop and start on the same port; with `empty` it comes back without any data."""
        if empty:
            self.stop()
        else:
            self._stop_keeping_data()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def process(self) -> LocalProcess:
        if self._process is None:
            raise NotStarted(self.name)
        return self._process

    @property
    def folder(self) -> Path:
        """Its data and its log, until it is stopped."""
        if self._folder is None:
            raise NotStarted(self.name)
        return self._folder

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    # -- what a kind of server defines -------------------------------------------------------------------------------

    @abstractmethod
    def _prepare(self) -> None:
        """Make what the first start needs inside the empty folder."""

    @abstractmethod
    def _make_process(self) -> LocalProcess:
        """The server's command."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether this very server, not another one on its port, serves."""

    def _stop_keeping_data(self) -> None:
        """A clean stop after which `start` finds the data."""
        self.process.stop()

    # -- private -----------------------------------------------------------------------------------------------------

    def _start_anew(self) -> None:
        self._folder = make_folder(f"weft-{self.name}-", self._account)
        guardian().keep(self._folder)
        self._prepare()
        for _ in range(PORT_TRIES - 1):
            try:
                return self._launch()
            except ProcessDied:
                if not self._lost_its_port():
                    raise
                self.port = free_port()
        return self._launch()

    def _launch(self) -> None:
        if not self.is_running:
            self._process = self._make_process().start()
            wait_until(self._is_up, what=f"an answer of {self.name}")

    def _is_up(self) -> bool:
        self.process.check_alive()
        return self._answers()

    def _lost_its_port(self) -> bool:
        """Somebody else took the port between the look and the start."""
        return "Address already in use" in self.process.log_text()
