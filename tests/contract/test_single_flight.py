"""The single-flight lock on a real Redis: every fault that a lock server can have, and what a pass is told about it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
import redis
import redis.exceptions
from kombu.connection import Connection

from weft_tasks.errors import LockUnavailable, SettingsError
from weft_tasks.locks import (
    Acquisition,
    AlwaysYes,
    Flight,
    FlightOutcome,
    FlightState,
    FlightTimes,
    LockServer,
    RedisSingleFlight,
    SingleFlight,
    mint_token,
)
from weft_tasks.locks.keeper import THREAD_NAME
from weft_tasks.passes.clock import SystemClock
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.ports import free_port
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.programs import find_redis_server
from weft_tasks.testing.waiting import wait_until

BRIEF = FlightTimes(lock_ttl=timedelta(milliseconds=1500), pass_deadline=timedelta(seconds=10))
ROOMY = FlightTimes(lock_ttl=timedelta(seconds=10), pass_deadline=timedelta(seconds=15))
SLACK = timedelta(milliseconds=700)
"""What a busy machine with two cores may add to any wait."""
SECRETS = ["#", "%", "@", ":", "/", "?", "&", "+", " ", "p#%@:/?&+ w"]
HOLDER = """
import sys, threading
from datetime import timedelta
from weft_tasks.locks import FlightState, FlightTimes, LockServer, RedisSingleFlight, mint_token
from weft_tasks.passes.clock import SystemClock
times = FlightTimes(lock_ttl=timedelta(milliseconds=1500), pass_deadline=timedelta(seconds=60))
server = LockServer.of_broker(sys.argv[1])
flights = RedisSingleFlight(server=server, store_id="store", times=times, clock=SystemClock())
answer = flights.acquire("renewal", mint_token("doomed@host", SystemClock().now()))
print("holds:", answer.outcome, flush=True)
while answer.flight.state is not FlightState.LOST:
    threading.Event().wait(0.05)
print("ends:", answer.flight.state, flush=True)
"""


@pytest.fixture(scope="module")
def shared_server() -> Iterator[LocalRedis]:
    with LocalRedis() as server:
        yield server


@pytest.fixture
def server(shared_server: LocalRedis) -> LocalRedis:
    """Empty, for tests that do the server no harm."""
    with shared_server.client() as client:
        client.flushall()
    return shared_server


@pytest.fixture
def frail() -> Iterator[LocalRedis]:
    """A server of the test's own, to be paused, restarted and misconfigured."""
    with LocalRedis() as server:
        yield server


def flights_at(
    url: str, *, store_id: str = "store", times: FlightTimes = ROOMY, decode_responses: bool = False
) -> RedisSingleFlight:
    plain = LockServer.of_broker(url)
    server = dataclasses.replace(plain, options={**plain.options, "decode_responses": decode_responses})
    return RedisSingleFlight(server=server, store_id=store_id, times=times, clock=SystemClock())


def a_token(node: str = "w1@host") -> str:
    return mint_token(node, datetime.now(UTC))


def acquired(flights: SingleFlight, name: str = "renewal") -> Flight:
    answer = flights.acquire(name, a_token())
    assert answer.outcome is FlightOutcome.ACQUIRED, answer
    assert answer.flight is not None
    return answer.flight


def is_free(flights: SingleFlight, name: str = "renewal") -> bool:
    with flights.acquire(name, a_token()) as answer:
        return answer.outcome is FlightOutcome.ACQUIRED


@contextlib.contextmanager
def takes_at_most(limit: timedelta) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < limit.total_seconds()


# -- what every implementation keeps ---------------------------------------------------------------------------------


@pytest.fixture(params=["redis", "redis decoding", "always yes"])
def anyhow(request: pytest.FixtureRequest) -> SingleFlight:
    if request.param == "always yes":
        return AlwaysYes()
    server = request.getfixturevalue("server")
    return flights_at(server.url(), decode_responses=request.param == "redis decoding")


def test_a_free_name_is_acquired_held_and_released(anyhow: SingleFlight) -> None:
    flight = acquired(anyhow)
    assert (flight.state, flight.is_ours, flight.reason) == (FlightState.HELD, True, None)
    assert flight.release() is FlightState.RELEASED
    assert (flight.state, flight.is_ours) == (FlightState.RELEASED, False)
    assert acquired(anyhow).is_ours


def test_a_second_release_changes_nothing(anyhow: SingleFlight) -> None:
    flight = acquired(anyhow)
    assert flight.release() is flight.release() is FlightState.RELEASED


def test_an_answer_as_a_context_releases_even_when_the_pass_fails(anyhow: SingleFlight) -> None:
    with pytest.raises(ZeroDivisionError), anyhow.acquire("renewal", a_token()) as answer:
        _ = 1 / 0
    assert answer.flight is not None
    assert answer.flight.state is FlightState.RELEASED
    assert is_free(anyhow)


def test_names_do_not_exclude_each_other(anyhow: SingleFlight) -> None:
    assert all(acquired(anyhow, name).is_ours for name in ("renewal", "reclaim", "renewal:reclaim", "renewal reclaim"))


def test_the_holder_of_a_free_name_is_nobody(anyhow: SingleFlight) -> None:
    acquired(anyhow).release()
    assert anyhow.holder("renewal") is None


# -- exclusion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decode_responses", [False, True])
def test_five_more_attempts_name_the_holder_and_leave_its_token(server: LocalRedis, decode_responses: bool) -> None:
    first = flights_at(server.url(), decode_responses=decode_responses)
    since = datetime.now(UTC)
    with first.acquire("renewal", mint_token("w1@host", since)), server.client() as client:
        key = first.key_of("renewal")
        token = client.get(key)
        for _ in range(5):
            with flights_at(server.url(), decode_responses=decode_responses).acquire(
                "renewal", a_token("w2")
            ) as answer:
                assert answer.outcome is FlightOutcome.HELD_BY_ANOTHER
                assert (answer.flight, answer.reason) == (None, None)
                assert answer.held_by is not None
                holder = answer.held_by.holder
                assert (holder.node, holder.pid, holder.since) == ("w1@host", os.getpid(), since)
                assert answer.held_by.expires_in is not None
                assert timedelta(0) < answer.held_by.expires_in <= ROOMY.lock_ttl
            assert client.get(key) == token
        assert first.holder("renewal") is not None


def test_of_many_at_once_one_acquires(server: LocalRedis) -> None:
    flights, answers = flights_at(server.url()), list[Acquisition]()
    start = threading.Barrier(8)

    def take() -> None:
        start.wait()
        answers.append(flights.acquire("renewal", a_token()))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcomes = [answer.outcome for answer in answers]
    assert sorted(outcomes) == [FlightOutcome.ACQUIRED] + 7 * [FlightOutcome.HELD_BY_ANOTHER]


def test_a_lock_may_be_released_in_another_thread(server: LocalRedis) -> None:
    flight = acquired(flights_at(server.url()))
    states: list[FlightState] = []
    thread = threading.Thread(target=lambda: states.append(flight.release()))
    thread.start()
    thread.join()
    assert states == [FlightState.RELEASED]


def test_two_stores_on_one_redis_never_share_a_lock(server: LocalRedis) -> None:
    staging, production = flights_at(server.url(), store_id="staging"), flights_at(server.url(), store_id="production")
    assert acquired(staging).is_ours
    assert acquired(production).is_ours
    assert not is_free(staging)


def test_a_foreign_key_is_reported_as_it_is(server: LocalRedis) -> None:
    flights = flights_at(server.url())
    with server.client() as client:
        client.set(flights.key_of("renewal"), "set by hand")
        answer = flights.acquire("renewal", a_token())
    assert answer.outcome is FlightOutcome.HELD_BY_ANOTHER
    assert answer.held_by is not None
    assert str(answer.held_by.holder) == "set by hand"
    assert answer.held_by.expires_in is None


# -- life and death of a key -----------------------------------------------------------------------------------------


def test_a_killed_holders_lock_is_free_within_its_lifetime(server: LocalRedis, tmp_path: Path) -> None:
    flights = flights_at(server.url(), times=BRIEF)
    with another_process(server, tmp_path) as holder, server.client() as client:
        extensions(client, flights.key_of("renewal"), 1)
        holder.kill()
        with takes_at_most(BRIEF.lock_ttl + SLACK):
            wait_until(lambda: is_free(flights), what="the dead holder's lock to run out")


def test_a_frozen_holder_finds_its_lock_lost_and_leaves_the_next_ones(server: LocalRedis, tmp_path: Path) -> None:
    flights = flights_at(server.url())
    with another_process(server, tmp_path) as holder:
        holder.freeze()
        wait_until(lambda: flights.holder("renewal") is None, what="the frozen holder's lock to run out")
        flight = acquired(flights)
        holder.thaw()
        holder.wait_for_log("ends: lost")
    assert flight.release() is FlightState.RELEASED


def test_the_keeper_extends_a_lock_that_is_held_for_longer_than_its_lifetime(server: LocalRedis) -> None:
    flights = flights_at(server.url(), times=BRIEF)
    flight = acquired(flights)
    with server.client() as client:
        extensions(client, flights.key_of("renewal"), 4)
    assert flight.is_ours
    assert not is_free(flights)
    assert flight.release() is FlightState.RELEASED
    assert is_free(flights)


def test_the_keepers_thread_is_shared_and_ends_when_nothing_is_held(server: LocalRedis) -> None:
    flights = flights_at(server.url(), times=BRIEF)
    before = threading.enumerate()
    held = [acquired(flights, name) for name in "abcd"]
    keepers = [thread for thread in threading.enumerate() if thread not in before]
    assert [keeper.name for keeper in keepers] == [THREAD_NAME]
    assert keepers[0].daemon
    for flight in held:
        flight.release()
    keepers[0].join(BRIEF.lock_ttl.total_seconds())
    assert not keepers[0].is_alive()
    again = acquired(flights, "a")
    with server.client() as client:
        extensions(client, flights.key_of("a"), 1)
    assert again.release() is FlightState.RELEASED


def test_no_lock_outlives_the_deadline_of_its_pass(server: LocalRedis) -> None:
    times = FlightTimes(lock_ttl=timedelta(seconds=1), pass_deadline=timedelta(seconds=2))
    flights = flights_at(server.url(), times=times)
    begun = time.monotonic()
    flight = acquired(flights)
    wait_until(lambda: is_free(flights), what="the lock of a pass that never ends to run out")
    lived = timedelta(seconds=time.monotonic() - begun)
    assert times.lock_ttl * 1.5 < lived < times.pass_deadline + SLACK
    assert flight.state is FlightState.LOST
    assert flight.release() is FlightState.LOST


def test_a_late_release_leaves_the_new_holders_lock(server: LocalRedis) -> None:
    old, new = flights_at(server.url()), flights_at(server.url())
    late = acquired(old)
    with server.client() as client:
        client.pexpire(old.key_of("renewal"), 1)
    wait_until(lambda: new.holder("renewal") is None, what="the old lock to run out")
    current = acquired(new)
    assert late.release() is FlightState.LOST
    assert new.holder("renewal") is not None
    assert current.release() is FlightState.RELEASED


def test_a_key_deleted_by_hand_is_lost_reported_and_not_raised(server: LocalRedis) -> None:
    flights = flights_at(server.url(), times=BRIEF)
    with flights.acquire("renewal", a_token()) as answer, server.client() as client:
        client.delete(flights.key_of("renewal"))
        flight = answer.flight
        assert flight is not None
        wait_until(lambda: flight.state is FlightState.LOST, what="the keeper to notice")
        assert not flight.is_ours
        assert flight.reason == "the key is gone or carries another's token"
    assert flight.release() is FlightState.LOST


def test_a_lock_taken_over_by_another_is_lost_and_stays_the_others(server: LocalRedis) -> None:
    flights = flights_at(server.url(), times=BRIEF)
    flight = acquired(flights)
    with server.client() as client:
        client.set(flights.key_of("renewal"), "another", px=60_000)
        wait_until(lambda: flight.state is FlightState.LOST, what="the keeper to notice")
        flight.release()
        assert client.get(flights.key_of("renewal")) == b"another"
        assert client.pttl(flights.key_of("renewal")) > 30_000


def test_flushed_scripts_are_loaded_again(server: LocalRedis) -> None:
    flights = flights_at(server.url(), times=BRIEF)
    flight = acquired(flights)
    with server.client() as client:
        client.script_flush()
        extensions(client, flights.key_of("renewal"), 1)
        client.script_flush()
    assert flight.release() is FlightState.RELEASED


def test_a_child_forked_while_the_lock_is_held_cannot_touch_it(server: LocalRedis) -> None:
    flights = flights_at(server.url())
    with flights.acquire("renewal", a_token()) as answer, server.client() as client:
        assert answer.flight is not None
        client.pexpire(flights.key_of("renewal"), 60_000)
        told = in_a_child(lambda: _try_everything(flights, answer))
        assert client.pttl(flights.key_of("renewal")) > 30_000
        assert answer.flight.is_ours
    assert answer.flight.state is FlightState.RELEASED
    assert told["state"] == told["released"] == FlightState.LOST
    assert "child" in str(told["reason"])
    assert told["tried anew"] == FlightOutcome.HELD_BY_ANOTHER


def _try_everything(flights: RedisSingleFlight, inherited: Acquisition) -> dict[str, object]:
    flight = inherited.flight
    assert flight is not None
    flight.extend()  # type: ignore[attr-defined]
    with inherited:
        told: dict[str, object] = {"state": flight.state, "reason": flight.reason}
    told["released"] = flight.release()
    told["tried anew"] = flights.acquire("renewal", a_token()).outcome
    return told


def test_a_child_keeps_locks_of_its_own_alive(server: LocalRedis) -> None:
    flights = flights_at(server.url(), times=BRIEF)

    def hold_in_the_child() -> dict[str, object]:
        flight = acquired(flights)
        with redis.Redis(port=server.port) as client:
            extensions(client, flights.key_of("renewal"), 1)
        return {"held": flight.is_ours, "released": flight.release()}

    with flights.acquire("reclaim", a_token()):  # so that the parent has a client and a keeper to inherit
        told = in_a_child(hold_in_the_child)
    assert told == {"held": True, "released": FlightState.RELEASED}


# -- a server that does not answer, or refuses -----------------------------------------------------------------------


def test_a_refused_port_is_unknown_within_about_a_second() -> None:
    flights = flights_at(f"redis://127.0.0.1:{free_port()}/0")
    with takes_at_most(timedelta(seconds=1) + SLACK):
        answer = flights.acquire("renewal", a_token())
    assert answer.outcome is FlightOutcome.UNKNOWN
    assert (answer.flight, answer.held_by) == (None, None)
    assert answer.reason is not None
    assert "refused" in answer.reason
    with pytest.raises(LockUnavailable, match="refused"):
        flights.holder("renewal")


def test_a_paused_server_is_unknown_within_about_a_second_each(frail: LocalRedis) -> None:
    flights = flights_at(frail.url())
    flight = acquired(flights, "held")
    frail.pause()
    for _ in range(2):
        with takes_at_most(timedelta(seconds=1) + SLACK):
            answer = flights.acquire("renewal", a_token())
        assert answer.outcome is FlightOutcome.UNKNOWN
        assert answer.reason is not None
        assert "Timeout" in answer.reason
    with takes_at_most(timedelta(seconds=1) + SLACK):
        assert flight.release() is FlightState.UNKNOWN
    with takes_at_most(timedelta(seconds=1) + SLACK), pytest.raises(LockUnavailable):
        flights.holder("renewal")


def test_a_pause_makes_a_held_lock_unknown_until_the_server_is_back(frail: LocalRedis) -> None:
    times = FlightTimes(lock_ttl=timedelta(seconds=3), pass_deadline=timedelta(seconds=60))
    flight = acquired(flights_at(frail.url(), times=times))
    frail.pause()
    wait_until(lambda: flight.state is FlightState.UNKNOWN, what="an extension without an answer")
    frail.resume()
    wait_until(lambda: flight.is_ours, what="the next extension")
    assert flight.release() is FlightState.RELEASED


def test_what_a_paused_server_executes_late_is_gone_after_one_lifetime(frail: LocalRedis) -> None:
    flights = flights_at(frail.url(), times=BRIEF)
    acquired(flights).release()
    frail.pause()
    assert flights.acquire("renewal", a_token()).outcome is FlightOutcome.UNKNOWN
    frail.resume()
    with takes_at_most(BRIEF.lock_ttl + SLACK):
        wait_until(lambda: is_free(flights), what="a key that nobody keeps to run out")


def test_a_restart_between_two_ticks_fails_no_tick(frail: LocalRedis) -> None:
    flights = flights_at(frail.url())
    for _ in range(3):
        assert acquired(flights).release() is FlightState.RELEASED
        frail.restart(empty=True)
    assert acquired(flights).release() is FlightState.RELEASED


def test_a_lock_lost_by_a_restart_without_data_is_reported(frail: LocalRedis) -> None:
    flights = flights_at(frail.url(), times=BRIEF)
    flight = acquired(flights)
    frail.kill()
    frail.start()
    wait_until(lambda: flight.state is FlightState.LOST, what="the keeper to notice")


def _make_read_only(client: redis.Redis, folder: Path) -> None:
    client.replicaof("127.0.0.1", free_port())


def _fill_memory(client: redis.Redis, folder: Path) -> None:
    client.config_set("maxmemory", 1)


def _fail_snapshots(client: redis.Redis, folder: Path) -> None:
    (folder / "blocked.rdb").mkdir()
    client.config_set("dbfilename", "blocked.rdb")
    client.config_set("save", "3600 1")
    client.bgsave()
    wait_until(
        lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", what="a snapshot that cannot be written"
    )


def _require_a_password(client: redis.Redis, folder: Path) -> None:
    client.config_set("requirepass", "hush")


@pytest.mark.parametrize(
    ("break_it", "real_reason"),
    [
        (_make_read_only, "read only replica"),
        (_fill_memory, "maxmemory"),
        (_fail_snapshots, "MISCONF"),
        (_require_a_password, "AuthenticationError"),
    ],
)
def test_a_server_that_refuses_writes_is_unknown_with_its_own_reason(
    frail: LocalRedis, break_it: Callable[[redis.Redis, Path], None], real_reason: str
) -> None:
    flights = flights_at(frail.url())
    with frail.client() as client:
        break_it(client, frail.folder)
    answer = flights.acquire("renewal", a_token())
    assert answer.outcome is FlightOutcome.UNKNOWN
    assert answer.held_by is None
    assert answer.reason is not None
    assert real_reason in answer.reason
    with pytest.raises(LockUnavailable, match=real_reason):
        flights.check_permissions()
    frail.kill()  # one that cannot write its snapshot refuses to stop


def test_full_memory_does_not_keep_a_held_lock_from_being_extended_and_released(frail: LocalRedis) -> None:
    flights = flights_at(frail.url(), times=BRIEF)
    flight = acquired(flights)
    with frail.client() as client:
        _fill_memory(client, frail.folder)
        extensions(client, flights.key_of("renewal"), 2)
    assert flight.is_ours
    assert flight.release() is FlightState.RELEASED


def test_a_holder_on_a_replica_that_was_promoted_late_is_unknown_and_then_held(frail: LocalRedis) -> None:
    flights = flights_at(
        frail.url(), times=FlightTimes(lock_ttl=timedelta(seconds=3), pass_deadline=timedelta(minutes=1))
    )
    flight = acquired(flights)
    with frail.client() as client:
        _make_read_only(client, frail.folder)
        wait_until(lambda: flight.state is FlightState.UNKNOWN, what="a refused extension")
        assert flight.reason is not None
        assert "read only" in flight.reason
        client.replicaof("no", "one")
        wait_until(lambda: flight.is_ours, what="an extension that is allowed")


# -- the check at start ----------------------------------------------------------------------------------------------


def as_user(server: LocalRedis, *rules: str) -> RedisSingleFlight:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "weft", "reset", "on", ">pw", *rules)
    return flights_at(f"redis://weft:pw@127.0.0.1:{server.port}/0")


def test_a_user_who_may_not_run_scripts_is_refused_by_the_name_of_what_is_missing(server: LocalRedis) -> None:
    with pytest.raises(SettingsError, match=r"lacks permissions: EVALSHA, SCRIPT LOAD \(the server: .*evalsha"):
        as_user(server, "~*", "+@all", "-@scripting").check_permissions()


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("-evalsha", "EVALSHA"),
        ("-script", "SCRIPT LOAD"),
        ("-set", "SET"),
        ("-get", "GET"),
        ("-pttl", "PTTL"),
        ("-pexpire", "PEXPIRE"),
        ("-del", "DEL"),
    ],
)
def test_each_missing_permission_is_named(server: LocalRedis, missing: str, named: str) -> None:
    with pytest.raises(SettingsError, match=rf"lacks permissions: {named} \("):
        as_user(server, "~*", "+@all", missing).check_permissions()


def test_a_user_who_may_not_touch_the_keys_is_refused(server: LocalRedis) -> None:
    with pytest.raises(SettingsError, match=r"access one of the keys.*weft:store:\*"):
        as_user(server, "~other:*", "+@all").check_permissions()


def test_what_the_refusal_proposes_is_enough_to_check_hold_extend_and_release(server: LocalRedis) -> None:
    with pytest.raises(SettingsError) as refusal:
        as_user(server).check_permissions()
    proposed = str(refusal.value).partition("<user> ")[2].split()
    with server.client() as client:
        client.script_flush()
    flights = as_user(server, *proposed)
    check = flights.check_permissions()
    assert (check.maxmemory_policy, check.warnings) == (None, ())
    flight = acquired(flights)
    flight.extend()  # type: ignore[attr-defined]
    assert (flight.state, flight.reason) == (FlightState.HELD, None)
    assert flights.holder("renewal") is not None
    assert flight.release() is FlightState.RELEASED


def test_an_unanswered_check_is_not_a_refusal() -> None:
    with pytest.raises(LockUnavailable, match="refused"):
        flights_at(f"redis://127.0.0.1:{free_port()}/0").check_permissions()


def test_a_check_leaves_neither_key_nor_connection(server: LocalRedis) -> None:
    flights = flights_at(server.url())
    with server.client() as client:
        before = client.info("clients")["connected_clients"]
        assert flights.check_permissions().maxmemory_policy == "noeviction"
        assert client.dbsize() == 0
        wait_until(lambda: client.info("clients")["connected_clients"] == before, what="the connection to be closed")


def test_a_server_that_evicts_is_a_warning(frail: LocalRedis) -> None:
    with frail.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    check = flights_at(frail.url()).check_permissions()
    assert check.maxmemory_policy == "allkeys-lru"
    assert len(check.warnings) == 1
    assert "noeviction" in check.warnings[0]


# -- ways to connect -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("user", ["", "weft%40app"])
def test_lock_and_broker_log_in_alike_whatever_the_password_holds(server: LocalRedis, user: str, secret: str) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "weft@app", "reset", "on", f">{secret}", "~*", "&*", "+@all")
        client.execute_command("ACL", "SETUSER", "default", "on", "resetpass", f">{secret}")
    try:
        url = f"redis://{user}:{quote(secret, safe='')}@127.0.0.1:{server.port}/3"
        assert acquired(flights_at(url)).is_ours
        with Connection(url) as broker:
            assert broker.default_channel.client.exists("weft:store:renewal") == 1
    finally:
        with redis.Redis(port=server.port, password=secret) as client:
            client.execute_command("ACL", "SETUSER", "default", "on", "nopass")


@pytest.mark.parametrize("secret", ["", "p#%@:/?&+ w"])
def test_a_socket_is_reached_in_both_spellings(tmp_path_factory: pytest.TempPathFactory, secret: str) -> None:
    folder = tmp_path_factory.mktemp("redis socket")
    path = folder / "redis.sock"
    options = ("--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder), "--requirepass", secret)
    argv = [str(find_redis_server()), *options]
    login = f":{quote(secret, safe='')}@" if secret else ""
    coded = quote(str(path))
    with LocalProcess(argv, name="redis", log_path=folder / "log", ready_line="ready to accept connections"):
        for url in (f"redis+socket://{login}{coded}?virtual_host=3", f"unix://{login}{coded}?db=3"):
            assert acquired(flights_at(url)).release() is FlightState.RELEASED
        flight = acquired(flights_at(f"unix://{login}{coded}?virtual_host=3"))
        with Connection(f"redis+socket://{login}{coded}?virtual_host=3") as broker:
            assert broker.default_channel.client.exists("weft:store:renewal") == 1
        assert flight.is_ours


def test_locks_follow_a_sentinel_to_its_master(server: LocalRedis, tmp_path: Path) -> None:
    port = free_port()
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor weft 127.0.0.1 {server.port} 1\n"
    )
    argv = [str(find_redis_server()), str(configuration), "--sentinel"]
    broker = Connection(f"sentinel://127.0.0.1:{port}/3", transport_options={"master_name": "weft"})
    with LocalProcess(argv, name="sentinel", log_path=tmp_path / "log", ready_line="+monitor master weft"):
        flights = RedisSingleFlight(
            server=LockServer.of_broker(broker), store_id="store", times=ROOMY, clock=SystemClock()
        )
        flight = acquired(flights)
        with server.client(database=3) as client:
            assert client.exists(flights.key_of("renewal")) == 1
        assert flight.release() is FlightState.RELEASED
    with takes_at_most(timedelta(seconds=2) + SLACK):
        fresh = RedisSingleFlight(server=LockServer.of_broker(broker), store_id="s", times=ROOMY, clock=SystemClock())
        answer = fresh.acquire("renewal", a_token())
    assert answer.outcome is FlightOutcome.UNKNOWN
    assert "No master found" in (answer.reason or "")


# -- TLS, by a proxy: the redis-server of the tests is built without it ----------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem signs server.pem (localhost) and client.pem; other.pem signs nothing."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    def self_signed(name: str) -> None:
        subject = ("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        # Python 3.13 verifies strictly: an authority has to say that it may sign.
        may_sign = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *may_sign, *subject)

    self_signed("ca")
    self_signed("other")
    (folder / "names").write_text("subjectAltName=DNS:localhost\nauthorityKeyIdentifier=keyid\n")
    for name in ("server", "client"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "csr")
        signed_by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
        openssl("x509", "-req", "-in", "csr", "-days", "2", *signed_by, "-out", f"{name}.pem")
    return folder


@pytest.fixture
def tls_port(server: LocalRedis, certificates: Path) -> Iterator[int]:
    """A port of localhost that speaks TLS, asks for a client certificate, and passes on to the Redis."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(self.request, server_side=True) as inside,
                socket.create_connection(("127.0.0.1", server.port)) as outside,
            ):
                back = threading.Thread(target=_copy, args=(outside, inside), daemon=True)
                back.start()
                _copy(inside, outside)
                outside.shutdown(socket.SHUT_RDWR)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
        yield proxy.server_address[1]
        proxy.shutdown()
        proxy.block_on_close = False


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)


@pytest.mark.parametrize(
    "query",
    [
        "?ssl_cert_reqs=required&ssl_ca_certs={0}/ca.pem",
        "?ssl_cert_reqs=required&ssl_ca_certs={0}/ca.pem&ssl_certfile={0}/client.pem&ssl_keyfile={0}/client.key",
        "?ssl_cert_reqs=none",
        "",
    ],
)
def test_lock_and_broker_agree_on_tls(server: LocalRedis, tls_port: int, certificates: Path, query: str) -> None:
    url = f"rediss://localhost:{tls_port}/3{query.format(certificates)}"
    assert acquired(flights_at(url)).is_ours
    with Connection(url) as broker:
        assert broker.default_channel.client.exists("weft:store:renewal") == 1


def test_a_certificate_of_another_authority_is_unknown_with_the_reason(tls_port: int, certificates: Path) -> None:
    url = f"rediss://localhost:{tls_port}/3?ssl_cert_reqs=required&ssl_ca_certs={certificates}/other.pem"
    answer = flights_at(url).acquire("renewal", a_token())
    assert answer.outcome is FlightOutcome.UNKNOWN
    assert "certificate verify failed" in (answer.reason or "")


# -- how the tests look at things ------------------------------------------------------------------------------------


def another_process(server: LocalRedis, folder: Path) -> LocalProcess:
    """A process that holds the renewal lock until it loses it."""
    argv = [sys.executable, "-c", HOLDER, server.url()]
    return LocalProcess(argv, name="holder", log_path=folder / "log", ready_line="holds: acquired")


def extensions(client: redis.Redis, key: str, count: int) -> None:
    """Wait until the key's remaining life has risen `count` times."""
    left = int(client.pttl(key))
    for number in range(count):

        def has_risen() -> bool:
            nonlocal left
            before, left = left, int(client.pttl(key))
            assert left != -2, "the key ran out"
            return left > before

        wait_until(has_risen, what=f"extension {number + 1} of {count}")


def in_a_child(work: Callable[[], dict[str, object]]) -> dict[str, object]:
    """Fork, run `work` there, and return what it returned."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(work()).encode())
        except BaseException as error:
            os.write(writer, json.dumps({"error": repr(error)}).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        told: dict[str, object] = json.loads(answers.read())
    os.waitpid(child, 0)
    assert "error" not in told, told
    return told
