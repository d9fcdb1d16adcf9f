"""A Redis of its own for a test."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from weft_tasks.testing.local_server import LocalServer
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.programs import find_redis_server

DUMP = "dump.rdb"
ANSWER_LIMIT = timedelta(seconds=2)


class LocalRedis(LocalServer):
    """A redis-server on 127.0.0.1 that evicts nothing and, by default, keeps everything in memory only.

    What a `kill` leaves: nothing by default; every acknowledged write with `persistent=True` (an append-only file,
    written through at each command). `restart()` keeps the data either way.
    """

    name: ClassVar[str] = "redis"

    def __init__(self, *, persistent: bool = False) -> None:
        super().__init__()
        self._persistent = persistent

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def client(self, database: int = 0) -> redis.Redis:
        """A new client that tries once, and gives up soon when nothing answers."""
        limit = ANSWER_LIMIT.total_seconds()
        return redis.Redis.from_url(
            self.url(database), socket_timeout=limit, socket_connect_timeout=limit, retry=Retry(NoBackoff(), 0)
        )

    def start(self) -> Self:
        """The dump that a restart loaded is removed, so that a later kill does not bring back its old data."""
        super().start()
        (self.folder / DUMP).unlink(missing_ok=True)
        return self

    def _prepare(self) -> None:
        """Redis makes its files itself."""

    def _make_process(self) -> LocalProcess:
        return LocalProcess(
            [
                *(str(find_redis_server()), "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--dir", str(self.folder), "--save", "", "--dbfilename", DUMP, "--maxmemory-policy", "noeviction"),
                *("--appendonly", "yes" if self._persistent else "no", "--appendfsync", "always"),
            ],
            name=self.name,
            log_path=self.folder / "log",
        )

    def _answers(self) -> bool:
        """PING says that it has loaded its data; the process id says that it is this server."""
        try:
            with self.client() as client:
                return bool(client.ping()) and client.info("server")["process_id"] == self.process.pid
        except redis.RedisError:
            return False

    def _stop_keeping_data(self) -> None:
        """SHUTDOWN SAVE writes a dump even when Redis is configured to write none; the next start loads it."""
        if self.is_running and not self._persistent:
            self.resume()
            with self.client() as client:
                client.shutdown(save=True)
        super()._stop_keeping_data()
