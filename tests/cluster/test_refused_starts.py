"""What cannot work does not start: one line that names the reason, no traceback, an exit status that is not 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deployment import HERE, Deployment
from sqlalchemy import create_engine, text

from weft_tasks.store.schema import VERSION_TABLE
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess

IMPOSSIBLE = {"weft_renew_interval": 5, "weft_claim_ttl": 6}
NAMES_BOTH = "weft_claim_ttl (6 s) must be at least 3 x weft_renew_interval (5 s)"
UNKNOWN_KEY = {"weft_claim_tll": 30}
LONGEST_START = timedelta(minutes=1)
"""All of them start at once, on two cores."""
WITHOUT_SCRIPTS = ("on", ">secret", "~*", "&*", "+@all", "-@scripting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended, and the lines that it wrote about it."""

    status: int
    log: str

    @property
    def reasons(self) -> list[str]:
        return [line for line in self.log.splitlines() if "weft: " in line]


@pytest.fixture(scope="module")
def ended(new_database: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ended]]:
    """By its case, each refused start; all at once, for each takes a second or two."""
    folder = tmp_path_factory.mktemp("refused")
    with ExitStack() as stack:
        redis = stack.enter_context(LocalRedis())
        redis.client().execute_command("ACL", "SETUSER", "limited", *WITHOUT_SCRIPTS)
        good = {"BROKER_URL": redis.url(), "DATABASE_URL": new_database("sqlite")}
        started = {}
        for case, process in _processes(good, redis, folder):
            stack.callback(process.kill)
            started[case] = process.start()
        yield {
            case: Ended(status=process.wait(LONGEST_START), log=process.log_text()) for case, process in started.items()
        }


def _processes(good: dict[str, str], redis: LocalRedis, folder: Path) -> Iterator[tuple[str, LocalProcess]]:
    def deployed(case: str, env: dict[str, str] | None = None, celery: dict[str, Any] | None = None) -> Deployment:
        own = folder / case
        own.mkdir()
        return Deployment(env={**good, **(env or {})}, folder=own, celery=celery)

    empty = f"sqlite:///{folder / 'empty.sqlite3'}"
    yield "worker-impossible", deployed("worker-impossible", celery=IMPOSSIBLE).worker("e1")
    yield "beat-impossible", deployed("beat-impossible", celery=IMPOSSIBLE).beat()
    yield "command-impossible", deployed("command-impossible", celery=IMPOSSIBLE).command("weft", "status")
    yield "worker-unknown-key", deployed("worker-unknown-key", celery=UNKNOWN_KEY).worker("e1")
    yield "beat-unknown-key", deployed("beat-unknown-key", celery=UNKNOWN_KEY).beat()
    yield "no-schema", deployed("no-schema", {"DATABASE_URL": empty}).worker("e1")
    yield "other-schema", deployed("other-schema", {"DATABASE_URL": _of_another_release(folder)}).worker("e1")
    yield "no-database", deployed("no-database", {"DATABASE_URL": "postgresql://weft@127.0.0.1:1/x"}).worker("e1")
    yield "no-redis", deployed("no-redis", {"BROKER_URL": "amqp://127.0.0.1:1"}).worker("e1")
    limited = redis.url().replace("redis://", "redis://limited:secret@")
    yield "no-scripts", deployed("no-scripts", {"BROKER_URL": limited}).worker("e1")
    yield (
        "maintenance-no-schema",
        deployed("maintenance-no-schema", {"DATABASE_URL": empty}).worker("m1", queues=["weft.maintenance"]),
    )
    stub = _stub_of_gevent(folder)
    yield "gevent", deployed("gevent").worker("e1", pool="gevent", import_paths=[HERE, stub])


def _of_another_release(folder: Path) -> str:
    url = f"sqlite:///{folder / 'other.sqlite3'}"
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32))"))
        connection.execute(text(f"INSERT INTO {VERSION_TABLE} VALUES ('9999')"))
    engine.dispose()
    return url


def _stub_of_gevent(folder: Path) -> Path:
    """As much of gevent as Celery imports before it makes a pool, so that the test needs none."""
    package = folder / "stubs" / "gevent"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("class Timeout(Exception): pass\n")
    (package / "signal.py").touch()
    (package / "monkey.py").write_text("def patch_all(): pass\n")
    return package.parent


@pytest.mark.parametrize(
    ("case", "named"),
    [
        ("worker-impossible", [NAMES_BOTH]),
        ("beat-impossible", [NAMES_BOTH]),
        ("worker-unknown-key", ["unknown setting weft_claim_tll", "did you mean weft_claim_ttl?"]),
        ("beat-unknown-key", ["unknown setting weft_claim_tll", "did you mean weft_claim_ttl?"]),
        ("no-schema", ["empty.sqlite3 has no weft_tasks schema", "weft migrate"]),
        ("maintenance-no-schema", ["empty.sqlite3 has no weft_tasks schema", "weft migrate"]),
        ("other-schema", ["revision 9999", "install the release"]),
        ("no-database", ["the store did not answer", "127.0.0.1"]),
        ("no-redis", ["single-flight locks need a Redis", "weft_redis_url"]),
        ("no-scripts", ["lacks permissions", "EVALSHA", "SCRIPT LOAD"]),
        ("gevent", ["gevent pool is not supported", "prefork, threads or solo"]),
    ],
)
def test_a_start_that_cannot_work_is_refused_in_one_line(ended: dict[str, Ended], case: str, named: list[str]) -> None:
    end = ended[case]
    assert end.status not in (0, None)
    assert len(end.reasons) == 1, end.log
    assert all(words in end.reasons[0] for words in named), end.reasons
    assert "Traceback" not in end.log
    assert "secret" not in end.log


def test_a_command_is_refused_in_one_line_as_well(ended: dict[str, Ended]) -> None:
    end = ended["command-impossible"]
    assert end.status == 1
    assert NAMES_BOTH in end.log.splitlines()[-1]
    assert "Traceback" not in end.log
