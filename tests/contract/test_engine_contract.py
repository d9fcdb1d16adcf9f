"""Engines: heartbeats and the witnessed clock, one per node, drain and stop, clean-up (O3, O6, O12), on both stores."""

from __future__ import annotations

from datetime import timedelta

import pytest
from beds import BEAT, MS, START, Bed, G, R, StoreBed, T
from sqlalchemy import select, update

from weft_tasks.errors import DuplicateNodeError
from weft_tasks.model import EngineStatus
from weft_tasks.store.engines import CLEAN_UP_AFTER_TTLS, EngineInfo
from weft_tasks.store.tables import clock as witnessed_clock
from weft_tasks.store.tables import engine_types, workflows

LONG_GONE = CLEAN_UP_AFTER_TTLS * T


def witnessed(bed: StoreBed) -> timedelta:
    """What the witnessed clock's row shows."""
    ((shown,),) = bed.rows(select(witnessed_clock.c.witnessed))
    return timedelta(milliseconds=shown)


def only(bed: StoreBed, engine_id: str = "a") -> EngineInfo:
    (found,) = (info for info in bed.engines.list() if info.id == engine_id)
    return found


# -- register ----------------------------------------------------------------------------------------------------------


def test_a_registered_engine_is_live_with_its_types_and_a_heartbeat_of_this_moment(store_bed: StoreBed) -> None:
    store_bed.engine("a", "permit", "invoice", "permit", node="n1")
    info = only(store_bed)
    assert (info.node, info.status, info.types) == ("n1", EngineStatus.LIVE, ("invoice", "permit"))
    assert (info.started_at, info.heartbeat_at, info.silence_ms) == (START, START, 0)
    assert (info.beat, info.free_slots, info.is_deaf, info.claims) == (0, 2, False, 0)


def test_an_engine_may_know_no_type_at_all(store_bed: StoreBed) -> None:
    store_bed.engines.register("a", node="n", host="h", pid=1, types=(), slots=1)
    assert only(store_bed).types == ()


def test_a_second_live_engine_under_a_node_name_is_refused_with_both_ids(bed: Bed) -> None:
    bed.engine("a", node="n1")
    with pytest.raises(DuplicateNodeError, match=r"n1.*engine a .*engine b ") as refused:
        bed.engine("b", node="n1")
    assert (refused.value.live_engine_id, refused.value.refused_engine_id) == ("a", "b")
    assert bed.engines.live_on("n1") == "a"
    bed.held()
    assert bed.claim().engine_id == "a"


def test_a_refused_engine_leaves_nothing_behind(store_bed: StoreBed) -> None:
    store_bed.engine("a", node="n1")
    with pytest.raises(DuplicateNodeError):
        store_bed.engine("b", "invoice", node="n1")
    assert [info.id for info in store_bed.engines.list()] == ["a"]
    assert store_bed.rows(select(engine_types.c.type)) == [("permit",)]


@pytest.mark.parametrize("verb", ["drain", "stop"])
def test_an_engine_that_drains_or_has_stopped_leaves_its_node_name_to_the_next(bed: Bed, verb: str) -> None:
    bed.engine("a", node="n1")
    getattr(bed.engines, verb)("a")
    assert bed.engines.live_on("n1") is None
    bed.engine("b", node="n1")
    assert bed.engines.live_on("n1") == "b"


def test_a_silent_engine_keeps_its_node_name_until_somebody_stops_it(store_bed: StoreBed) -> None:
    store_bed.engine("a", node="n1")
    store_bed.engine("other")
    store_bed.live_through(2 * (T + G), "other")
    with pytest.raises(DuplicateNodeError):
        store_bed.engine("b", node="n1")
    assert store_bed.engines.stop_unless_beating("a", store_bed.engines.beat_of("a"))
    store_bed.engine("b", node="n1")


def test_a_predecessor_that_has_beaten_since_is_not_stopped(store_bed: StoreBed) -> None:
    store_bed.engine("a", node="n1")
    seen = store_bed.engines.beat_of("a")
    store_bed.beat("a")
    assert not store_bed.engines.stop_unless_beating("a", seen)
    assert only(store_bed).status is EngineStatus.LIVE


def test_the_beat_of_an_engine_that_nobody_knows_is_none(store_bed: StoreBed) -> None:
    assert store_bed.engines.beat_of("nobody") is None


# -- heartbeat ---------------------------------------------------------------------------------------------------------


def test_a_heartbeat_writes_both_times_the_slots_and_counts_itself(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.advance(BEAT)
    assert store_bed.engines.heartbeat("a", free_slots=1, in_hand=["t1"]) == "alive"
    info = only(store_bed)
    assert (info.heartbeat_at, info.silence_ms, info.beat, info.free_slots) == (START + BEAT, 0, 1, 1)


def test_a_heartbeat_of_an_engine_that_drains_says_so_and_still_counts(bed: Bed) -> None:
    bed.engine("a")
    bed.held()
    bed.engines.drain("a")
    bed.advance(timedelta(seconds=3))
    assert bed.engines.heartbeat("a", free_slots=0, in_hand=()) == "draining"
    for held in bed.claims.list_held():
        bed.claims.renew(held)
    assert bed.claim().expires_at == START + timedelta(seconds=3) + T


def test_a_heartbeat_of_a_stopped_engine_or_of_one_without_a_row_says_gone_and_revives_nothing(bed: Bed) -> None:
    bed.engine("a")
    bed.engines.stop("a")
    assert bed.engines.heartbeat("a", free_slots=1, in_hand=()) == "gone"
    assert bed.engines.live_on("a@host") is None
    assert bed.engines.heartbeat("nobody", free_slots=1, in_hand=()) == "gone"


def test_a_stopped_engine_does_not_become_a_draining_one(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engines.stop("a")
    store_bed.engines.drain("a")
    assert only(store_bed).status is EngineStatus.STOPPED


def test_engines_are_listed_oldest_first_with_their_claims_and_their_silence(store_bed: StoreBed) -> None:
    store_bed.engine("b")
    store_bed.advance(timedelta(seconds=1))
    store_bed.engine("a")
    for workflow_id in ("w1", "w2"):
        store_bed.held(workflow_id, "b")
    store_bed.live_through(timedelta(seconds=4), "a")
    assert [(e.id, e.claims, e.silence_ms) for e in store_bed.engines.list()] == [("b", 2, 5000), ("a", 0, 0)]


# -- the witnessed clock -------------------------------------------------------------------------------------------


def test_each_heartbeat_moves_the_witnessed_clock_by_the_time_since_the_last_one_of_any_engine(
    store_bed: StoreBed,
) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    start = witnessed(store_bed)
    for engine_id, passed in (("a", 1000), ("b", 700), ("a", 1), ("b", 4999)):
        before = witnessed(store_bed)
        store_bed.advance(passed * MS)
        store_bed.beat(engine_id)
        assert witnessed(store_bed) - before == passed * MS
    assert witnessed(store_bed) - start == 6700 * MS


@pytest.mark.parametrize("gap", [R, R + MS, timedelta(days=400)], ids=["R", "R + 1 ms", "400 days"])
def test_one_heartbeat_moves_the_witnessed_clock_by_R_at_most(store_bed: StoreBed, gap: timedelta) -> None:
    store_bed.engine("a")
    before = witnessed(store_bed)
    store_bed.advance(gap)
    store_bed.beat("a")
    assert witnessed(store_bed) - before == R
    store_bed.beat("a")
    assert witnessed(store_bed) - before == R


def test_the_first_engine_of_a_new_store_moves_it_by_R_at_most(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    assert witnessed(store_bed) <= R


def test_the_witnessed_clock_never_goes_back_and_goes_on_from_where_the_databases_clock_was_set_to(
    store_bed: StoreBed,
) -> None:
    store_bed.engine("a")
    before = witnessed(store_bed)
    store_bed.advance(-timedelta(days=1))
    store_bed.beat("a")
    assert witnessed(store_bed) == before
    store_bed.advance(BEAT)
    store_bed.beat("a")
    assert witnessed(store_bed) - before == BEAT


def test_the_witnessed_clock_stands_still_while_no_engine_beats(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.advance(R)
    assert only(store_bed).silence_ms == 5000
    store_bed.advance(timedelta(hours=5))
    assert only(store_bed).silence_ms == 5000, "no reader sees it move by more than R either"


def test_a_reader_never_sees_it_behind_its_row_although_the_databases_clock_was_set_back(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.advance(-timedelta(hours=1))
    assert only(store_bed).silence_ms == 0


def test_a_registration_is_a_heartbeat_too(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    before = witnessed(store_bed)
    store_bed.advance(BEAT)
    store_bed.engine("b")
    assert witnessed(store_bed) - before == BEAT


# -- clean-up ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def gone(store_bed: StoreBed) -> StoreBed:
    """Engine a was stopped exactly as long ago as clean-up waits; b has beaten ever since."""
    store_bed.engine("a", "permit", "invoice")
    store_bed.engine("b")
    store_bed.engines.stop("a")
    store_bed.live_through(LONG_GONE, "b")
    return store_bed


def test_an_engine_long_gone_is_cleaned_up_with_its_types_and_not_a_moment_sooner(gone: StoreBed) -> None:
    assert gone.engines.clean_up() == ()
    gone.advance(MS)
    assert gone.engines.clean_up() == ("a",)
    assert [e.id for e in gone.engines.list()] == ["b"]
    assert gone.rows(select(engine_types.c.engine_id)) == [("b",)]
    assert gone.engines.clean_up() == ()


def test_a_killed_engine_that_nobody_stopped_is_cleaned_up_as_well(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    store_bed.live_through(LONG_GONE + MS, "b")
    assert store_bed.engines.clean_up() == ("a",)


def test_an_engine_is_not_cleaned_up_while_a_claim_names_it(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    held = store_bed.parked("w", "a")
    store_bed.live_through(LONG_GONE + MS, "b")
    assert store_bed.engines.clean_up() == ()
    store_bed.claims.take_over("w", store_bed.message().run_id, "a", held.epoch, "b")
    assert store_bed.engines.clean_up() == ("a",)


@pytest.mark.parametrize("table", ["weft_claims", "weft_workflows"])
def test_either_table_that_names_an_engine_keeps_it(store_bed: StoreBed, table: str) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    store_bed.parked("w", "a")
    if table == "weft_claims":
        store_bed.write(update(workflows).values(engine_id=None))
    else:
        store_bed.execute("DELETE FROM weft_claims")
    store_bed.live_through(LONG_GONE + MS, "b")
    assert store_bed.engines.clean_up() == ()


def test_an_outage_makes_no_engine_look_long_gone(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    store_bed.advance(10 * LONG_GONE)
    store_bed.beat("b")
    assert store_bed.engines.clean_up() == ()


def test_a_clock_set_back_delays_the_clean_up_and_breaks_nothing(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    store_bed.advance(-LONG_GONE)
    store_bed.live_through(LONG_GONE + 2 * R, "b")
    assert store_bed.engines.clean_up() == (), "a's heartbeat is ten seconds old by the clock as it now is"
    store_bed.live_through(LONG_GONE, "b")
    assert store_bed.engines.clean_up() == ("a",)
