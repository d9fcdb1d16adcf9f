"""Lock client and broker mean the same server, whatever the URL looks like; and no secret shows."""

from __future__ import annotations

import re
import ssl
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
import redis.exceptions
from kombu.connection import Connection
from kombu.transport.redis import Channel, SentinelChannel
from redis import CredentialProvider, Redis, UnixDomainSocketConnection

from weft_tasks.errors import InvalidInput, SettingsError
from weft_tasks.locks import FlightTimes, LockServer, RedisSingleFlight
from weft_tasks.locks.server import reason_of
from weft_tasks.passes.clock import SystemClock

TIMES = FlightTimes(lock_ttl=timedelta(seconds=3), pass_deadline=timedelta(seconds=3))
SECRET = "s#e%c@r:e/t?&+ "
CODED = quote(SECRET, safe="")
TLS = {
    "ssl_cert_reqs": ssl.CERT_REQUIRED,
    "ssl_ca_certs": "/ca.pem",
    "ssl_certfile": "/me.pem",
    "ssl_keyfile": "/me.key",
}


class Provider(CredentialProvider):
    def get_credentials(self) -> tuple[str, str]:
        return "user", "token"


BROKERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bare": ("redis://", {}),
    "host": ("redis://cache.internal", {}),
    "port and database": ("redis://cache.internal:6390/3", {}),
    "database after two slashes": ("redis://cache.internal//4", {}),
    "IPv6": ("redis://[::1]:6390/1", {}),
    "password": (f"redis://:{CODED}@cache.internal/0", {}),
    "ACL user": (f"redis://weft%40app:{CODED}@cache.internal/0", {}),
    "TLS by itself": ("rediss://cache.internal:6390/2", {}),
    "TLS with verification": ("rediss://cache.internal/2?ssl_cert_reqs=required&ssl_ca_certs=/ca.pem", {}),
    "TLS without verification": ("rediss://cache.internal/2?ssl_cert_reqs=none", {}),
    "TLS with host name check off": (
        "rediss://h/2?ssl_cert_reqs=CERT_REQUIRED&ssl_check_hostname=false&ssl_ca_certs=/ca.pem",
        {},
    ),
    "TLS by broker_use_ssl": ("redis://cache.internal", {"ssl": TLS}),
    "broker_use_ssl = True alone": ("redis://cache.internal", {"ssl": True}),
    "socket": ("redis+socket:///run/redis/redis.sock", {}),
    "socket with a database": ("redis+socket:///run/redis/redis.sock?virtual_host=5", {}),
    "socket with a db that kombu ignores": ("redis+socket:///run/redis/redis.sock?db=5", {}),
    "socket with a user": (f"redis+socket://weft:{CODED}@/run/my%20redis.sock", {}),
    "alternatives": ("redis://first:1/1;redis://second:2/2", {}),
    "credential provider": ("redis://cache.internal", {"credential_provider": Provider()}),
    "a transport class by name": ("cache.internal", {"transport": "kombu.transport.redis:Transport"}),
}


@pytest.mark.parametrize("name", BROKERS)
def test_the_lock_client_connects_where_the_broker_connects(name: str) -> None:
    url, given = BROKERS[name]
    broker = Connection(url, **given)
    assert _connects_to(LockServer.of_broker(broker)) == _kombu_connects_to(broker, Channel)


@pytest.mark.parametrize("url", [url for url, given in BROKERS.values() if not given])
def test_a_url_means_the_same_as_a_connection(url: str) -> None:
    assert _connects_to(LockServer.of_broker(url)) == _kombu_connects_to(Connection(url), Channel)


def test_a_sentinel_master_is_logged_into_as_by_the_broker() -> None:
    options = {"master_name": "weft", "sentinel_kwargs": {"password": SECRET}, "min_other_sentinels": 1}
    url = f"sentinel://:{CODED}@one/2;sentinel://two:26400"
    broker = Connection(url, transport_options=options)
    server = LockServer.of_broker(broker)
    expected = _kombu_connects_to(broker, SentinelChannel)
    assert _connects_to(server) == {key: value for key, value in expected.items() if key not in ("host", "port")}
    assert server.sentinel is not None
    assert server.sentinel.hosts == (("one", 26379), ("two", 26400))
    assert (server.sentinel.master_name, server.sentinel.min_others) == ("weft", 1)
    assert server.sentinel.options == {"password": SECRET}


def test_the_prefix_of_the_brokers_keys_is_the_locks_too() -> None:
    broker = Connection("redis://", transport_options={"global_keyprefix": "staging:"})
    flights = RedisSingleFlight(server=LockServer.of_broker(broker), store_id="ab12", times=TIMES, clock=SystemClock())
    assert flights.key_of("renewal") == "staging:weft:ab12:renewal"


@pytest.mark.parametrize("query", ["db=5", "virtual_host=5"])
def test_a_socket_may_be_spelled_as_redis_py_does(query: str) -> None:
    assert _connects_to(LockServer.of_broker(f"unix://weft:{CODED}@/run/my%20redis.sock?{query}")) == {
        "connection_class": UnixDomainSocketConnection,
        "path": "/run/my redis.sock",
        "db": 5,
        "username": "weft",
        "password": SECRET,
    }


# -- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["amqp://guest@localhost", "memory://", "sqs://", "filesystem://"])
def test_a_broker_that_is_no_redis_is_refused_by_name(url: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(url.partition("://")[0])):
        LockServer.of_broker(url)


def test_a_sentinel_without_a_master_name_is_refused() -> None:
    with pytest.raises(SettingsError, match="master_name"):
        LockServer.of_broker("sentinel://localhost:26379")


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hush/word@localhost:6379/0",
        "redis://:hush#word@localhost/0",
        "redis://:hu?sh@localhost/0",
        "redis://localhost/hush",
        "redis://localhost:hush/0",
        "redis+socket://:hush@/run/redis.sock?virtual_host=hush",
        "unix://:hush@/run/redis.sock?db=hush",
        "unix://:hush@[/run/redis.sock",
        "nonsense://:hush@localhost",
        "sentinel://:hush@localhost",
    ],
)
def test_a_refused_url_shows_nothing_of_a_password(url: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        LockServer.of_broker(url)
    assert "hush" not in str(refusal.value)
    assert "hush" not in repr(refusal.value.__cause__)
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


# -- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broker",
    [
        Connection(f"redis://weft:{CODED}@cache.internal/0"),
        Connection(f"redis+socket://weft:{CODED}@/run/redis.sock"),
        f"unix://weft:{CODED}@/run/redis.sock",
        Connection(
            f"sentinel://:{CODED}@one",
            transport_options={"master_name": "weft", "sentinel_kwargs": {"password": SECRET}},
        ),
    ],
)
def test_no_repr_shows_a_password(broker: Connection | str) -> None:
    server = LockServer.of_broker(broker)
    flights = RedisSingleFlight(server=server, store_id="ab12", times=TIMES, clock=SystemClock())
    shown = f"{server!r} {server.address} {flights!r} {server.sentinel!r}"
    assert SECRET not in shown
    assert CODED not in shown


def test_a_login_echoed_by_an_old_server_is_cut_off() -> None:
    echo = redis.exceptions.ResponseError(
        "unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `weft`, `hush`, "
    )
    assert reason_of(echo) == "ResponseError: unknown command `HELLO`"


# -- keys ------------------------------------------------------------------------------------------------------------


def test_no_two_names_share_a_key() -> None:
    odd = ["a", "b", "a:b", "b:a", "a%3Ab", "a b", "a+b", "A", "a\n", "a*", "{a}", "%", "\u00e9", "e\u0301", "\udcff"]
    keys = {_flights(store_id).key_of(name) for store_id in odd for name in odd}
    assert len(keys) == len(odd) ** 2


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="lock name must not be empty"):
        _flights("ab12").key_of("")
    with pytest.raises(InvalidInput, match="store id must not be empty"):
        _flights("")


# -- the client ------------------------------------------------------------------------------------------------------


def test_the_client_waits_a_second_and_never_retries() -> None:
    client = LockServer.of_broker("redis://localhost").connect(TIMES.answer_within)
    options = client.connection_pool.connection_kwargs
    assert (options["socket_timeout"], options["socket_connect_timeout"]) == (1.0, 1.0)
    assert options["retry"].get_retries() == 0
    assert isinstance(client, Redis)


def _flights(store_id: str) -> RedisSingleFlight:
    return RedisSingleFlight(
        server=LockServer.of_broker("redis://"), store_id=store_id, times=TIMES, clock=SystemClock()
    )


def _connects_to(server: LockServer) -> dict[str, Any]:
    return {key: value for key, value in server.options.items() if value is not None}


def _kombu_connects_to(broker: Connection, kind: type[Any]) -> dict[str, Any]:
    """What kombu's own channel hands to redis-py, without opening it, and without what is no part of an address."""
    channel = kind.__new__(kind)
    channel.connection = SimpleNamespace(client=broker, default_port=broker.get_transport_cls().default_port)
    parameters = channel._connparams()
    tuning = {
        *(
            "max_connections",
            "socket_timeout",
            "socket_connect_timeout",
            "socket_keepalive",
            "socket_keepalive_options",
        ),
        *("health_check_interval", "retry_on_timeout", "client_name"),
    }
    return {key: value for key, value in parameters.items() if value is not None and key not in tuning}
