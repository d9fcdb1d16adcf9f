"""The local servers are real, keep their port, lose only what they should, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from weft_tasks.testing.account import is_open_to_all
from weft_tasks.testing.databases import libpq_url
from weft_tasks.testing.errors import NotStarted, ProcessDied, ProgramNotFound
from weft_tasks.testing.local_server import LocalServer
from weft_tasks.testing.ports import PORTS, free_port
from weft_tasks.testing.programs import find_postgres_bin, find_redis_server
from weft_tasks.testing.servers import (
    GivenPostgres,
    GivenRedis,
    LocalPostgres,
    LocalRedis,
    postgres_from_environment,
    redis_from_environment,
)

SEGMENTS = Path("/proc/sysvipc/shm")


@pytest.fixture
def local_redis() -> Iterator[LocalRedis]:
    with LocalRedis() as server:
        yield server


@pytest.fixture(scope="module")
def local_postgres() -> Iterator[LocalPostgres]:
    with LocalPostgres(durable=False) as server:
        yield server


@pytest.fixture
def table_url(local_postgres: LocalPostgres) -> str:
    """A database with one table of one row."""
    url = local_postgres.create_database()
    with psycopg.connect(libpq_url(url)) as connection:
        connection.execute("CREATE TABLE fruit AS SELECT 'apple' AS name")
    return url


def fruit_in(url: str) -> list[str]:
    with psycopg.connect(libpq_url(url), connect_timeout=2) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM fruit")]


# -- both ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "is_paused"),
    [(LocalRedis, False), (LocalRedis, True), (LocalPostgres, True)],
    ids=["a running Redis", "a paused Redis", "a paused PostgreSQL"],
)
def test_a_stop_leaves_no_process_and_no_folder_of(kind: type[LocalServer], is_paused: bool) -> None:
    with kind() as server:
        folder, pids = server.folder, server.process.member_pids()
        if is_paused:
            server.pause()
    assert not folder.exists()
    assert not server.is_running
    assert all(map(is_gone, pids))


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.skipif(not SEGMENTS.exists(), reason="only Linux lists shared memory in a file")
def test_a_postgres_killed_and_stopped_leaves_no_shared_memory() -> None:
    with LocalPostgres(durable=False) as server:
        segment = (server.folder / "data" / "postmaster.pid").read_text().splitlines()[6].split()
        assert is_listed(segment)
        server.kill()
        assert is_listed(segment)
    assert not is_listed(segment)


def is_listed(segment: list[str]) -> bool:
    """Whether the machine has this segment, given by key and id."""
    return any(line.split()[:2] == segment for line in SEGMENTS.read_text().splitlines())


def test_a_server_that_was_not_started_has_no_process_and_stops_harmlessly() -> None:
    server = LocalRedis()
    server.stop()
    with pytest.raises(NotStarted, match="redis was not started"):
        _ = server.process


def test_a_server_that_dies_at_its_start_says_why_and_leaves_nothing() -> None:
    server = LocalPostgres(settings={"max_connections": "many"})
    with pytest.raises(ProcessDied, match="max_connections"):
        server.start()
    assert not server.is_running
    with pytest.raises(NotStarted):
        _ = server.folder


def test_a_taken_port_is_exchanged_for_another_one(local_redis: LocalRedis) -> None:
    with_a_clash = LocalRedis()
    with_a_clash.port = local_redis.port
    with with_a_clash as other:
        assert other.port != local_redis.port
        assert other.client().info("server")["process_id"] == other.process.pid


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    assert free_port() in PORTS
    assert PORTS.stop <= 32_768


# -- Redis -----------------------------------------------------------------------------------------------------------


def test_redis_evicts_nothing_and_writes_nothing_to_disk(local_redis: LocalRedis) -> None:
    config = local_redis.client().config_get("*")
    assert config["maxmemory-policy"] == "noeviction"
    assert config["save"] == ""
    assert config["appendonly"] == "no"


def test_redis_urls_name_the_database(local_redis: LocalRedis) -> None:
    redis.Redis.from_url(local_redis.url(3)).set("key", "three")
    assert local_redis.client(3).get("key") == b"three"
    assert local_redis.client().get("key") is None


def test_redis_keeps_port_and_data_through_a_restart(local_redis: LocalRedis) -> None:
    port = local_redis.port
    local_redis.client().set("key", "value")
    local_redis.restart()
    assert local_redis.port == port
    assert local_redis.client().get("key") == b"value"


def test_redis_restarts_empty_on_the_same_port(local_redis: LocalRedis) -> None:
    port = local_redis.port
    local_redis.client().set("key", "value")
    local_redis.restart(empty=True)
    assert local_redis.port == port
    assert local_redis.client().get("key") is None


def test_a_killed_redis_comes_back_empty_even_after_an_earlier_restart(local_redis: LocalRedis) -> None:
    local_redis.client().set("key", "value")
    local_redis.restart()
    local_redis.kill()
    with pytest.raises(redis.ConnectionError):
        local_redis.client().ping()
    local_redis.start()
    assert local_redis.client().get("key") is None


def test_a_killed_persistent_redis_keeps_every_acknowledged_write() -> None:
    with LocalRedis(persistent=True) as server:
        server.client().set("key", "value")
        server.kill()
        server.start()
        assert server.client().get("key") == b"value"
        server.restart()
        assert server.client().get("key") == b"value"


def test_a_paused_redis_is_silent_and_answers_after_it_resumed(local_redis: LocalRedis) -> None:
    client = redis.Redis.from_url(local_redis.url(), socket_timeout=0.1, retry=None)
    client.set("key", "value")
    local_redis.pause()
    with pytest.raises(redis.TimeoutError):
        client.get("key")
    local_redis.resume()
    assert local_redis.client().get("key") == b"value"


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


def test_postgres_is_utf8_in_the_c_locale_and_never_runs_as_root(local_postgres: LocalPostgres) -> None:
    with psycopg.connect(libpq_url(local_postgres.create_database())) as connection:
        row = connection.execute(
            "SELECT pg_encoding_to_char(encoding), datcollate, datctype FROM pg_database"
            " WHERE datname = current_database()"
        ).fetchone()
    assert row == ("UTF8", "C", "C")
    assert psutil.Process(local_postgres.process.pid).uids().effective != 0


def test_postgres_waits_for_the_disk_only_when_durable(local_postgres: LocalPostgres) -> None:
    assert setting(local_postgres, "fsync") == "off"
    with LocalPostgres() as durable:
        assert setting(durable, "fsync") == "on"


def test_settings_are_laid_over_the_usual_ones() -> None:
    with LocalPostgres(durable=False, settings={"max_connections": "12"}) as server:
        assert setting(server, "max_connections") == "12"
        assert setting(server, "synchronous_commit") == "on"


def setting(server: LocalPostgres, name: str) -> str:
    with psycopg.connect(libpq_url(server.url())) as connection:
        row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


def test_a_database_is_a_copy_of_its_template(local_postgres: LocalPostgres, table_url: str) -> None:
    copy = local_postgres.create_database(template=table_url.rpartition("/")[2])
    assert copy != table_url
    assert fruit_in(copy) == ["apple"]


def test_a_database_can_be_named_and_dropped_while_in_use(local_postgres: LocalPostgres) -> None:
    url = local_postgres.create_database('odd "name"')
    with psycopg.connect(f"{libpq_url(local_postgres.url())}", dbname='odd "name"'):
        local_postgres.drop_database('odd "name"')
    assert url == local_postgres.url('odd "name"')
    local_postgres.drop_database('odd "name"')


def test_a_killed_postgres_recovers_what_was_committed_even_when_not_durable(
    local_postgres: LocalPostgres, table_url: str
) -> None:
    port = local_postgres.port
    with closing(psycopg.connect(libpq_url(table_url))) as connection:
        connection.execute("INSERT INTO fruit VALUES ('pear')")
        local_postgres.kill()
    local_postgres.start()
    assert local_postgres.port == port
    assert fruit_in(table_url) == ["apple"]


def test_postgres_restarts_with_its_data_while_somebody_is_connected(
    local_postgres: LocalPostgres, table_url: str
) -> None:
    with psycopg.connect(libpq_url(table_url)):
        local_postgres.restart()
    assert fruit_in(table_url) == ["apple"]


def test_postgres_restarts_empty() -> None:
    with LocalPostgres(durable=False) as server:
        server.create_database("mine")
        server.restart(empty=True)
        with psycopg.connect(libpq_url(server.url())) as connection:
            assert connection.execute("SELECT 1 FROM pg_database WHERE datname = 'mine'").fetchone() is None


def test_pausing_postgres_stops_its_backends_too(local_postgres: LocalPostgres, table_url: str) -> None:
    with psycopg.connect(libpq_url(table_url)):
        local_postgres.pause()
        try:
            # Asked for now: a worker of PostgreSQL's own may have ended a moment before.
            family = local_postgres.process.member_pids()
            assert len(family) > 1
            assert {psutil.Process(pid).status() for pid in family} == {psutil.STATUS_STOPPED}
        finally:
            local_postgres.resume()
    assert fruit_in(table_url) == ["apple"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs a server as somebody else")
def test_root_can_use_programs_that_only_root_can_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_postgres_bin()
    site = found.parent.parent.parent
    hidden = tmp_path / "site"
    for package in site.glob(f"{found.parent.parent.name}*"):
        shutil.copytree(package, hidden / package.name, copy_function=os.link, symlinks=True)
    hidden.chmod(0o700)
    monkeypatch.setenv("WEFT_POSTGRES_BIN", str(hidden / found.relative_to(site)))
    assert not is_open_to_all(hidden)
    with LocalPostgres(durable=False) as server:
        assert server.create_database("mine").endswith("/mine")


# -- which server ----------------------------------------------------------------------------------------------------


def test_programs_named_by_the_environment_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("redis-server", "initdb"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("WEFT_REDIS_SERVER", str(tmp_path / "redis-server"))
    monkeypatch.setenv("WEFT_POSTGRES_BIN", str(tmp_path))
    assert find_redis_server() == tmp_path / "redis-server"
    assert find_postgres_bin() == tmp_path


def test_a_named_program_that_is_missing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_REDIS_SERVER", str(tmp_path / "nothing"))
    with pytest.raises(ProgramNotFound, match=r"no redis-server found; looked at: \$WEFT_REDIS_SERVER = .*/nothing"):
        find_redis_server()


def test_a_redis_on_path_comes_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "redis-server").touch(mode=0o755)
    monkeypatch.delenv("WEFT_REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis_server() == tmp_path / "redis-server"


def test_a_redis_url_in_the_environment_is_taken_and_left_alone() -> None:
    with redis_from_environment({"BROKER_URL": "rediss://me:secret@example.org:6380/5"}) as server:
        assert isinstance(server, GivenRedis)
        assert server.url(2) == "rediss://me:secret@example.org:6380/2"


@pytest.mark.parametrize("environ", [{}, {"BROKER_URL": "amqp://guest@example.org//"}], ids=["nothing", "no Redis"])
def test_without_a_redis_url_a_local_one_is_started(environ: dict[str, str]) -> None:
    with redis_from_environment(environ) as server:
        assert isinstance(server, LocalRedis)
        assert server.client().ping()
    assert not server.is_running


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+asyncpg"])
def test_databases_created_in_a_given_postgres_are_dropped(local_postgres: LocalPostgres, scheme: str) -> None:
    given_url = f"{scheme}://weft@127.0.0.1:{local_postgres.port}/postgres"
    with postgres_from_environment({"DATABASE_URL": given_url}) as server:
        assert isinstance(server, GivenPostgres)
        url = server.create_database()
        with psycopg.connect(libpq_url(url)):
            pass
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(libpq_url(url))


def test_without_a_postgres_url_a_local_one_is_started() -> None:
    with postgres_from_environment({"DATABASE_URL": "sqlite:///weft.sqlite3"}, durable=False) as server:
        assert isinstance(server, LocalPostgres)
        assert fruitless(server.create_database())
    assert not server.is_running


def fruitless(url: str) -> bool:
    with psycopg.connect(libpq_url(url)) as connection:
        return connection.execute("SELECT to_regclass('fruit')").fetchone() == (None,)
