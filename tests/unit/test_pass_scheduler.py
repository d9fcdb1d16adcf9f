"""Ticks from threads: spread at the start, independent of each other, over when cancelled."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from pass_fakes import Heard, RenewalFake

from weft_tasks.passes import ClaimRenewalTask, SystemClock, Targets, ThreadScheduler
from weft_tasks.results import PassKind

HOUR, MILLISECOND = timedelta(hours=1), timedelta(milliseconds=1)


def ticking_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "weft-ticks"]


def test_the_first_tick_comes_after_the_jittered_part_of_the_interval() -> None:
    ticked = threading.Event()

    ticks = ThreadScheduler(jitter=lambda: 0.0).every(HOUR, ticked.set)

    assert ticked.wait(10)
    ticks.cancel()


def test_ticks_go_on_at_the_interval() -> None:
    ticked = threading.Semaphore(0)

    ticks = ThreadScheduler().every(MILLISECOND, ticked.release)

    assert all(ticked.acquire(timeout=10) for _ in range(3))
    ticks.cancel()


def test_a_callback_that_hangs_holds_up_no_later_tick() -> None:
    began, release = threading.Semaphore(0), threading.Event()

    def hang() -> None:
        began.release()
        release.wait()

    ticks = ThreadScheduler().every(MILLISECOND, hang)

    assert all(began.acquire(timeout=10) for _ in range(3))
    ticks.cancel()
    release.set()


def test_a_cancelled_schedule_ticks_no_more_and_leaves_no_thread() -> None:
    before, ticked = ticking_threads(), threading.Event()
    ticks = ThreadScheduler(jitter=lambda: 1.0).every(HOUR, ticked.set)
    (mine,) = (thread for thread in ticking_threads() if thread not in before)

    ticks.cancel()
    ticks.cancel()
    mine.join(10)

    assert not mine.is_alive()
    assert not ticked.is_set()


def test_a_tick_without_a_thread_to_run_on_is_logged_and_later_ticks_come(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ticked, start, refusals = threading.Event(), threading.Thread.start, iter([1])

    def refuse_first_tick(thread: threading.Thread) -> None:
        if thread.name == "weft-tick" and next(refusals, None):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_first_tick)
    ticks = ThreadScheduler().every(MILLISECOND, ticked.set)

    assert ticked.wait(10)
    ticks.cancel()
    assert "a tick was left out" in caplog.text


def test_the_suite_ticks_on_threads_by_default() -> None:
    done, heard = threading.Event(), Heard()

    def sink(report: object) -> None:
        heard(report)
        done.set()

    suite = ClaimRenewalTask(Targets(renewal=RenewalFake()), SystemClock(), MILLISECOND, on_pass_complete=sink)
    suite.start()

    assert done.wait(10)
    assert suite.stop(timeout=timedelta(seconds=10)) is True
    assert set(heard.kinds) == {PassKind.RENEWAL}
