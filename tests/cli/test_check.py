"""`check` finds what is wrong, and says what to do about it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shop import ENGINE, NODE, Shop, build
from sqlalchemy import update

from weft_tasks.celery_host.checks import Finding, Level
from weft_tasks.celery_host.checks.broker import Worker, Workers
from weft_tasks.celery_host.checks.configuration import check_celery_settings
from weft_tasks.celery_host.checks.contents import check_passes
from weft_tasks.celery_host.checks.workers import check_workers
from weft_tasks.celery_host.names import MAINTENANCE_QUEUE, RUN_TURN, TASK_OF_PASS, TURNS_QUEUE
from weft_tasks.celery_host.words import counted
from weft_tasks.model import EngineStatus
from weft_tasks.settings import Settings
from weft_tasks.store.engines import EngineInfo
from weft_tasks.store.overview import Backlog, Overview
from weft_tasks.store.pass_marks import PassMark
from weft_tasks.store.tables import engines, passes

SETTINGS = Settings()
PATIENCE = ("--timeout", "0.2")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
KNOWN = frozenset({RUN_TURN, *TASK_OF_PASS.values()})


def told(findings: Any, level: Level = Level.ERROR) -> str:
    return "\n".join(finding.text for finding in findings if finding.level is level)


def has_remedies(findings: tuple[Finding, ...]) -> bool:
    return all(finding.remedy for finding in findings if finding.level is not Level.OK)


# -- the command, on a store without any worker


def _findings(shop: Shop, level: str = "error") -> str:
    document = shop.json("check", *PATIENCE, status=1)
    assert document["errors"] > 0
    assert all(finding["remedy"] for finding in document["findings"] if finding["level"] != "ok")
    return "\n".join(finding["text"] for finding in document["findings"] if finding["level"] == level)


def test_nothing_that_runs_is_an_error_with_the_commands_that_start_it(shop: Shop) -> None:
    text = shop.run("check", *PATIENCE, status=1).stdout
    assert "no worker answers on this broker" in text
    assert "-> celery -A APP worker -n engine-1@%h -Q celery,weft.turns" in text
    assert "renewal, reclaim, signal-poll, update-poll never ran" in text


def test_errors_come_first_and_the_last_line_counts_them(shop: Shop) -> None:
    lines = [line for line in shop.run("check", *PATIENCE, status=1).stdout.splitlines() if line]
    levels = [line.split()[0] for line in lines[2:-1] if not line.strip().startswith("->")]
    assert levels == sorted(levels, key=["error", "warning", "ok"].index)
    assert lines[-1] == f"{counted(levels.count('error'), 'error')}, {counted(levels.count('warning'), 'warning')}"


def test_a_silent_engine_is_named_with_its_process_and_what_it_holds(shop: Shop) -> None:
    shop.weft.start("order", "w")
    with shop.weft.store.database.transaction() as connection:
        connection.execute(update(engines).values(heartbeat_at=engines.c.heartbeat_at - 3_600_000))
    text = _findings(shop)
    assert "no engine is alive" in text
    assert f"{NODE} (pid 7 on host) has not beaten for 36" in text
    assert "1 workflow to be moved" in text


def test_an_engine_that_is_away_and_holds_nothing_is_a_warning(shop: Shop) -> None:
    shop.add_engine("second", "e2@host")
    with shop.weft.store.database.transaction() as connection:
        gone = update(engines).where(engines.c.id == ENGINE)
        connection.execute(gone.values(heartbeat_at=engines.c.heartbeat_at - 3_600_000))
    assert f"{NODE} (pid 7 on host) has not beaten" in _findings(shop, "warning")


def test_a_deaf_engine_is_an_error(shop: Shop) -> None:
    shop.weft.store.engines.mark_deaf(ENGINE)
    assert f"{NODE} is deaf" in _findings(shop)


def test_what_is_stuck_is_told(shop: Shop) -> None:
    shop.weft.start("order", "w")
    shop.weft.store.engines.stop(ENGINE)
    text = _findings(shop, "warning")
    assert f"{NODE} is gone, and still holds 1 workflow" in text
    assert "no live engine runs type 'order' version 1, of which 1 workflow must move or begin" in text


@pytest.mark.parametrize("shift", [-1, 1])
def test_clocks_that_disagree_are_a_warning(shop: Shop, monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    skew = shift * timedelta(minutes=2)
    monkeypatch.setattr(type(shop.weft.store.overviews), "clock_skew", lambda _self: skew)
    assert f"120.0 s {'ahead of' if shift > 0 else 'behind'} this host's" in _findings(shop, "warning")


def test_a_store_that_takes_no_writes_is_an_error_though_it_can_be_read(shop: Shop) -> None:
    database = shop.weft.store.database
    if database.is_sqlite:
        with database.transaction():
            assert "takes no writes: the store did not answer: database is locked" in _findings(shop)
    else:
        with database.engine.connect() as connection:
            connection.exec_driver_sql("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
            connection.commit()
        text = _findings(shop)
        database.engine.dispose()
        assert "takes no writes" in text
        assert "read-only transaction" in text
    assert "takes no writes" not in _findings(shop)


def test_a_store_without_a_schema_is_an_error_and_the_broker_is_looked_at_all_the_same(empty_url: str) -> None:
    shop = Shop(weft=build(empty_url))
    text = _findings(shop)
    assert "has no weft_tasks schema" in text
    assert "no worker answers" in text


def test_settings_that_cannot_work_are_an_error_and_the_broker_is_looked_at_all_the_same(empty_url: str) -> None:
    shop = Shop(weft=build(empty_url, weft_claim_ttl=6))
    document = shop.json("check", *PATIENCE, status=1)
    found = {finding["topic"]: finding["level"] for finding in document["findings"]}
    assert (found["settings"], found["broker"]) == ("error", "ok")


def test_a_broker_that_is_away_is_an_error_without_its_password(empty_url: str) -> None:
    weft = build(empty_url)
    weft.app.conf.broker_url = "redis://:hunter2@127.0.0.1:1/0"
    result = Shop(weft=weft).run("check", *PATIENCE, status=1)
    assert "connecting to 127.0.0.1:1. Connection refused" in result.output
    assert "hunter2" not in result.output


@pytest.mark.parametrize("url", ["nonsense://host", "redis://:hunter2@127.0.0.1:1/database", "sentinel://127.0.0.1:1"])
def test_a_broker_url_that_cannot_be_used_is_an_error_as_well(empty_url: str, url: str) -> None:
    weft = build(empty_url)
    weft.app.conf.broker_url = url
    document = Shop(weft=weft).json("check", *PATIENCE, status=1)
    assert {finding["topic"]: finding["level"] for finding in document["findings"]}["broker"] == "error"
    assert "hunter2" not in str(document)


# -- Celery's settings


def _celery(**settings: Any) -> str:
    app = build("sqlite:///unused.sqlite3").app
    app.conf.update(settings)
    app.finalize()
    findings = tuple(check_celery_settings(app))
    assert has_remedies(findings)
    return "\n".join(finding.text for finding in findings if finding.level is not Level.OK)


GOOD: dict[str, Any] = {
    "worker_prefetch_multiplier": 1,
    "broker_transport_options": {"socket_timeout": 10, "socket_connect_timeout": 3},
    "accept_content": ["json"],
}


def test_good_celery_settings_find_nothing() -> None:
    assert _celery(**GOOD) == ""


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"worker_prefetch_multiplier": 4}, "worker_prefetch_multiplier is 4"),
        ({"broker_transport_options": {}}, "no socket_timeout and no socket_connect_timeout"),
        ({"accept_content": ["json", "pickle"]}, "accept_content accepts pickle"),
        ({"result_accept_content": ["yaml"]}, "result_accept_content accepts yaml"),
    ],
)
def test_celery_settings_that_matter_to_us_are_warnings(settings: dict[str, Any], named: str) -> None:
    assert named in _celery(**{**GOOD, **settings})


def test_a_schedule_that_lost_the_passes_or_names_tasks_that_there_are_not_is_told() -> None:
    app = build("sqlite:///unused.sqlite3").app
    app.finalize()
    app.conf.beat_schedule = {"nightly": {"task": "shop.nightly", "schedule": 60}}
    text = "\n".join(finding.text for finding in check_celery_settings(app))
    assert "does not fire weft.renew_claims, weft.reclaim_claims" in text
    assert "beat_schedule fires shop.nightly, which this application does not know" in text


# -- the topology of workers


def _worker(node: str, *queues: str, registered: frozenset[str] | None = KNOWN) -> Worker:
    return Worker(node=node, queues=frozenset(queues), registered=registered)


def _workers(*workers: Worker, backlog: int = 0) -> Workers:
    return Workers(answered=workers, maintenance_backlog=backlog)


def _engine(node: str, engine_id: str = "id", age_ms: int = 0) -> EngineInfo:
    return EngineInfo(
        id=engine_id,
        node=node,
        host="host",
        pid=1,
        status=EngineStatus.LIVE,
        started_at=NOW,
        heartbeat_at=NOW,
        silence_ms=age_ms,
        heartbeat_age_ms=age_ms,
        beat=1,
        free_slots=1,
        is_deaf=False,
        claims=0,
        types=(),
    )


E1 = _worker("e1@h", TURNS_QUEUE, "weft.engine.id")
M1 = _worker("m1@h", MAINTENANCE_QUEUE)


def test_an_engine_and_a_maintenance_worker_are_fine() -> None:
    findings = tuple(check_workers(_workers(E1, M1), [_engine("e1@h")], SETTINGS))
    assert [finding.level for finding in findings] == [Level.OK]
    assert findings[0].text == "2 answer: e1@h (engine), m1@h (maintenance)"


def test_one_worker_that_is_all_of_it_is_fine() -> None:
    worker = _worker("e1@h", TURNS_QUEUE, MAINTENANCE_QUEUE, "weft.engine.id")
    assert told(check_workers(_workers(worker), [_engine("e1@h")], SETTINGS), Level.WARNING) == ""


@pytest.mark.parametrize(
    ("workers", "named", "level"),
    [
        (_workers(E1), "no worker consumes weft.maintenance", Level.ERROR),
        (_workers(M1), "no worker consumes weft.turns", Level.ERROR),
        (_workers(E1, E1, M1), "2 workers run under the node name 'e1@h'", Level.ERROR),
        (_workers(E1, _worker("x@h", MAINTENANCE_QUEUE, registered=frozenset())), "has no Weft", Level.ERROR),
        (
            _workers(_worker("e1@h", TURNS_QUEUE, MAINTENANCE_QUEUE, "weft.engine.id"), _worker("x@h", "celery")),
            "consumed by engines only",
            Level.WARNING,
        ),
        (_workers(_worker("e1@h", TURNS_QUEUE), M1), "does not consume its own queue", Level.WARNING),
        (_workers(E1, M1, _worker("e2@h", TURNS_QUEUE)), "e2@h consumes weft.turns, but is no engine", Level.WARNING),
        (_workers(_worker("e9@h", TURNS_QUEUE), M1), "engine e1@h beats, but does not answer", Level.WARNING),
        (_workers(), "no worker answers on this broker, although e1@h beat", Level.ERROR),
    ],
)
def test_what_is_wrong_with_the_workers_is_told_with_a_remedy(workers: Workers, named: str, level: Level) -> None:
    findings = tuple(check_workers(workers, [_engine("e1@h")], SETTINGS))
    assert named in told(findings, level)
    assert has_remedies(findings)


def test_without_a_store_only_the_broker_is_judged() -> None:
    assert told(check_workers(_workers(E1, M1), None, SETTINGS)) == ""


# -- whose fault it is that no pass runs


def _overview(**changes: Any) -> Overview:
    facts: dict[str, Any] = {"began_at": NOW, "finished_at": NOW, "began_ago_ms": 1000, "result": None, **changes}
    marks = [
        PassMark(kind=kind, skipped=0, requested=0, runs=1, ran_ms=1, token=None, **facts)
        for kind in ("renewal", "reclaim", "signal-poll", "update-poll", "run-once")
    ]
    backlog = Backlog(in_hand=0, put_off=0, unowned=0, queued=0, late=0)
    return Overview(
        engines=(),
        passes=tuple(marks),
        counts={},
        backlog=backlog,
        set_aside=(),
        stranded=(),
        homeless=(),
        overdue_debts=0,
    )


LATE = {"began_ago_ms": 60_000}


@pytest.mark.parametrize(
    ("workers", "reason", "remedy"),
    [
        (_workers(E1, M1), "no tick waits, so beat sends none or each fails", "celery -A APP beat"),
        (_workers(E1, M1, backlog=40), "40 ticks wait", "inspect active"),
        (_workers(E1), "there is no maintenance worker", "-Q weft.maintenance"),
        (None, "the broker is away", "broker"),
    ],
)
def test_passes_that_do_not_run_are_told_with_whose_fault_it_is(
    workers: Workers | None, reason: str, remedy: str
) -> None:
    (finding,) = check_passes(_overview(**LATE), SETTINGS, workers)
    assert finding.level is Level.ERROR
    assert "did not run for 60 s" in finding.text
    assert reason in finding.text
    assert remedy in str(finding.remedy)


def test_passes_that_run_are_fine() -> None:
    assert [finding.level for finding in check_passes(_overview(), SETTINGS, None)] == [Level.OK]


def test_a_pass_that_failed_or_took_too_long_is_told() -> None:
    failed = _overview(result={"status": "failed", "error": "no answer"}, finished_at=NOW + timedelta(seconds=9))
    findings = tuple(check_passes(failed, SETTINGS, _workers(E1, M1)))
    assert "the latest renewal pass: failed: no answer" in told(findings)
    assert "took 9.0 s, more than R" in told(findings, Level.WARNING)


def test_a_pass_that_has_never_run_is_late(shop: Shop) -> None:
    with shop.weft.store.database.transaction() as connection:
        connection.execute(update(passes).values(began_at=None))
    assert "never ran" in _findings(shop)


def test_an_application_may_ask_as_well(shop: Shop) -> None:
    findings = shop.weft.check(patience=0.1)
    assert "no worker answers" in told(findings)
    assert has_remedies(findings)
