"""More at once than one pass or one statement takes, on both stores: the rest comes next, nothing waits for ever."""

from __future__ import annotations

from typing import Any

import pytest
from beds import DEAF_AFTER, MS, R, StoreBed
from sqlalchemy import event

from weft_tasks.celery_host.ticks import Ticks
from weft_tasks.errors import StoreUnavailable
from weft_tasks.events import Events
from weft_tasks.locks import AlwaysYes
from weft_tasks.passes.clock import SystemClock
from weft_tasks.passes.reclaim import reclaim_claims
from weft_tasks.passes.sweep import PassContext
from weft_tasks.results import PassKind, PassResult, ReclaimStatus
from weft_tasks.settings import Settings
from weft_tasks.store import claims, workflows

PASSES = 100
"""Whatever could be handled is chosen by chance within as many, but once in more than 10^20 runs."""


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> int:
    """A pass lists five."""
    monkeypatch.setattr(workflows, "MOST_CANDIDATES", 5)
    return 5


def reclaim(bed: StoreBed) -> PassResult[ReclaimStatus]:
    return reclaim_claims(bed.targets().reclaim, PassContext(clock=SystemClock()))


# -- the reclaim pass


def test_a_pass_moves_as_many_as_it_lists_and_the_next_one_goes_on(store_bed: StoreBed, cut: int) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    store_bed.many_held("a", 2 * cut + 2)
    store_bed.engines.stop("a")
    assert [reclaim(store_bed).count(ReclaimStatus.RECLAIMED) for _ in range(4)] == [cut, cut, 2, 0]
    assert {claim.engine_id for claim in store_bed.claims.list_held()} == {"b"}


def test_many_that_nobody_can_run_do_not_keep_others_from_their_turn(store_bed: StoreBed, cut: int) -> None:
    store_bed.engine("a", "permit", "other")
    for n in range(4 * cut):
        store_bed.acquired(store_bed.start(f"nobody{n}", "other"), "a")
    for n in range(cut):
        store_bed.held(f"w{n}", "a")
    store_bed.engine("b", "permit")
    store_bed.engines.stop("a")
    moved = sum(reclaim(store_bed).count(ReclaimStatus.RECLAIMED) for _ in range(PASSES))
    assert moved == cut


def test_engines_that_are_deaf_do_not_take_each_others_workflows_if_the_list_is_cut(
    store_bed: StoreBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "MOST_CANDIDATES", 1)
    for id, engine in (("v", "a"), ("w", "b")):
        store_bed.engine(engine)
        store_bed.held(id, engine)
    for _ in range(DEAF_AFTER):
        store_bed.live_through(R + MS, "a", "b")
        for id in ("v", "w"):
            store_bed.dispatch(id)
    for _ in range(10):
        reclaim(store_bed)
    assert [store_bed.row(id).engine_id for id in ("v", "w")] == ["a", "b"]


def ticks_of(bed: StoreBed) -> Ticks:
    return Ticks(
        store=bed.store,
        locks=AlwaysYes(),
        run_once_locks=AlwaysYes(),
        context=PassContext(clock=SystemClock()),
        settings=Settings(database_url=bed.store.database.engine.url.render_as_string(hide_password=False)),
        send_turn=lambda message: True,
        follow_up=lambda changed: None,
        events=Events(),
        node="here",
    )


def test_a_pass_that_has_moved_all_it_listed_runs_again_right_after(store_bed: StoreBed, cut: int) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    store_bed.many_held("a", 2 * cut + 2)
    store_bed.engines.stop("a")
    assert ticks_of(store_bed).tick(PassKind.RECLAIM)["counts"] == {"reclaimed": 2}
    assert {claim.engine_id for claim in store_bed.claims.list_held()} == {"b"}
    assert store_bed.store.pass_marks.read("reclaim").runs == 3


def test_a_pass_that_can_move_nothing_of_what_it_listed_waits_for_its_next_tick(store_bed: StoreBed, cut: int) -> None:
    store_bed.engine("a")
    store_bed.many_held("a", 2 * cut + 2)
    store_bed.engines.stop("a")
    assert ticks_of(store_bed).tick(PassKind.RECLAIM)["counts"] == {"not-eligible": cut}
    assert store_bed.store.pass_marks.read("reclaim").runs == 1


# -- a clean stop


@pytest.fixture
def held(store_bed: StoreBed, monkeypatch: pytest.MonkeyPatch) -> StoreBed:
    """An engine that holds 25, of which a statement takes 10."""
    monkeypatch.setattr(claims, "SLICE", 10)
    store_bed.engine("a")
    store_bed.many_held("a", 25)
    return store_bed


@pytest.mark.parametrize("verb", ["release_idle", "release_all"])
def test_an_engine_that_holds_many_releases_them_in_transactions_of_a_slice(held: StoreBed, verb: str) -> None:
    commits: list[Any] = []
    event.listen(held.store.database.engine, "commit", commits.append)
    assert getattr(held.claims, verb)("a") == 25
    assert len(commits) == 3
    assert held.claims.list_held() == ()


def test_what_was_released_before_the_store_went_away_stays_released(held: StoreBed) -> None:
    begun = 0

    def fail(_connection: Any) -> None:
        nonlocal begun
        begun += 1
        if begun == 3:
            raise StoreUnavailable("gone")

    engine = held.store.database.engine
    event.listen(engine, "begin", fail)
    try:
        with pytest.raises(StoreUnavailable):
            held.claims.release_all("a")
    finally:
        event.remove(engine, "begin", fail)
    assert len(held.claims.list_held()) == 5
    assert held.claims.release_all("a") == 5
