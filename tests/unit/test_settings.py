"""Settings that cannot work do not construct, and the message names the settings and both values (O4)."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest

from weft_tasks.errors import SettingsError
from weft_tasks.settings import Settings
from weft_tasks.store import heart_limits_of, limits_of

SECOND = timedelta(seconds=1)


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def refused(**given: Any) -> str:
    with pytest.raises(SettingsError) as error:
        Settings(**given)
    return str(error.value)


# -- defaults ----------------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_design() -> None:
    s = Settings()
    assert (s.claim_ttl, s.renew_interval, s.grace) == (seconds(30), seconds(5), seconds(10))
    assert (s.heartbeat_interval, s.pass_deadline, s.lock_ttl) == (seconds(2.5), seconds(15), seconds(10))
    assert (s.pool_width, s.takeover_tries, s.begun_turn_limit) == (16, 5, 5)
    assert s.silence_limit == seconds(40)
    assert s.deaf_after == 8


def test_what_follows_from_the_renew_interval_follows_it() -> None:
    s = Settings(renew_interval=seconds(0.6), claim_ttl=seconds(6))
    assert (s.grace, s.heartbeat_interval, s.pass_deadline) == (seconds(1.2), seconds(0.3), seconds(1.8))
    assert (s.lock_ttl, s.statement_timeout) == (seconds(1.2), seconds(0.6))


def test_a_statement_is_never_given_more_than_two_seconds_by_default() -> None:
    assert Settings(renew_interval=seconds(60), claim_ttl=seconds(600)).statement_timeout == seconds(2)


def test_the_pass_deadline_stays_below_the_ttl_by_itself() -> None:
    s = Settings(renew_interval=seconds(10), claim_ttl=seconds(30))
    assert s.pass_deadline == seconds(20) < s.claim_ttl
    assert s.lock_ttl == seconds(20)


def test_deafness_is_counted_in_whole_dispatches_rounded_up() -> None:
    assert Settings(claim_ttl=seconds(31)).deaf_after == 9


def test_no_setting_keeps_the_place_of_a_default_that_follows() -> None:
    s = Settings()
    assert [f.name for f in fields(s) if getattr(s, f.name) is None] == ["redis_url", "health_folder"]


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().pool_width = 3  # type: ignore[misc]


def test_what_a_url_may_hold_is_not_in_the_repr() -> None:
    shown = repr(Settings(database_url="postgresql://me:secret@h/db", redis_url="redis://:secret@h"))
    assert "secret" not in shown


# -- contradictions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "names", "values"),
    [
        ({"claim_ttl": seconds(14.999)}, ("claim_ttl", "renew_interval"), ("14.999 s", "3 x", "5 s")),
        ({"renew_interval": seconds(40)}, ("claim_ttl", "renew_interval"), ("30 s", "40 s")),
        ({"grace": seconds(4.999)}, ("grace", "renew_interval"), ("4.999 s", "5 s")),
        (
            {"heartbeat_interval": seconds(2.501)},
            ("heartbeat_interval", "renew_interval"),
            ("2.501 s", "1/2 of", "5 s"),
        ),
        ({"pass_deadline": seconds(30)}, ("pass_deadline", "claim_ttl"), ("30 s", "30 s")),
        ({"lock_ttl": seconds(15.001)}, ("lock_ttl", "pass_deadline"), ("15.001 s", "15 s")),
        ({"statement_timeout": seconds(10)}, ("statement_timeout", "grace"), ("10 s", "10 s")),
        (
            {"turn_retry_delay": seconds(301)},
            ("turn_retry_delay", "turn_retry_delay_max"),
            ("301 s", "300 s"),
        ),
        ({"pool_width": 20}, ("database_pool_size", "pool_width"), ("20", "20")),
        ({"database_pool_size": 16}, ("database_pool_size", "pool_width"), ("16", "16")),
        (
            {"connect_timeout": seconds(35.5)},
            ("heartbeat_interval", "connect_timeout", "statement_timeout", "claim_ttl", "grace"),
            ("40 s", "40 s"),
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_cannot_work_together_are_refused_by_name_and_value(
    given: dict[str, Any], names: tuple[str, ...], values: tuple[str, ...]
) -> None:
    message = refused(**given)
    assert all(f"weft_{name}" in message for name in names)
    assert all(value in message for value in values)


@pytest.mark.parametrize(
    "given",
    [
        {"claim_ttl": seconds(15)},
        {"grace": seconds(5)},
        {"heartbeat_interval": seconds(2.5)},
        {"pass_deadline": seconds(29.999)},
        {"lock_ttl": seconds(15)},
        {"statement_timeout": seconds(9.999)},
        {"database_pool_size": 17},
        {"connect_timeout": seconds(35.499)},
    ],
    ids=lambda value: next(iter(value)),
)
def test_a_setting_at_its_very_bound_is_accepted(given: dict[str, Any]) -> None:
    Settings(**given)


def test_every_contradiction_is_named_at_once() -> None:
    message = refused(claim_ttl=seconds(10), database_pool_size=3)
    assert "weft_claim_ttl" in message
    assert "weft_database_pool_size" in message


@pytest.mark.parametrize("name", [f.name for f in fields(Settings) if "timedelta" in str(f.type)])
def test_no_duration_is_zero_negative_or_below_a_millisecond(name: str) -> None:
    for value in (timedelta(0), -SECOND, timedelta(microseconds=999)):
        assert f"weft_{name} must be at least 1 ms" in refused(**{name: value})


@pytest.mark.parametrize("name", [f.name for f in fields(Settings) if str(f.type) == "int"])
def test_no_count_is_zero_or_negative(name: str) -> None:
    for value in (0, -1):
        assert f"weft_{name} must be at least 1, not {value}" in refused(**{name: value})


# -- from a Celery configuration -----------------------------------------------------------------------------------


def test_a_celery_configuration_gives_seconds_or_timedeltas_under_weft_names() -> None:
    s = Settings.from_mapping(
        {
            "broker_url": "redis://",
            "weft_claim_ttl": 60,
            "weft_renew_interval": 7.5,
            "weft_grace": timedelta(seconds=20),
            "weft_pool_width": 4,
            "weft_database_url": "sqlite:///here.db",
        }
    )
    assert (s.claim_ttl, s.renew_interval, s.grace) == (seconds(60), seconds(7.5), seconds(20))
    assert (s.pool_width, s.database_url) == (4, "sqlite:///here.db")
    assert s.heartbeat_interval == seconds(3.75)


def test_a_setting_that_is_none_is_left_to_its_default() -> None:
    assert Settings.from_mapping({"weft_grace": None, "weft_redis_url": None}) == Settings()


def test_a_zero_is_a_value_and_not_a_missing_one() -> None:
    with pytest.raises(SettingsError, match="weft_pool_width must be at least 1, not 0"):
        Settings.from_mapping({"weft_pool_width": 0})


def test_a_setting_that_nobody_knows_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(SettingsError, match=r"unknown setting weft_claim_tll; did you mean weft_claim_ttl\?"):
        Settings.from_mapping({"weft_claim_tll": 3})
    with pytest.raises(SettingsError, match=r"^unknown setting weft_zzzzzz$"):
        Settings.from_mapping({"weft_zzzzzz": 3})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("claim_ttl", "30"),
        ("claim_ttl", True),
        ("claim_ttl", [30]),
        ("claim_ttl", float("nan")),
        ("claim_ttl", float("inf")),
        ("claim_ttl", 10**30),
        ("pool_width", 4.0),
        ("pool_width", "4"),
        ("pool_width", True),
        ("database_url", ""),
        ("database_url", 5),
        ("redis_url", b"redis://"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"weft_{name} "):
        Settings.from_mapping({f"weft_{name}": value})


def test_a_refused_url_is_not_shown() -> None:
    with pytest.raises(SettingsError) as error:
        Settings.from_mapping({"weft_database_url": ["postgresql://me:secret@h/db"]})
    assert "secret" not in str(error.value)


def test_every_message_ends_where_its_sentence_ends() -> None:
    assert not re.search(r"\s$|\n", refused(claim_ttl=seconds(1)))


# -- what a process may cost the database --------------------------------------------------------------------------


def test_the_heart_keeps_no_connection_and_never_waits_longer_than_a_statement() -> None:
    s = Settings()
    heart, others = heart_limits_of(s), limits_of(s)
    assert (heart.pool_size, heart.lock_wait) == (0, s.statement_timeout)
    assert (others.pool_size, others.lock_wait) == (s.database_pool_size, s.renew_interval)
    assert heart.statement_timeout == others.statement_timeout == s.statement_timeout
