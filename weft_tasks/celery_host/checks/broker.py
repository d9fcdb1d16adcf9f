"""The broker and the lock server: whether they answer, what the lock server would drop, and who consumes what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from celery import Celery
from kombu.connection import Connection
from kombu.exceptions import OperationalError

from weft_tasks.celery_host.checks.findings import Finding, error, ok, warning
from weft_tasks.celery_host.names import MAINTENANCE_QUEUE
from weft_tasks.errors import LockUnavailable, SettingsError
from weft_tasks.locks import RedisSingleFlight
from weft_tasks.results import reason_of

if TYPE_CHECKING:
    from weft_tasks.weft import Weft

START_LOCK_SERVER = "start it, or correct weft_redis_url; until then passes run less often, and nothing else fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker that answered: what it consumes, and which tasks it knows. `registered` is None if it did not say."""

    node: str
    queues: frozenset[str]
    registered: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """All that answered, a node name as often as it did, and how many messages wait for maintenance."""

    answered: tuple[Worker, ...]
    maintenance_backlog: int

    def consuming(self, queue: str) -> tuple[Worker, ...]:
        return tuple(worker for worker in self.answered if queue in worker.queues)


class Broker:
    """One connection for all questions, which never waits longer than `patience` for an answer."""

    def __init__(self, app: Celery, patience: timedelta) -> None:
        self._app = app
        self._seconds = patience.total_seconds()
        ours = {
            "socket_timeout": self._seconds,
            "socket_connect_timeout": self._seconds,
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0,
        }
        self._options = {**(app.conf.broker_transport_options or {}), **ours}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if "_connection" in vars(self):
            self._connection.release()

    @cached_property
    def _connection(self) -> Connection:
        connection: Connection = self._app.connection_for_write(transport_options=self._options)
        return connection

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        return (OperationalError, *self._connection.connection_errors, *self._connection.channel_errors)

    def reach(self) -> str:
        """Its address, without the password. Raises one of `errors`, or whatever kombu makes of a URL that it cannot
        read."""
        _ = self._connection.default_channel
        # kombu shows a password where there is none as well.
        has_login = self._connection.userid or self._connection.password
        return str(self._connection.as_uri()) if has_login else str(self._connection.as_uri()).replace(":**@", "")

    def workers(self) -> Workers:
        """Ask every worker what it consumes and knows."""
        consumed = self._ask("active_queues")
        nodes = sorted({node for node, _answer in consumed})
        known = dict(self._ask("registered", destination=nodes, limit=len(consumed))) if nodes else {}
        answered = tuple(
            Worker(
                node=node,
                queues=frozenset(str(queue.get("name")) for queue in answer if isinstance(queue, dict)),
                registered=_names(known.get(node)),
            )
            for node, answer in consumed
        )
        return Workers(answered=answered, maintenance_backlog=self._count(MAINTENANCE_QUEUE))

    def _ask(self, question: str, **options: Any) -> list[tuple[str, Any]]:
        replies = self._app.control.broadcast(
            question, reply=True, timeout=self._seconds, connection=self._connection, **options
        )
        return [(node, answer) for reply in replies or () for node, answer in reply.items() if isinstance(answer, list)]

    def _count(self, queue: str) -> int:
        try:
            return int(self._connection.default_channel.queue_declare(queue, passive=True).message_count)
        except self.errors:
            return 0  # There is no such queue, because nothing is in it.


def check_broker(broker: Broker) -> Finding:
    """Whether it answers."""
    try:
        address = broker.reach()
    except Exception as silent:
        return error(
            "broker",
            f"it does not answer: {reason_of(silent)}",
            "start it, or correct broker_url; CELERY_BROKER_URL or BROKER_URL in the environment go before the setting",
        )
    return ok("broker", f"{address} answers")


def check_lock_server(suite: Weft, *, has_store: bool) -> Iterator[Finding]:
    """Whether it answers, permits the locks, and keeps what it has."""
    if not has_store:
        return  # Its keys carry the id of the store.
    try:
        locks = suite.locks
        checked = locks.check_permissions() if isinstance(locks, RedisSingleFlight) else None
    except LockUnavailable as silent:
        yield error("lock server", str(silent), START_LOCK_SERVER)
        return
    except SettingsError as refused:
        yield error("lock server", str(refused), "set weft_redis_url, or grant its user what is named")
        return
    if checked is None:
        return
    if checked.warnings:
        for text in checked.warnings:
            yield warning(
                "lock server", text, "redis-cli CONFIG SET maxmemory-policy noeviction, and in its redis.conf"
            )
        return
    policy = checked.maxmemory_policy or "unknown (its user may not read it): it must be noeviction"
    yield ok("lock server", f"it answers; maxmemory-policy is {policy}")


def _names(registered: Any) -> frozenset[str] | None:
    """What `registered` answers: task names, each perhaps followed by its options in brackets."""
    if not isinstance(registered, list):
        return None
    return frozenset(str(name).partition(" [")[0] for name in registered)
