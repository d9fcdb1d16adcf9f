"""Four shards on both stores: each pass handles its own part and nothing else, and together they handle everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from beds import DEAF_AFTER, MS, SECOND, G, R, StoreBed, T
from sqlalchemy import event, update

from weft_tasks.celery_host.ticks import Ticks
from weft_tasks.events import Events
from weft_tasks.locks import Acquisition, AlwaysYes, FlightOutcome, SingleFlight
from weft_tasks.passes.clock import SystemClock
from weft_tasks.passes.reclaim import reclaim_claims
from weft_tasks.passes.sweep import PassContext
from weft_tasks.results import PassKind
from weft_tasks.settings import Settings
from weft_tasks.shards import WHOLE, Shard, shards_of
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.store.tables import workflows

IDS = tuple(f"w{n}" for n in range(24))
FOUR = shards_of(4)
LISTS: dict[str, Callable[[Store, Shard], Iterable[Any]]] = {
    "held claims": lambda store, shard: store.claims.list_held(shard),
    "reclaim candidates": lambda store, shard: store.workflows.list_reclaim_candidates(shard),
    "waits": lambda store, shard: store.signals.list_waiting(shard),
    "ready waits": lambda store, shard: store.signals.list_ready(shard),
    "pending updates": lambda store, shard: store.updates.list_held_with_pending(shard),
    "overdue ends": lambda store, shard: store.lifecycle.list_overdue_ends(shard),
}


@pytest.fixture
def busy(store_bed: StoreBed) -> StoreBed:
    """Every list has every workflow: held by a silent engine, with a signal and an update whose messages were lost, and
    its time is up."""
    store_bed.engine("a")
    store_bed.engine("b")
    for id in IDS:
        store_bed.parked(id, "a", "go")
        store_bed.signal(id, "go")
        store_bed.store.updates.send(id, "ask", "null", key=None)
    store_bed.write(update(workflows).values(due=False, end_by_at=0))
    store_bed.live_through(T + G + R + SECOND, "b")
    return store_bed


@pytest.mark.parametrize("name", LISTS)
def test_each_shard_lists_its_own_workflows_and_all_of_them_together_everything(busy: StoreBed, name: str) -> None:
    for shard in FOUR:
        own = [id for id in IDS if shard.has(id)]
        assert own, "a shard without workflows shows nothing"
        assert sorted(found.workflow_id for found in LISTS[name](busy.store, shard)) == sorted(own)
    assert sorted(found.workflow_id for found in LISTS[name](busy.store, WHOLE)) == sorted(IDS)


@pytest.mark.parametrize("name", LISTS)
def test_the_whole_store_is_listed_without_any_condition_on_buckets(store_bed: StoreBed, name: str) -> None:
    def statements_for(shard: Shard) -> str:
        seen: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            seen.append(statement)

        engine = store_bed.store.database.engine
        event.listen(engine, "before_cursor_execute", note)
        try:
            LISTS[name](store_bed.store, shard)
        finally:
            event.remove(engine, "before_cursor_execute", note)
        return " ".join(seen)

    assert "bucket" in statements_for(Shard(1, 4))
    assert "bucket" not in statements_for(WHOLE)


def test_a_shard_counts_its_own_claims_so_that_passes_side_by_side_spread_evenly(busy: StoreBed) -> None:
    shard = FOUR[2]
    busy.beat("a")
    loads = {load.engine_id: load.claims for load in busy.store.workflows.list_engines_taking_work(shard)}
    assert loads == {"a": sum(map(shard.has, IDS)), "b": 0}


def test_two_engines_that_are_deaf_in_different_shards_do_not_take_each_others_workflows(store_bed: StoreBed) -> None:
    shards = shards_of(2)
    ids = [next(id for id in IDS if shard.has(id)) for shard in shards]
    for id, engine in zip(ids, ("a", "b"), strict=True):
        store_bed.engine(engine)
        store_bed.held(id, engine)
    for _ in range(DEAF_AFTER):
        store_bed.live_through(R + MS, "a", "b")
        for id in ids:
            store_bed.dispatch(id)
    assert set(store_bed.candidates().values()) == {"deaf-holder"}
    for shard in shards:
        reclaim_claims(store_bed.targets(shard).reclaim, PassContext(clock=SystemClock()))  # type: ignore[type-var]
    assert [store_bed.row(id).engine_id for id in ids] == ["a", "b"]


# -- ticks


class Held(AlwaysYes):
    """A lock server on which somebody holds some names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def acquire(self, name: str, token: str) -> Acquisition:
        if name in self._names:
            return Acquisition(outcome=FlightOutcome.HELD_BY_ANOTHER)
        return super().acquire(name, token)


def ticks_of(bed: StoreBed, clock: ManualClock, locks: SingleFlight, tidied: list[str]) -> Ticks:
    """The passes of a deployment with four shards on the bed's store."""
    settings = Settings(database_url=bed.store.database.engine.url.render_as_string(hide_password=False), shards=4)
    marks = type(bed.store.pass_marks)(bed.store.database, clock, settings)
    return Ticks(
        store=replace(bed.store, pass_marks=marks),
        locks=locks,
        run_once_locks=AlwaysYes(),
        context=PassContext(clock=SystemClock()),
        settings=settings,
        send_turn=lambda message: True,
        follow_up=lambda changed: None,
        events=Events(),
        node="here",
        after_reclaim=lambda: tidied.append("tidied"),
    )


def test_two_shards_of_a_pass_run_at_once_and_the_same_one_does_not(store_bed: StoreBed, clock: ManualClock) -> None:
    store_bed.engine("a")
    for id in IDS:
        store_bed.held(id, "a")
    ticks = ticks_of(store_bed, clock, Held("renewal[1/4]"), [])
    assert ticks.tick(PassKind.RENEWAL, FOUR[1])["skipped"] == "running"
    for shard in (FOUR[0], FOUR[2], FOUR[3]):
        report = ticks.tick(PassKind.RENEWAL, shard)
        assert (report["pass"], report["counts"]) == (
            f"renewal[{shard.index}/4]",
            {"renewed": sum(map(shard.has, IDS))},
        )
    assert ticks.tick(PassKind.RENEWAL, FOUR[2])["skipped"] == "recent"
    # An old message is for the whole store, whose lock and mark are its own.
    assert ticks.tick(PassKind.RENEWAL)["counts"] == {"renewed": len(IDS)}


def test_run_once_runs_every_pass_of_every_shard_and_tidies_up_once(busy: StoreBed, clock: ManualClock) -> None:
    tidied: list[str] = []
    ticks = ticks_of(busy, clock, AlwaysYes(), tidied)
    report = ticks.run_once()
    assert [part["pass"] for part in report["run_once"]] == [
        f"{kind}[{k}/4]" for k in range(4) for kind in ("renewal", "reclaim", "signal-poll", "update-poll")
    ]
    counts = dict.fromkeys(("renewed", "reclaimed"), 0)
    for part in report["run_once"]:
        for kind in counts:
            counts[kind] += part["counts"].get(kind, 0)
    assert counts == {"renewed": len(IDS), "reclaimed": len(IDS)}
    assert (report["failed"], tidied) == ([], ["tidied"])


def test_the_marks_that_are_shown_are_those_of_the_shards_there_are(store_bed: StoreBed, clock: ManualClock) -> None:
    ticks = ticks_of(store_bed, clock, AlwaysYes(), [])
    ticks.tick(PassKind.RECLAIM, FOUR[3])
    marks = ticks._store.pass_marks.read_all()
    names = [f"{kind.value}[{k}/4]" for kind in PassKind for k in range(4)]
    assert list(marks) == [*names, "run-once"]
    assert [name for name, mark in marks.items() if mark.runs] == ["reclaim[3/4]"]
    assert list(store_bed.store.pass_marks.read_all()) == [*(kind.value for kind in PassKind), "run-once"]
