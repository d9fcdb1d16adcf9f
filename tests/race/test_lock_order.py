"""Verbs that lock several rows: in the order of their keys, or without waiting. Either way no two of them deadlock.

What one statement does in its middle no schedule of statements shows. So somebody else holds one row after the other,
and what the verb has locked when it stops there tells in which order it goes. PostgreSQL only: SQLite locks no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from sqlalchemy import text

from weft_tasks.model import NewWorkflow, Parent, WorkflowStatus
from weft_tasks.results import Answer
from weft_tasks.store import Store

from .actor import Actor, Verb
from .arena import Arena, Ending
from .world import World

IDS = ("w1", "w2", "w3", "w4")
AS_STORED = ("w3", "w1", "w4", "w2")
"""In the order in which their rows are written: what a statement follows that does not say otherwise."""


@pytest.fixture
def arena(postgres_arena: Arena) -> Arena:
    return postgres_arena


@pytest.fixture
def world(arena: Arena) -> World:
    arena.world.engines("e1", "e2")
    return arena.world


def hold(table: str, column: str, key: str) -> Verb:
    """Lock one row until told to commit: a user's open transaction, for example."""

    def verb(store: Store) -> None:
        with store.database.transaction() as connection:
            connection.execute(text(f"SELECT 1 FROM weft_{table} WHERE {column} = :key FOR UPDATE"), {"key": key})

    return verb


def against_a_held_row(arena: Arena, verb: Verb, table: str, column: str, key: str) -> tuple[Ending, set[str]]:
    """Let `verb` run into a row that is held, look at what else is locked when it goes no further, and let it go."""
    looks: list[set[str]] = []

    def choose(ready: Sequence[Actor]) -> Actor:
        by_name = {actor.name: actor for actor in ready}
        holder, other = by_name.get("b"), by_name.get("a")
        if holder is not None and holder.step != "COMMIT":
            return holder
        if other is not None and (other.step != "COMMIT" or looks):
            return other
        if not looks:
            looks.append(arena.locked(table, column))
        return other or by_name["b"]

    ending = arena.one_schedule(choose, a=verb, b=hold(table, column, key))
    return ending, looks[0] - {key}


def order_of_locks(arena: Arena, verb: Verb, table: str, column: str, keys: Sequence[str]) -> list[str]:
    """The keys in the order in which the verb locks their rows."""
    before = {key: against_a_held_row(arena, verb, table, column, key)[1] & set(keys) for key in keys}
    in_order = sorted(keys, key=lambda key: len(before[key]))
    for position, key in enumerate(in_order):
        assert before[key] == set(in_order[:position]), f"no order: {before}"
    return in_order


# -- claims


@pytest.mark.parametrize("holders", [("e1",), ("e1", "e2")], ids=["one-engine", "two-engines"])
@pytest.mark.parametrize("listed", [IDS, IDS[::-1]], ids=["in-order", "backwards"])
@pytest.mark.parametrize("is_analyzed", [False, True], ids=["", "analyzed"])
def test_a_renewal_locks_claims_in_the_order_of_their_ids(
    arena: Arena, world: World, holders: Sequence[str], listed: Sequence[str], is_analyzed: bool
) -> None:
    """Also once the planner knows how few claims there are, and would rather go by the table."""
    claims = {
        workflow_id: world.parked(holders[number % len(holders)], workflow_id)
        for number, workflow_id in enumerate(AS_STORED)
    }
    wanted = [claims[workflow_id] for workflow_id in listed]
    if is_analyzed:
        arena.execute("ANALYZE weft_claims")

    def renew(store: Store) -> tuple[Answer, ...]:
        return store.claims.renew_all(wanted)

    assert order_of_locks(arena, renew, "claims", "workflow_id", IDS) == list(IDS)


RELEASES: dict[str, Callable[[Store], object]] = {
    "idle": lambda store: store.claims.release_idle("e1"),
    "all": lambda store: store.claims.release_all("e1"),
}


@pytest.mark.parametrize("which", RELEASES)
def test_a_release_locks_claims_in_the_order_of_their_ids(arena: Arena, world: World, which: str) -> None:
    for workflow_id in AS_STORED:
        world.parked("e1", workflow_id)
    assert order_of_locks(arena, RELEASES[which], "claims", "workflow_id", IDS) == list(IDS)


def test_a_release_of_more_claims_than_one_statement_takes_and_a_renewal_do_not_deadlock(
    arena: Arena, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop deletes claims statement by statement, by their ids; the renewal found them in another order."""
    monkeypatch.setattr("weft_tasks.store.claims.SLICE", 2)
    claims = {workflow_id: world.parked("e1", workflow_id) for workflow_id in AS_STORED}

    def check(end: Ending) -> None:
        assert end["a"] == 4

    arena.every_schedule(
        check,
        a=lambda store: store.claims.release_all("e1"),
        b=lambda store: store.claims.renew_all((claims["w3"], claims["w1"])),
    )


def test_the_end_of_a_parent_locks_its_childrens_claims_in_the_order_of_their_ids(arena: Arena, world: World) -> None:
    parent_with_children(world)
    terminate: Verb = lambda store: store.lifecycle.terminate("parent", "enough")  # noqa: E731
    assert order_of_locks(arena, terminate, "claims", "workflow_id", IDS) == list(IDS)


# -- workflows


@pytest.mark.parametrize("which", RELEASES)
def test_a_release_leaves_out_what_is_locked_instead_of_waiting(arena: Arena, world: World, which: str) -> None:
    """O6: everything that is free is released at once, however long a user's transaction holds one workflow. That one
    is released by the next beat, or taken over from the stopped engine."""
    for workflow_id in AS_STORED:
        world.parked("e1", workflow_id)
    ending, _ = against_a_held_row(arena, RELEASES[which], "workflows", "id", "w2")
    assert ending["a"] == 3
    assert ending.play.waited == set()
    assert [workflow_id for workflow_id in IDS if ending.after.owner(workflow_id)[0] == "e1"] == ["w2"]


def test_the_end_of_a_parent_locks_its_children_in_the_order_of_their_ids(arena: Arena, world: World) -> None:
    parent_with_children(world)
    terminate: Verb = lambda store: store.lifecycle.terminate("parent", "enough")  # noqa: E731
    assert order_of_locks(arena, terminate, "workflows", "id", IDS) == list(IDS)


def test_a_purge_leaves_out_what_is_locked_instead_of_waiting(arena: Arena, world: World) -> None:
    """It holds the epoch floor, which whoever restarts a workflow waits for with that workflow locked."""
    for workflow_id in AS_STORED:
        world.started(workflow_id)
        world.store.lifecycle.terminate(workflow_id, "enough")
    world.clock.advance(timedelta(seconds=1))

    def purge(store: Store) -> int:
        return store.lifecycle.purge(older_than=timedelta(0), statuses=[WorkflowStatus.TERMINATED])

    ending, _ = against_a_held_row(arena, purge, "workflows", "id", "w2")
    assert ending["a"] == 3
    assert ending.play.waited == set()
    assert [workflow.id for workflow in ending.after.all("workflows")] == ["w2"]


def parent_with_children(world: World) -> None:
    """A running parent, and children of it that are held, cancelled with it."""
    world.started("parent")
    parent = Parent(id="parent", run_id=world.run_id("parent"), reply=None, close_policy="cancel")
    for workflow_id in AS_STORED:
        message = world.store.workflows.start_new(
            NewWorkflow(id=workflow_id, type="permit", input_json="{}", parent=parent)
        )
        world.store.claims.acquire(workflow_id, message.run_id, message.epoch, "e1")
