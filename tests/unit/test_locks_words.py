"""The parts of the single-flight lock that need no server: tokens, times, the policy, the lock that always says yes."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone

import pytest

from weft_tasks.errors import InvalidInput, SettingsError
from weft_tasks.locks import AlwaysYes, FlightOutcome, FlightState, FlightTimes, Holder, may_run_unlocked, mint_token
from weft_tasks.locks.token import read_token
from weft_tasks.results import PassKind

NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
TTL = timedelta(seconds=30)
OTHERS = [kind for kind in PassKind if kind is not PassKind.RENEWAL]


# -- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", ["w1@host", "a|b@host", "кошка@host", "|", "x y:z"])
def test_a_token_names_its_holder_whatever_the_node_is_called(node: str) -> None:
    assert read_token(mint_token(node, NOON)) == Holder(node=node, pid=os.getpid(), since=NOON)


def test_a_token_is_read_the_same_from_bytes() -> None:
    token = mint_token("w1@host", NOON)
    assert read_token(token.encode()) == read_token(token)


def test_no_two_tokens_are_alike() -> None:
    assert len({mint_token("w1@host", NOON) for _ in range(100)}) == 100


def test_since_is_utc_wherever_the_holder_lives() -> None:
    kolkata = timezone(timedelta(hours=5, minutes=30))
    holder = read_token(mint_token("w1@host", NOON.astimezone(kolkata)))
    assert holder.since == NOON
    assert holder.since is not None
    assert holder.since.utcoffset() == timedelta(0)


def test_a_token_without_a_time_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="time zone"):
        mint_token("w1@host", datetime(2026, 3, 1))


@pytest.mark.parametrize("foreign", ["", "locked", "a|b|c|d", "n|12|2026-03-01T12:00:00|x", "|||", "n|12|never|x"])
def test_a_foreign_token_is_shown_as_it_is(foreign: str) -> None:
    assert read_token(foreign) == Holder(node=foreign)
    assert str(read_token(foreign)) == foreign


def test_a_foreign_token_can_do_no_harm_to_a_terminal() -> None:
    shown = str(read_token(b"\xff\x1b[2J" + b"x" * 10_000))
    assert shown.isprintable()
    assert len(shown) <= 200


def test_a_holder_reads_as_a_sentence_part() -> None:
    assert str(Holder(node="w1@host", pid=7, since=NOON)) == "w1@host (pid 7, since 2026-03-01T12:00:00+00:00)"


# -- times -----------------------------------------------------------------------------------------------------------


def test_all_times_follow_from_the_two_settings() -> None:
    times = FlightTimes(lock_ttl=timedelta(seconds=10), pass_deadline=timedelta(seconds=15))
    assert times.extend_every == timedelta(seconds=10) / 3
    assert times.answer_within == timedelta(seconds=1)


def test_a_short_lock_waits_less_for_an_answer_than_for_its_next_extension() -> None:
    times = FlightTimes(lock_ttl=timedelta(milliseconds=300), pass_deadline=timedelta(seconds=1))
    assert times.answer_within == times.extend_every == timedelta(milliseconds=100)


def test_a_lock_that_outlives_the_pass_deadline_does_not_construct() -> None:
    with pytest.raises(SettingsError, match=r"weft_lock_ttl \(0:00:10\).*weft_pass_deadline \(0:00:05\)"):
        FlightTimes(lock_ttl=timedelta(seconds=10), pass_deadline=timedelta(seconds=5))


def test_a_lock_without_a_life_does_not_construct() -> None:
    with pytest.raises(SettingsError, match="weft_lock_ttl"):
        FlightTimes(lock_ttl=timedelta(0), pass_deadline=timedelta(seconds=5))


# -- the policy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("since_last_begin", [None, timedelta(0), TTL / 2, TTL, -TTL])
def test_renewal_runs_without_an_answer_from_the_lock_server(since_last_begin: timedelta | None) -> None:
    assert may_run_unlocked(PassKind.RENEWAL, since_last_begin=since_last_begin, claim_ttl=TTL)


@pytest.mark.parametrize("kind", OTHERS)
def test_other_passes_wait_for_one_claim_ttl_without_any_begin(kind: PassKind) -> None:
    almost = TTL - timedelta(microseconds=1)
    assert not may_run_unlocked(kind, since_last_begin=timedelta(0), claim_ttl=TTL)
    assert not may_run_unlocked(kind, since_last_begin=almost, claim_ttl=TTL)
    assert may_run_unlocked(kind, since_last_begin=TTL, claim_ttl=TTL)


@pytest.mark.parametrize("kind", OTHERS)
def test_a_pass_that_never_began_may_begin(kind: PassKind) -> None:
    assert may_run_unlocked(kind, since_last_begin=None, claim_ttl=TTL)


@pytest.mark.parametrize("kind", OTHERS)
def test_a_database_clock_that_was_set_back_starves_no_pass(kind: PassKind) -> None:
    assert may_run_unlocked(kind, since_last_begin=timedelta(hours=-1), claim_ttl=TTL)


# -- always yes ------------------------------------------------------------------------------------------------------


def test_always_yes_excludes_nobody() -> None:
    flights = AlwaysYes()
    with flights.acquire("renewal", "a") as first, flights.acquire("renewal", "b") as second:
        assert first.outcome is second.outcome is FlightOutcome.ACQUIRED
        assert first.flight is not None
        assert first.flight.is_ours
        assert flights.holder("renewal") is None
    assert first.flight.state is FlightState.RELEASED
