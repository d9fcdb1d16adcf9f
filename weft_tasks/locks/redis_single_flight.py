"""Single-flight in Redis, on redis-py's own Lock (docs/decisions/0001-single-flight-lock.md)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from urllib.parse import quote

from redis import Redis
from redis.lock import Lock

from weft_tasks.errors import InvalidInput, LockUnavailable
from weft_tasks.locks.keeper import Keeper
from weft_tasks.locks.permissions import LockServerCheck, check_lock_server
from weft_tasks.locks.redis_flight import FlightSeconds, RedisFlight
from weft_tasks.locks.server import NO_ANSWER, LockServer, reason_of
from weft_tasks.locks.single_flight import Acquisition, FlightOutcome, Holding
from weft_tasks.locks.times import FlightTimes
from weft_tasks.locks.token import read_token
from weft_tasks.passes.clock import Clock


class RedisSingleFlight:
    """A SingleFlight over one Redis. Opens nothing before it is asked, and starts anew in a forked child.

    Keys are `{key_prefix}weft:{store_id}:{name}`, so deployments with different stores never meet. `clock` only
    times the extensions; it decides no ownership (O2).
    """

    def __init__(self, *, server: LockServer, store_id: str, times: FlightTimes, clock: Clock) -> None:
        self._server = server
        self._answer_within = times.answer_within
        self._seconds = FlightSeconds.of(times)
        self._clock = clock
        self._key_space = f"{server.key_prefix}weft:{_quoted('store id', store_id)}:"
        self._processes: dict[int, _Process] = {}

    def key_of(self, name: str) -> str:
        """The Redis key of a name. Different names have different keys, whatever is in them."""
        return self._key_space + _quoted("lock name", name)

    def acquire(self, name: str, token: str) -> Acquisition:
        """SET NX PX, once, never repeated. A SET that was executed but not answered in time leaves a key that nobody
        keeps: it is gone after one lifetime, and until then it names this process as its holder."""
        process = self._process()
        key = self.key_of(name)
        lock = Lock(process.client, key, timeout=self._seconds.ttl, thread_local=False)
        asked_at = self._clock.monotonic()
        try:
            has_acquired = lock.acquire(blocking=False, token=token)
        except NO_ANSWER as error:
            return Acquisition(outcome=FlightOutcome.UNKNOWN, reason=reason_of(error))
        if not has_acquired:
            return _held_by_another(process.client, key)
        flight = RedisFlight(
            lock,
            times=self._seconds,
            acquired_at=asked_at,
            clock=self._clock,
            let_go=process.keeper.let_go,
        )
        process.keeper.keep(flight)
        return Acquisition(outcome=FlightOutcome.ACQUIRED, flight=flight)

    def holder(self, name: str) -> Holding | None:
        try:
            return _read(self._process().client, self.key_of(name))
        except NO_ANSWER as error:
            raise LockUnavailable(f"who holds {name!r} is unknown: {reason_of(error)}") from error

    def check_permissions(self) -> LockServerCheck:
        """Try out what the locks need: SettingsError names what is not permitted, LockUnavailable what went wrong.

        Its connection is its own and closed again, so it may be called before a fork.
        """
        with self._server.connect(self._answer_within) as client:
            return check_lock_server(client, self._key_space)

    def _process(self) -> _Process:
        """This process's client and keeper, made at first use. No lock is taken: a fork could copy it locked."""
        pid = os.getpid()
        process = self._processes.get(pid)
        if process is None:
            client = self._server.connect(self._answer_within)
            process = self._processes.setdefault(pid, _Process(client=client, keeper=Keeper(self._clock)))
        return process


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """What must not cross a fork: sockets and a thread."""

    client: Redis
    keeper: Keeper


def _held_by_another(client: Redis, key: str) -> Acquisition:
    """Taken it is, that much was answered; who has it may be gone or unreadable a moment later."""
    try:
        return Acquisition(outcome=FlightOutcome.HELD_BY_ANOTHER, held_by=_read(client, key))
    except NO_ANSWER as error:
        return Acquisition(outcome=FlightOutcome.HELD_BY_ANOTHER, reason=reason_of(error))


def _read(client: Redis, key: str) -> Holding | None:
    pipeline = client.pipeline(transaction=False)
    pipeline.get(key)
    pipeline.pttl(key)
    token, milliseconds = pipeline.execute()
    if token is None:
        return None
    expires_in = None if milliseconds == -1 else timedelta(milliseconds=max(0, milliseconds))
    return Holding(holder=read_token(token), expires_in=expires_in)


@lru_cache(maxsize=64)
def _quoted(what: str, text: str) -> str:
    """Injective, and free of the separator: `a:b` + `c` and `a` + `b:c` stay two keys."""
    if not text:
        raise InvalidInput(what, "must not be empty")
    return quote(text, safe="", errors="surrogatepass")
