"""Where the locks live: read from the broker's connection, so that lock client and broker can never disagree.

kombu parses the URL and its options; here they are only handed on to redis-py, as kombu's own Redis transport does.
No secret leaves this file in a message or a repr.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kombu.connection import Connection
from kombu.transport.redis import SentinelTransport
from kombu.transport.redis import Transport as RedisTransport
from kombu.utils.imports import symbol_by_name
from kombu.utils.url import url_to_parts
from redis import ConnectionPool, Redis, SSLConnection, UnixDomainSocketConnection
from redis.backoff import NoBackoff
from redis.connection import Connection as TcpConnection
from redis.connection import parse_url
from redis.exceptions import RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from weft_tasks.errors import SettingsError

NO_ANSWER = (RedisError, OSError)
"""What redis-py raises when nothing is known about the lock: silence, a refused port, an error reply."""

_SCHEMES = ("redis", "rediss", "redis+socket", "unix", "sentinel")


def reason_of(error: BaseException) -> str:
    """What the server said or did not say, in one line. Servers echo the arguments of commands they do not know, which
    may be the password of a login: those are cut off."""
    text = str(error).partition(", with args beginning with")[0]
    return f"{type(error).__name__}: {text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockServer:
    """A Redis to hold locks in. Frozen and without a connection: each process makes its own client, after its fork."""

    address: str
    """For people: host, port or path, and database; no user, no password."""

    key_prefix: str
    """The broker's `global_keyprefix`, which every key of the locks carries too."""

    options: Mapping[str, Any] = field(repr=False)
    """Keyword arguments of redis-py's connection, with the secrets among them."""

    sentinel: _Sentinel | None = None

    @classmethod
    def of_broker(cls, broker: str | Connection) -> LockServer:
        """The server that a broker URL or a kombu connection (`app.connection_for_write()`) means. Connects to nothing.

        Of several alternative URLs the first is meant, in every process alike; sentinels are all used. Raises
        SettingsError if the broker is no Redis or the URL cannot be read; the message never quotes the URL.
        """
        if isinstance(broker, str) and broker.startswith("unix://"):
            return _of_unix_url(broker)
        connection = _parsed(broker) if isinstance(broker, str) else broker
        transport = connection.get_transport_cls()
        if not (isinstance(transport, type) and issubclass(transport, RedisTransport)):
            raise _no_redis(connection.transport_cls)
        return _of_connection(connection, transport)

    def connect(self, answer_within: timedelta) -> Redis:
        """A new client without any open connection. It never retries: a repeated SET NX could meet its own key."""
        patience = {
            "socket_timeout": answer_within.total_seconds(),
            "socket_connect_timeout": answer_within.total_seconds(),
            "retry": Retry(NoBackoff(), 0),
        }
        if self.sentinel is not None:
            return self.sentinel.connect({**self.options, **patience}, patience)
        return Redis.from_pool(ConnectionPool(**{**self.options, **patience}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sentinel:
    """The sentinels that know the master of the moment, from kombu's transport options."""

    hosts: tuple[tuple[str, int], ...]
    master_name: str
    min_others: int
    options: Mapping[str, Any] = field(repr=False)

    def connect(self, master: Mapping[str, Any], patience: Mapping[str, Any]) -> Redis:
        manager = Sentinel(
            self.hosts,
            min_other_sentinels=self.min_others,
            sentinel_kwargs={**self.options, **patience},
            **master,
        )
        client: Redis = manager.master_for(self.master_name)
        return client


def _parsed(url: str) -> Connection:
    scheme, separator, _ = url.partition("://")
    if separator and scheme not in _SCHEMES:
        raise _no_redis(scheme)
    try:
        return Connection(url)
    except Exception:
        # No `from`: the parser's own message may quote a password that was not percent-encoded.
        raise SettingsError(
            f"the URL of the lock server cannot be read; it begins with one of {_spelled_out()}, "
            f"and its user and password are percent-encoded"
        ) from None


def _no_redis(kind: object) -> SettingsError:
    return SettingsError(
        f"single-flight locks need a Redis, and this broker is {kind!r}: "
        f"set weft_redis_url, which begins with one of {_spelled_out()}"
    )


def _spelled_out() -> str:
    return ", ".join(f"{scheme}://" for scheme in _SCHEMES)


def _of_unix_url(url: str) -> LockServer:
    """redis-py's spelling, which kombu does not know: `unix://[user:password@]/path?db=1`."""
    try:
        given = parse_url(url)
        database = _database(given.get("db", given.get("virtual_host")))
    except ValueError:
        raise SettingsError("the unix:// URL of the lock server cannot be read") from None
    path = given.get("path", "")
    return LockServer(
        address=f"unix {path} db {database}",
        key_prefix="",
        options={
            "connection_class": UnixDomainSocketConnection,
            "path": path,
            "db": database,
            "username": given.get("username"),
            "password": given.get("password"),
        },
    )


def _of_connection(connection: Connection, transport: type[RedisTransport]) -> LockServer:
    is_sentinel = issubclass(transport, SentinelTransport)
    transport_options: Mapping[str, Any] = connection.transport_options or {}
    key_prefix = transport_options.get("global_keyprefix", "")
    host = connection.hostname or "127.0.0.1"
    if "://" in host:
        return _of_socket(host, connection, key_prefix)
    port = connection.port or transport.default_port
    database = _database_of(connection.virtual_host)
    options = {"host": host, "port": port, "db": database, **_login(connection), **_tls(connection, is_sentinel)}
    address = f"{'sentinel' if is_sentinel else 'redis'} {host}:{port} db {database}"
    if not is_sentinel:
        return LockServer(address=address, key_prefix=key_prefix, options=options)
    del options["host"], options["port"]
    sentinel = _sentinel_of(connection, transport_options, (host, port))
    return LockServer(address=address, key_prefix=key_prefix, options=options, sentinel=sentinel)


def _of_socket(host: str, connection: Connection, key_prefix: str) -> LockServer:
    """kombu's spelling: `redis+socket://[user:password@]/path?virtual_host=1`."""
    parts = url_to_parts(host)
    path = f"/{parts.path or ''}"
    database = _database_of(parts.query.get("virtual_host", connection.virtual_host))
    login = _credentials(parts.query.get("credential_provider") or connection.credential_provider)
    return LockServer(
        address=f"unix {path} db {database}",
        key_prefix=key_prefix,
        options={
            "connection_class": UnixDomainSocketConnection,
            "path": path,
            "db": database,
            **(login or {"username": parts.username, "password": parts.password}),
        },
    )


def _sentinel_of(connection: Connection, transport_options: Mapping[str, Any], fallback: tuple[str, int]) -> _Sentinel:
    master_name = transport_options.get("master_name")
    if not master_name:
        raise SettingsError("a sentinel:// broker needs the transport option 'master_name', and it has none")
    parts = [url_to_parts(url) for url in connection.alt]
    hosts = tuple(
        (part.hostname, part.port or SentinelTransport.default_port) for part in parts if part.scheme == "sentinel"
    )
    return _Sentinel(
        hosts=hosts or (fallback,),
        master_name=master_name,
        min_others=transport_options.get("min_other_sentinels", 0),
        options=transport_options.get("sentinel_kwargs") or {},
    )


def _login(connection: Connection) -> dict[str, Any]:
    return _credentials(connection.credential_provider) or {
        "username": connection.userid,
        "password": connection.password,
    }


def _credentials(provider: Any) -> dict[str, Any]:
    """A credential provider, or the dotted name of its class; it replaces user and password."""
    if not provider:
        return {}
    if isinstance(provider, str):
        provider = symbol_by_name(provider)()
    return {"credential_provider": provider}


def _tls(connection: Connection, is_sentinel: bool) -> dict[str, Any]:
    """As kombu does: only a mapping of redis-py's `ssl_…` arguments turns TLS on; `ssl=True` alone does not."""
    arguments: Any = connection.ssl
    is_on = isinstance(arguments, Mapping) and bool(arguments)
    if is_sentinel:
        kind: type = SentinelManagedSSLConnection if is_on else SentinelManagedConnection
    else:
        kind = SSLConnection if is_on else TcpConnection
    return {**(arguments if is_on else {}), "connection_class": kind}


def _database_of(virtual_host: Any) -> int:
    try:
        return _database(virtual_host)
    except ValueError:
        raise SettingsError(
            "the database in the URL of the lock server is no number; percent-encode user and password"
        ) from None


def _database(virtual_host: Any) -> int:
    if virtual_host in (None, "", "/"):
        return 0
    return int(str(virtual_host).removeprefix("/"))
