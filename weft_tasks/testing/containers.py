"""What pytest-celery asks of a Docker container, answered by a local process."""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from signal import Signals
from typing import Any
from urllib.parse import urlsplit

import celery
from pytest_celery import CeleryTestContainer

from weft_tasks.testing.celery_commands import WorkerProcess
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess


class ProcessContainer(CeleryTestContainer):  # type: ignore[misc]
    """A process under the verbs of a container. The base class's constructor wants Docker, so it is not called."""

    def __init__(self) -> None:
        pass

    @property
    @abstractmethod
    def process(self) -> LocalProcess: ...

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def id(self) -> str:
        return self.process.name

    @property
    def status(self) -> str:
        """Docker's words. A frozen process counts as running, so that pytest-celery agrees to kill it."""
        return "running" if self.process.is_running else "exited"

    def logs(self) -> str:
        """What it wrote since its last start."""
        return self.process.log_text()

    def kill(self, signal: str | int = "SIGKILL") -> None:
        """As for a container: SIGKILL ends everything in it, other signals reach the main process."""
        number = Signals[signal] if isinstance(signal, str) else Signals(signal)
        if number is Signals.SIGKILL:
            self.process.kill()
        else:
            self.process.send_signal(number)

    def reload(self) -> None:
        """Nothing is cached."""

    def remove(self, *args: Any, **kwargs: Any) -> None:
        self.teardown()


class WorkerContainer(ProcessContainer):
    """A `celery worker`."""

    def __init__(self, worker: WorkerProcess) -> None:
        super().__init__()
        self._worker = worker

    @property
    def process(self) -> WorkerProcess:
        return self._worker

    @property
    def id(self) -> str:
        return self._worker.node.partition("@")[2]

    @property
    def celeryconfig(self) -> dict[str, str]:
        return {"hostname": self._worker.node}

    @property
    def ready_prompt(self) -> str:
        return f"{self._worker.node} ready."

    def ready(self) -> bool:
        self._worker.wait_until_ready()
        return True

    def restart(self, timeout: float = 10) -> None:
        """As for a container: SIGTERM, `timeout` seconds, SIGKILL, start."""
        self._worker.restart(timedelta(seconds=timeout))

    def teardown(self) -> None:
        self._worker.stop()

    def worker_name(self) -> str:
        return self._worker.node.partition("@")[0]

    def worker_queue(self) -> str:
        """The first queue of its command line; without any it is Celery's default."""
        return next(iter(self._worker.queues), "celery")

    def version(self) -> str:
        return str(celery.__version__)

    def log_level(self) -> str:
        return "INFO"


class RedisContainer(ProcessContainer):
    """One database of a Redis."""

    def __init__(self, redis: LocalRedis, database: int) -> None:
        super().__init__()
        self.redis, self._database = redis, database

    @property
    def process(self) -> LocalProcess:
        return self.redis.process

    @property
    def celeryconfig(self) -> dict[str, Any]:
        url = self.redis.url(self._database)
        parts = urlsplit(url)
        return {
            "url": url,
            "host_url": url,
            "hostname": parts.hostname,
            "port": parts.port,
            "vhost": str(self._database),
        }

    @property
    def ready_prompt(self) -> str:
        return "Ready to accept connections"

    def ready(self) -> bool:
        """A LocalRedis that was started answers."""
        self.process.check_alive()
        return True

    def restart(self, timeout: float = 10) -> None:
        """Stop and start on the same port, with the data kept."""
        self.redis.restart()

    def teardown(self) -> None:
        """It belongs to whoever started it."""
