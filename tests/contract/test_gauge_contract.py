"""How the fleet stands, as numbers, and what they cost: not the workflows that are parked."""

from __future__ import annotations

from collections.abc import Callable

from beds import SECOND, G, R, StoreBed, T
from sqlalchemy import update
from test_cost_contract import instructions

from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.store.gauges import EngineState, FleetGauges
from weft_tasks.store.tables import workflows


def gauges(bed: StoreBed) -> FleetGauges:
    return bed.store.gauges.read()


def states(bed: StoreBed) -> dict[EngineState, int]:
    """Those that an engine is in."""
    return {state: count for state, count in gauges(bed).engines.items() if count}


def test_a_new_store_has_nothing_and_says_so_of_every_state(store_bed: StoreBed) -> None:
    read = gauges(store_bed)
    assert read.engines == dict.fromkeys(EngineState, 0)
    assert (read.claims, read.heartbeat_ages, read.set_aside, read.suspended, read.types) == ({}, {}, {}, {}, ())
    assert (read.free_slots, read.stranded, read.due, read.unowned) == (0, 0, 0, 0)
    assert (read.signals_pending, read.updates_pending) == (0, 0)


def test_an_engine_that_falls_silent_is_alive_then_late_then_silent(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    assert states(store_bed) == {EngineState.ALIVE: 2}
    assert gauges(store_bed).free_slots == 4
    store_bed.live_through(G + SECOND, "b")
    assert states(store_bed) == {EngineState.ALIVE: 1, EngineState.LATE: 1}
    assert gauges(store_bed).free_slots == 2
    store_bed.live_through(T, "b")
    assert states(store_bed) == {EngineState.ALIVE: 1, EngineState.SILENT: 1}


def test_an_engine_that_drains_counts_as_such_and_one_that_stopped_as_none(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engines.drain("a")
    assert states(store_bed) == {EngineState.DRAINING: 1}
    store_bed.engines.stop("a")
    assert states(store_bed) == {}
    assert gauges(store_bed).heartbeat_ages == {}


def test_an_engine_that_takes_no_turns_is_deaf(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engines.mark_deaf("a")
    assert states(store_bed) == {EngineState.DEAF: 1}


def test_heartbeats_have_an_age_by_node_that_of_the_newest_engine(store_bed: StoreBed) -> None:
    store_bed.engine("old", node="n@host")
    store_bed.engines.drain("old")
    store_bed.advance(2 * SECOND)
    store_bed.engine("new", node="n@host")
    store_bed.advance(SECOND)
    assert gauges(store_bed).heartbeat_ages == {"n@host": 1.0}


def test_claims_count_by_node_and_those_of_holders_that_died_as_stranded(store_bed: StoreBed) -> None:
    for engine in ("a", "b", "c"):
        store_bed.engine(engine)
        store_bed.held(f"of-{engine}", engine)
    store_bed.held("another", "a")
    assert gauges(store_bed).claims == {"a@host": 2, "b@host": 1, "c@host": 1}
    assert gauges(store_bed).stranded == 0
    store_bed.live_through(T + G + R, "c")
    store_bed.remove_engine("b")
    assert gauges(store_bed).claims == {"a@host": 2, "": 1, "c@host": 1}
    assert gauges(store_bed).stranded == 3


def test_workflows_that_may_run_and_do_not_are_due(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.parked("parked", "a")
    assert (gauges(store_bed).due, gauges(store_bed).unowned) == (0, 0)
    store_bed.start("offered")
    store_bed.held("running", "a")
    assert (gauges(store_bed).due, gauges(store_bed).unowned) == (2, 1)
    store_bed.begin("running")
    assert gauges(store_bed).due == 1


def test_workflows_that_wait_for_somebody_are_counted_by_type(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    for id, type_name in (("w1", "permit"), ("w2", "order"), ("w3", "order"), ("w4", "order")):
        store_bed.start(id, type_name)
    for id, status in (("w1", "set-aside"), ("w2", "set-aside"), ("w3", "set-aside"), ("w4", "suspended")):
        store_bed.write(update(workflows).where(workflows.c.id == id).values(status=status))
    read = gauges(store_bed)
    assert read.set_aside == {"permit": 1, "order": 2}
    assert read.suspended == {"order": 1}


def test_signals_and_updates_that_wait_are_counted(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.parked("w", "a", "paid")
    store_bed.signal("w", "note")
    store_bed.store.updates.send("w", "ask", "null", key=None)
    read = gauges(store_bed)
    assert (read.signals_pending, read.updates_pending) == (1, 1)
    assert read.types == ("permit",)


def test_reading_them_costs_little_more_with_thirty_times_as_many_parked_workflows(
    fresh_store: Callable[[str], tuple[Store, ManualClock]],
) -> None:
    costs = []
    for parked in (100, 3000):
        bed = StoreBed(*fresh_store("sqlite"))
        bed.engine("a")
        bed.many_held("a", parked)
        bed.live_through(R, "a")
        costs.append(instructions(bed.store, lambda store: store.gauges.read()))
    few, many = costs
    # Its claims are counted along an index: in hundreds of instructions, well under a tenth of one for each.
    assert many < few + 3000 / 5
