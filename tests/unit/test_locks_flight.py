"""A held lock and its keeper, step by step: no server, no thread, and a clock that moves on demand."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
import redis.exceptions
from redis.lock import Lock

from weft_tasks.locks import FlightState, FlightTimes
from weft_tasks.locks.keeper import Keeper
from weft_tasks.locks.redis_flight import FlightSeconds, RedisFlight

TIMES = FlightTimes(lock_ttl=timedelta(seconds=9), pass_deadline=timedelta(seconds=20))
GONE = redis.exceptions.LockNotOwnedError("gone")
SILENT = redis.exceptions.TimeoutError("Timeout reading from socket")


@dataclass
class HandClock:
    """Stands still until it is moved."""

    seconds: float = 100.0

    def now(self) -> datetime:
        return datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class ScriptedLock:
    """In the place of redis-py's Lock: answers what it is told to."""

    answer: Exception | None = None
    lives: list[float] = field(default_factory=list)
    releases: int = 0

    def extend(self, additional_time: float, replace_ttl: bool) -> bool:
        assert replace_ttl
        if self.answer is not None:
            raise self.answer
        self.lives.append(round(additional_time, 6))
        return True

    def release(self) -> None:
        self.releases += 1
        if self.answer is not None:
            raise self.answer


class Held:
    """A flight acquired now, kept by a keeper whose thread does not run."""

    def __init__(self) -> None:
        self.clock, self.lock = HandClock(), ScriptedLock()
        self.keeper = ThreadlessKeeper(self.clock)
        self.flight = RedisFlight(
            cast(Lock, self.lock),
            times=FlightSeconds.of(TIMES),
            acquired_at=self.clock.monotonic(),
            clock=self.clock,
            let_go=self.keeper.let_go,
        )
        self.keeper.keep(self.flight)

    def pass_time(self, seconds: float) -> None:
        """Time goes by in small steps, the keeper looking at each."""
        for _ in range(round(seconds * 10)):
            self.clock.seconds += 0.1
            self.keeper.extend_due()


class ThreadlessKeeper(Keeper):
    def _run(self) -> None:
        """The test calls the keeper's step itself."""


@pytest.fixture
def held() -> Held:
    return Held()


def test_a_lock_is_extended_by_a_whole_life_every_third_of_it(held: Held) -> None:
    held.pass_time(10)
    assert held.lock.lives == [9, 9, 9]
    assert held.flight.is_ours


def test_no_extension_carries_a_lock_past_the_deadline_of_its_pass(held: Held) -> None:
    held.pass_time(19.5)
    ends = [at + life for at, life in zip((3.1, 6.2, 9.3, 12.4), held.lock.lives, strict=True)]
    assert ends == pytest.approx([12.1, 15.2, 18.3, 20.0], abs=0.2)
    assert held.flight.next_extension_at() == math.inf
    assert held.flight.is_ours


def test_after_the_deadline_the_lock_is_lost_and_no_longer_extended(held: Held) -> None:
    held.pass_time(30)
    assert held.flight.state is FlightState.LOST
    assert held.flight.reason is not None
    assert "deadline" in held.flight.reason
    assert len(held.lock.lives) == 4


def test_a_lock_that_was_taken_away_is_lost_and_left_alone(held: Held) -> None:
    held.lock.answer = GONE
    held.pass_time(4)
    held.lock.answer = None
    held.pass_time(4)
    assert held.flight.state is FlightState.LOST
    assert held.lock.lives == []
    assert held.flight.release() is FlightState.LOST
    assert held.lock.releases == 0


def test_a_silent_server_makes_it_unknown_and_an_answer_makes_it_held_again(held: Held) -> None:
    held.lock.answer = SILENT
    held.pass_time(4)
    assert held.flight.state is FlightState.UNKNOWN
    assert held.flight.reason == "TimeoutError: Timeout reading from socket"
    assert not held.flight.is_ours
    held.lock.answer = None
    held.pass_time(3)
    assert held.flight.state is FlightState.HELD
    assert held.flight.reason is None


def test_a_keeper_that_was_stopped_makes_it_unknown_once_the_known_life_has_run_out(held: Held) -> None:
    held.clock.seconds += 9
    assert held.flight.state is FlightState.UNKNOWN
    assert held.flight.reason == "the key was not extended in time"


def test_a_released_lock_is_neither_extended_nor_released_again(held: Held) -> None:
    assert held.flight.release() is FlightState.RELEASED
    assert held.flight.release() is FlightState.RELEASED
    held.pass_time(10)
    held.flight.extend()
    assert (held.lock.releases, held.lock.lives) == (1, [])


def test_a_released_lock_is_forgotten_by_its_keeper(held: Held) -> None:
    flight = weakref.ref(held.flight)
    held.flight.release()
    del held.flight
    assert flight() is None


def test_a_release_without_an_answer_is_unknown_and_not_raised(held: Held) -> None:
    held.lock.answer = SILENT
    assert held.flight.release() is FlightState.UNKNOWN
    held.lock.answer = None
    assert held.flight.release() is FlightState.UNKNOWN
    assert held.lock.releases == 1


def test_a_late_release_reports_the_loss(held: Held) -> None:
    held.lock.answer = GONE
    assert held.flight.release() is FlightState.LOST
    assert held.flight.state is FlightState.LOST


def test_a_defect_while_extending_is_unknown_and_ends_no_keeper(held: Held) -> None:
    held.lock.answer = RuntimeError("a defect")
    held.pass_time(4)
    assert held.flight.state is FlightState.UNKNOWN
    assert held.flight.reason == "RuntimeError: a defect"
