"""Workflows: start under the epoch floor, describe, list by page, purge and use an id again (O7), on both stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from beds import MS, START, R, StoreBed, parked
from sqlalchemy import select, update

from weft_tasks.errors import WorkflowAlreadyExists, WorkflowNotFound
from weft_tasks.model import NewWorkflow, WorkflowStatus
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.store.tables import engines, history, outbox, passes, signals, store, turns, updates, workflows
from weft_tasks.store.turns import BegunTurn, Discard, TurnOutcome
from weft_tasks.store.workflows import EngineLoad

COMPLETED = TurnOutcome(status=WorkflowStatus.COMPLETED, state_json="{}")


def floor(bed: StoreBed) -> int:
    ((value,),) = bed.rows(select(store.c.epoch_floor))
    return int(value)


def begun(bed: StoreBed, workflow_id: str = "w") -> BegunTurn:
    answer = bed.store.turns.begin(bed.message(workflow_id), "task")
    assert isinstance(answer, BegunTurn), answer
    return answer


def ended(bed: StoreBed, workflow_id: str = "w") -> None:
    """Started, held and completed."""
    bed.held(workflow_id, "a")
    bed.begin(workflow_id)
    bed.end(workflow_id)


def purge(bed: StoreBed) -> int:
    """Whatever has ended until now."""
    bed.advance(MS)
    return bed.store.lifecycle.purge(older_than=timedelta(0))


# -- start -------------------------------------------------------------------------------------------------------------


def test_a_started_workflow_is_running_and_due_without_a_holder(store_bed: StoreBed) -> None:
    message = store_bed.store.workflows.start("w", "permit", '{"n":1}')
    assert (message.workflow_id, message.engine_id, message.epoch, message.turn) == ("w", None, 0, 0)
    info = store_bed.store.workflows.describe("w")
    assert (info.id, info.type, info.run_id, info.status) == ("w", "permit", message.run_id, WorkflowStatus.RUNNING)
    assert (info.engine_id, info.epoch, info.turn, info.is_due) == (None, 0, 0, True)
    assert (info.input, info.state, info.result, info.error) == ({"n": 1}, {}, None, None)
    assert (info.waits, info.pending_signals, info.pending_updates) == ((), 0, 0)
    assert (info.created_at, info.updated_at, info.ended_at) == (START, START, None)


def test_every_start_gets_a_run_id_of_its_own(store_bed: StoreBed) -> None:
    assert store_bed.start("one").run_id != store_bed.start("two").run_id


def test_an_id_that_is_taken_is_refused_with_its_status_and_nothing_changes(store_bed: StoreBed) -> None:
    store_bed.start()
    before = store_bed.everything()
    with pytest.raises(WorkflowAlreadyExists, match="running"):
        store_bed.start("w", "other")
    assert store_bed.everything() == before


def test_an_id_whose_workflow_has_ended_is_taken_as_well(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    ended(store_bed)
    with pytest.raises(WorkflowAlreadyExists, match="completed"):
        store_bed.start()


def test_a_start_within_a_callers_transaction_stands_if_that_commits(store_bed: StoreBed) -> None:
    with store_bed.store.database.engine.connect() as connection:
        with connection.begin() as transaction:
            store_bed.store.workflows.start("w", "permit", "null", connection)
            transaction.rollback()
        with pytest.raises(WorkflowNotFound):
            store_bed.store.workflows.describe("w")
        with connection.begin():
            store_bed.store.workflows.start("w", "permit", "null", connection)
    assert store_bed.row().is_due


# -- the same id again (field report 85) ----------------------------------------------------------------------------


def test_a_new_workflow_starts_at_the_floor_and_a_purge_lifts_it_to_the_highest_epoch_it_deletes(
    store_bed: StoreBed,
) -> None:
    store_bed.engine("a")
    ended(store_bed, "low")
    store_bed.start("w")
    for _ in range(3):
        store_bed.acquired(store_bed.message("w"), "a")
        store_bed.claims.release_all("a")
    ended_high = store_bed.acquired(store_bed.message("w"), "a")
    store_bed.begin("w")
    store_bed.end("w")
    assert ended_high.epoch == 4

    assert purge(store_bed) == 2

    assert floor(store_bed) == 4
    assert store_bed.start("w").epoch == 4
    assert store_bed.start("never used before").epoch == 4


def test_the_floor_never_sinks(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.write(update(store).values(epoch_floor=100))
    ended(store_bed)
    store_bed.write(update(workflows).values(epoch=5))
    purge(store_bed)
    assert floor(store_bed) == 100


def test_what_belonged_to_a_purged_run_has_no_effect_on_the_next_one_of_its_id(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.parked("w", "a", "paid")
    store_bed.store.signals.send("w", "note", "null", key="k")
    old_offer = store_bed.message()
    store_bed.store.signals.send("w", "paid", "null", key=None)
    store_bed.store.updates.send("w", "set", "1", key="u")
    old = begun(store_bed)
    store_bed.store.lifecycle.terminate("w", "no longer wanted")
    purge(store_bed)

    new = store_bed.held("w", "a")
    assert new.epoch > old.epoch
    before = store_bed.everything()
    assert store_bed.store.turns.commit(old, parked("paid")).status == "lost"
    assert store_bed.store.turns.settle(old).status == "lost"
    assert store_bed.store.turns.begin(old_offer, "task") is Discard.OTHER_RUN
    assert not store_bed.store.turns.was_closed_by(old)
    for cached in (old.epoch, new.epoch):
        assert store_bed.claims.acquire("w", old.run_id, cached, "a").answer == "lost"
        assert store_bed.claims.take_over("w", old.run_id, "a", cached, "a").answer == "lost"
    assert store_bed.everything() == before
    info = store_bed.store.workflows.describe("w")
    assert (info.pending_signals, info.pending_updates, info.turn) == (0, 0, 0)
    assert begun(store_bed).signals == ()


def test_a_purge_deletes_everything_of_a_run_but_its_history(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.held("w", "a")
    store_bed.store.signals.send("w", "note", "null", key=None)
    store_bed.store.updates.send("w", "set", "1", key=None)
    store_bed.store.lifecycle.terminate("w", "enough")
    assert purge(store_bed) == 1
    for table in (workflows, signals, updates, turns, outbox):
        assert store_bed.rows(select(table)) == []
    assert len(store_bed.rows(select(history))) == 1


def test_a_purge_leaves_what_runs_and_what_ended_only_just_now(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    ended(store_bed, "old")
    store_bed.advance(timedelta(hours=1))
    store_bed.beat("a")
    ended(store_bed, "young")
    store_bed.held("running", "a")
    assert store_bed.store.lifecycle.purge(older_than=timedelta(minutes=59)) == 1
    assert {w.id for w in store_bed.store.workflows.list()} == {"young", "running"}


def test_a_purge_takes_no_more_than_its_limit_and_says_how_many(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    for n in range(3):
        ended(store_bed, f"w{n}")
    store_bed.advance(MS)
    lifecycle = store_bed.store.lifecycle
    assert [lifecycle.purge(older_than=timedelta(0), limit=2) for _ in range(3)] == [2, 1, 0]


def test_an_ended_workflow_may_be_replaced_under_a_higher_epoch_and_a_running_one_not(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    ended(store_bed)
    old = store_bed.message()
    again = NewWorkflow(id="w", type="permit", input_json="null")
    new = store_bed.store.workflows.start_new(again, restarts=True)
    assert new.run_id != old.run_id
    assert new.epoch > old.epoch
    with pytest.raises(WorkflowAlreadyExists, match="running"):
        store_bed.store.workflows.start_new(again, restarts=True)
    assert store_bed.message().run_id == new.run_id


# -- describe and list ----------------------------------------------------------------------------------------------


def test_a_workflow_that_nobody_started_is_not_found(store_bed: StoreBed) -> None:
    with pytest.raises(WorkflowNotFound, match="nobody"):
        store_bed.store.workflows.describe("nobody")


def test_a_description_counts_the_signals_that_no_turn_has_consumed(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.held()
    numbers = [store_bed.store.signals.send("w", "paid", "null", key=None).receipt.number for _ in range(3)]
    store_bed.store.turns.commit(begun(store_bed), parked("paid", consumed=numbers[:2]))
    assert store_bed.store.workflows.describe("w").pending_signals == 1


def test_workflows_are_listed_page_by_page_in_the_order_of_their_ids_each_once(store_bed: StoreBed) -> None:
    ids = [f"w{n:02}" for n in range(7)]
    for workflow_id in reversed(ids):
        store_bed.start(workflow_id)
    pages: list[list[str]] = []
    after = None
    while page := store_bed.store.workflows.list(after=after, limit=3):
        pages.append([w.id for w in page])
        after = page[-1].id
    assert pages == [ids[:3], ids[3:6], ids[6:]]


def test_a_list_can_be_narrowed_to_a_type_a_status_and_an_engine(store_bed: StoreBed) -> None:
    store_bed.engine("a", "permit", "invoice")
    store_bed.engine("b")
    store_bed.start("unheld", "invoice")
    store_bed.held("by a", "a")
    store_bed.held("by b", "b")
    ended(store_bed, "over")

    def ids(**narrowed: object) -> list[str]:
        return [w.id for w in store_bed.store.workflows.list(**narrowed)]

    assert ids(type_name="invoice") == ["unheld"]
    assert ids(status=WorkflowStatus.COMPLETED) == ["over"]
    assert ids(engine_id="b") == ["by b"]
    assert ids(status=WorkflowStatus.RUNNING, type_name="permit", engine_id="a") == ["by a"]
    assert ids(type_name="unknown") == []
    assert ids(engine_id="b", after="by b") == []


def test_workflows_are_counted_by_status(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    assert store_bed.store.workflows.count_by_status() == {}
    ended(store_bed)
    store_bed.start("one")
    store_bed.start("two")
    assert store_bed.store.workflows.count_by_status() == {"running": 2, "completed": 1}


# -- who takes work ----------------------------------------------------------------------------------------------------


def test_the_engines_that_take_work_are_listed_with_their_types_and_claims(store_bed: StoreBed) -> None:
    store_bed.engine("a", "permit", "invoice")
    store_bed.engine("b")
    for engine_id, verb in (("draining", "drain"), ("stopped", "stop"), ("deaf", "mark_deaf")):
        store_bed.engine(engine_id)
        getattr(store_bed.engines, verb)(engine_id)
    store_bed.held("w1", "a")
    store_bed.parked("w2", "a")
    assert set(store_bed.store.workflows.list_engines_taking_work()) == {
        EngineLoad(engine_id="a", types=frozenset({("permit", 1), ("invoice", 1)}), claims=2),
        EngineLoad(engine_id="b", types=frozenset({("permit", 1)}), claims=0),
    }


def test_an_engine_that_is_late_by_more_than_G_takes_no_work(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    store_bed.engine("b")
    store_bed.live_through(3 * R, "b")
    assert [e.engine_id for e in store_bed.store.workflows.list_engines_taking_work()] == ["b"]


# -- ids and names of any kind (field reports 111, 113) -------------------------------------------------------------

HOSTILE = [
    "'; DROP TABLE weft_workflows; --",
    '"quoted"',
    "%s %(name)s %",
    "{} {0} {name}",
    ":name :id",
    "$1 ? @p",
    "back\\slash \\x41 \\u0041",
    "  spaces  ",
    "../../etc/passwd",
    "naïve-\u00fc-u\u0308-日本-🜁-\u202eltr",
    "\ufeffbom\u200b",
    "\uffff\U0010ffff",
    "x" * 255,
    "🜁" * 255,
    "NULL",
    "0",
]


@pytest.mark.parametrize("odd", HOSTILE, ids=lambda odd: ascii(odd)[:40])
def test_an_id_of_any_kind_comes_back_byte_for_byte_from_every_verb(store_bed: StoreBed, odd: str) -> None:
    store_bed.start("innocent")
    store_bed.engine(odd, odd, node=odd)
    message = store_bed.start(odd, odd)
    held = store_bed.acquired(message, odd)
    assert (held.workflow_id, held.engine_id) == (odd, odd)
    assert store_bed.claims.list_held() == (held,)
    assert store_bed.claims.renew(held) == "won"
    assert store_bed.store.signals.send(odd, odd, "1", key=odd).receipt.number == 1
    assert store_bed.store.signals.send(odd, odd, "1", key=odd).receipt.is_duplicate
    task_id = odd[:20]  # Celery's are 36 characters of ASCII
    turn = store_bed.store.turns.begin(store_bed.message(odd), task_id)
    assert isinstance(turn, BegunTurn)
    assert [s.name for s in turn.signals] == [odd]
    store_bed.beat(odd, odd, in_hand=[task_id])
    assert store_bed.store.turns.begin(store_bed.message(odd), "other") is Discard.IN_HAND
    assert store_bed.store.turns.commit(turn, parked(odd, consumed=[1])).status == "won"
    assert store_bed.store.signals.send(odd, odd, "1", key=None).message is not None
    info = store_bed.store.workflows.describe(odd)
    assert (info.id, info.type, info.engine_id, info.waits[0].name) == (odd, odd, odd, odd)
    assert store_bed.store.workflows.list(engine_id=odd, type_name=odd) == (info,)
    assert store_bed.engines.live_on(odd) == odd
    store_bed.engine("successor", odd)
    store_bed.engines.stop(odd)
    grant = store_bed.claims.take_over(odd, message.run_id, odd, held.epoch, "successor")
    assert grant.answer == "won"
    assert store_bed.store.history.list(workflow_id=odd)[-1].detail["from"] == odd
    store_bed.store.pass_marks.begin("renewal", odd)
    assert store_bed.store.pass_marks.read("renewal").token == odd
    assert store_bed.store.workflows.describe("innocent").id == "innocent"
    assert {row.id for row in store_bed.rows(select(engines))} == {odd, "successor"}
    assert len(store_bed.rows(select(passes))) == 5


@pytest.mark.parametrize("kind", ["id", "signal name", "engine"])
def test_a_nul_that_got_into_the_store_disturbs_no_sweep_of_the_others(
    fresh_store: Callable[[str], tuple[Store, ManualClock]], kind: str
) -> None:
    """SQLite would take it from another program; the entrance refuses it, and PostgreSQL cannot hold one."""
    store_bed = StoreBed(*fresh_store("sqlite"))
    store_bed.engine("a")
    store_bed.parked("innocent", "a", "paid")
    odd = "n\x00ul"
    store_bed.parked("w", "a", "paid")
    store_bed.store.signals.send("w", odd if kind == "signal name" else "paid", "null", key=None)
    if kind == "id":
        for table, column in (("workflows", "id"), ("claims", "workflow_id"), ("signals", "workflow_id")):
            store_bed.execute(f"UPDATE weft_{table} SET {column} = :odd WHERE {column} = 'w'", odd=odd)
    if kind == "engine":
        for table in ("workflows", "claims"):
            column = "id" if table == "workflows" else "workflow_id"
            store_bed.execute(f"UPDATE weft_{table} SET engine_id = :odd WHERE {column} = 'w'", odd=odd)
    store_bed.store.signals.send("innocent", "note", "null", key=None)
    store_bed.execute("UPDATE weft_workflows SET due = 0, waits = replace(waits, 'paid', 'note') WHERE id = 'innocent'")
    store_bed.live_through(2 * R, "a")

    claims = store_bed.claims.list_held()
    answers = dict(zip(claims, store_bed.claims.renew_all(claims), strict=True))
    # SQLite's JSON ends a text at a NUL, so the odd claim itself is not found: nothing goes by its expiry but a reader.
    assert {claim.workflow_id: answer for claim, answer in answers.items() if odd not in claim} == (
        {"innocent": "won"} if kind in ("id", "engine") else {"innocent": "won", "w": "won"}
    )
    assert [wait.workflow_id for wait in store_bed.store.signals.list_ready()] == ["innocent"]
    expected = {"id": {odd: "overdue"}, "signal name": {}, "engine": {"w": "silent-holder"}}[kind]
    assert store_bed.candidates() == expected


def test_payloads_of_any_kind_come_back_as_they_went_in(store_bed: StoreBed) -> None:
    store_bed.engine("a")
    odd = {"nul": "\x00", "lone": "\ud800", "emoji": "🜁", "big": 2**80, "tiny": 5e-324, "deep": [[[[]]]], "": None}
    store_bed.store.workflows.start("w", "permit", json.dumps(odd))
    store_bed.acquired(store_bed.message(), "a")
    store_bed.store.signals.send("w", "paid", json.dumps(odd), key=None)
    turn = begun(store_bed)
    assert (turn.input, turn.signals[0].payload) == (odd, odd)
    store_bed.store.turns.commit(turn, replace(COMPLETED, state_json=json.dumps(odd), result=json.dumps(odd)))
    info = store_bed.store.workflows.describe("w")
    assert (info.state, info.result) == (odd, odd)
