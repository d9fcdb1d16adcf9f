"""Pass marks: a pass that began less than R/2 ago is skipped and counted; requests and results (O2), on both stores."""

from __future__ import annotations

from datetime import timedelta

import pytest
from beds import MS, SECOND, START, R

from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.store.pass_marks import RUN_ONCE

KINDS = ("renewal", "reclaim", "signal-poll", "update-poll", RUN_ONCE)


def test_a_new_store_has_a_mark_for_every_kind_of_pass_and_none_has_run(store: Store) -> None:
    marks = store.pass_marks.read_all()
    assert set(marks) == set(KINDS)
    for mark in marks.values():
        assert (mark.began_at, mark.finished_at, mark.began_ago_ms, mark.token, mark.result) == (None,) * 5
        assert (mark.skipped, mark.requested) == (0, 0)


def test_the_first_pass_begins_and_says_who_runs_it(store: Store) -> None:
    assert store.pass_marks.begin("renewal", "t1")
    mark = store.pass_marks.read("renewal")
    assert (mark.began_at, mark.began_ago_ms, mark.token) == (START, 0, "t1")


def test_a_pass_that_began_less_than_half_an_interval_ago_is_not_begun_again(store: Store, clock: ManualClock) -> None:
    store.pass_marks.begin("renewal", "t1")
    for age in (timedelta(0), R / 2 - MS):
        clock.advance(age)
        assert not store.pass_marks.begin("renewal", "t2")
    assert store.pass_marks.read("renewal").token == "t1"
    clock.advance(MS)
    assert store.pass_marks.begin("renewal", "t2")
    assert store.pass_marks.read("renewal").token == "t2"


def test_the_passes_of_one_kind_say_nothing_about_another(store: Store) -> None:
    assert [store.pass_marks.begin(kind, "t") for kind in KINDS] == [True] * len(KINDS)


def test_a_mark_from_the_future_counts_as_old_because_the_clock_was_set_back(store: Store, clock: ManualClock) -> None:
    store.pass_marks.begin("renewal", "t1")
    clock.advance(-MS)
    assert store.pass_marks.begin("renewal", "t2")
    assert not store.pass_marks.begin("renewal", "t3")


def test_an_explicit_caller_begins_however_recent_the_last_one_is(store: Store) -> None:
    store.pass_marks.begin(RUN_ONCE, "t1")
    assert store.pass_marks.begin(RUN_ONCE, "t2", even_if_recent=True)
    assert store.pass_marks.read(RUN_ONCE).token == "t2"


def test_a_kind_of_pass_that_nobody_knows_begins_nothing(store: Store) -> None:
    assert not store.pass_marks.begin("coffee", "t", even_if_recent=True)


def test_a_result_is_kept_with_its_time(store: Store, clock: ManualClock) -> None:
    store.pass_marks.begin("renewal", "t1")
    clock.advance(timedelta(seconds=1))
    store.pass_marks.finish("renewal", "t1", '{"renewed": 3}', took=SECOND)
    mark = store.pass_marks.read("renewal")
    assert (mark.result, mark.finished_at) == ({"renewed": 3}, START + timedelta(seconds=1))
    assert mark.began_ago_ms == 1000


def test_a_result_that_comes_after_the_next_pass_began_is_not_taken_for_that_ones(
    store: Store, clock: ManualClock
) -> None:
    store.pass_marks.begin("renewal", "hung")
    clock.advance(R)
    store.pass_marks.begin("renewal", "next")
    store.pass_marks.finish("renewal", "hung", '{"renewed": 0}', took=SECOND)
    assert store.pass_marks.read("renewal").result is None
    store.pass_marks.finish("renewal", "next", "{}", took=2 * SECOND)
    mark = store.pass_marks.read("renewal")
    assert mark.result == {}
    assert (mark.runs, mark.ran_ms) == (2, 3000)


def test_the_result_of_an_earlier_pass_is_not_taken_for_that_of_the_one_that_runs(store: Store) -> None:
    store.pass_marks.begin(RUN_ONCE, "earlier")
    store.pass_marks.finish(RUN_ONCE, "earlier", '{"seconds": 1}', took=SECOND)
    store.pass_marks.begin(RUN_ONCE, "running", even_if_recent=True)
    mark = store.pass_marks.read(RUN_ONCE)
    assert (mark.token, mark.result, mark.finished_at) == ("running", None, None)


@pytest.mark.parametrize(("verb", "counter"), [("count_skip", "skipped"), ("request", "requested")])
def test_skips_and_requests_are_counted_each_for_its_kind(store: Store, verb: str, counter: str) -> None:
    for _ in range(3):
        getattr(store.pass_marks, verb)("reclaim")
    counts = {kind: getattr(mark, counter) for kind, mark in store.pass_marks.read_all().items()}
    assert counts == {**dict.fromkeys(KINDS, 0), "reclaim": 3}
