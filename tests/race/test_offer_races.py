"""Offers: a workflow without a holder is acquired and its turn begun, whatever meets it (O1, O5, O6, O9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft_tasks.model import TurnMessage, WorkflowStatus
from weft_tasks.store import Store
from weft_tasks.store.claims import Grant, TakeoverAnswer
from weft_tasks.store.signals import SentSignal
from weft_tasks.store.turns import BegunTurn, Discard

from .actor import Verb
from .arena import Arena, Ending
from .world import World


def take(offer: TurnMessage, engine_id: str) -> Verb:
    """What a worker does with an offer: both at once, or else one after the other."""

    def verb(store: Store) -> BegunTurn | TakeoverAnswer | Discard:
        begun = store.turns.acquire_and_begin(offer, engine_id, f"task on {engine_id}")
        if begun is not None:
            return begun
        grant = store.claims.acquire(offer.workflow_id, offer.run_id, offer.epoch, engine_id)
        if grant.answer is not TakeoverAnswer.WON:
            return grant.answer
        message = replace(offer, engine_id=engine_id, epoch=grant.epoch, turn=grant.turn)
        return store.turns.begin(message, f"task on {engine_id}")

    return verb


@pytest.fixture
def world(arena: Arena) -> World:
    arena.world.engines("e1", "e2", "e3")
    return arena.world


@pytest.mark.parametrize("other", ["e1", "e2"], ids=["same-engine", "other-engine"])
def test_an_offer_that_came_twice_begins_one_turn(arena: Arena, world: World, other: str) -> None:
    offer = world.started()

    def check(end: Ending) -> None:
        (begun,) = [answer for answer in end.answers.values() if isinstance(answer, BegunTurn)]
        assert end.after.owner() == (begun.engine_id, offer.epoch + 1)
        assert (begun.epoch, begun.attempt, begun.turn) == (offer.epoch + 1, 1, 0)
        assert end.after.workflow().attempt_open
        assert TakeoverAnswer.LOST in end.answers.values()

    arena.every_schedule(check, a=take(offer, "e1"), b=take(offer, other))


def test_of_three_that_take_an_offer_one_has_it(arena: Arena, world: World) -> None:
    offer = world.started()

    def check(end: Ending) -> None:
        assert sum(isinstance(answer, BegunTurn) for answer in end.answers.values()) == 1
        assert end.after.workflow().epoch == offer.epoch + 1

    arena.drawn_schedules(check, a=take(offer, "e1"), b=take(offer, "e2"), c=take(offer, "e3"))


def test_an_offer_that_the_reclaim_pass_places_meanwhile_has_one_owner(arena: Arena, world: World) -> None:
    offer = world.started()

    def place(store: Store) -> Grant:
        return store.claims.acquire(offer.workflow_id, offer.run_id, offer.epoch, "e2", must_be_due=False)

    def check(end: Ending) -> None:
        assert isinstance(end["b"], Grant)
        placed = end["b"].answer is TakeoverAnswer.WON
        assert placed is not isinstance(end["a"], BegunTurn)
        assert end.after.owner() == ("e2" if placed else "e1", offer.epoch + 1)

    arena.every_schedule(check, a=take(offer, "e1"), b=place)


def test_a_draining_engine_takes_no_offer_and_what_it_took_before_is_its_own(arena: Arena, world: World) -> None:
    offer = world.started()

    def drain_and_release(store: Store) -> int:
        store.engines.drain("e1")
        return store.claims.release_idle("e1")

    def check(end: Ending) -> None:
        if isinstance(end["a"], BegunTurn):
            assert end.after.owner()[0] == "e1"
            assert end.after.workflow().attempt_open
        else:
            assert end["a"] in (TakeoverAnswer.NO_TARGET, Discard.ENGINE_NOT_LIVE, Discard.OTHER_OWNER)
            assert end.after.owner()[0] is None

    arena.every_schedule(check, a=take(offer, "e1"), b=drain_and_release)


def test_an_ending_from_outside_leaves_no_claim_of_an_offer_that_is_taken_meanwhile(arena: Arena, world: World) -> None:
    offer = world.started()

    def check(end: Ending) -> None:
        row = end.after.workflow()
        assert (row.status, row.engine_id, row.attempt_open) == (WorkflowStatus.TERMINATED, None, False)
        assert not end.after.all("claims")
        if isinstance(end["a"], BegunTurn):
            assert row.epoch > end["a"].epoch

    arena.every_schedule(check, a=take(offer, "e1"), b=lambda store: store.lifecycle.terminate("w", "enough"))


def test_a_signal_is_given_to_the_turn_or_lies_beyond_its_horizon(arena: Arena, world: World) -> None:
    """O9: what a turn is given and what its commit finds to be new are all that was ever sent."""
    offer = world.started()

    def check(end: Ending) -> None:
        begun = end["a"]
        assert isinstance(begun, BegunTurn)
        assert isinstance(end["b"], SentSignal)
        assert [signal.number for signal in begun.signals] == list(range(1, begun.horizon + 1))
        assert end.after.workflow().inbox == 1
        assert end.after.workflow().due

    arena.every_schedule(check, a=take(offer, "e1"), b=lambda store: store.signals.send("w", "go", "1", key=None))


def test_a_begin_that_waits_for_an_open_transaction_of_a_sender_is_given_its_signal(arena: Arena, world: World) -> None:
    """What it sees of signals is from before its wait, what it sees of the row from after it."""
    message = world.held("e1")
    world.store.signals.send("w", "go", "1", key=None)

    def send_in_a_transaction(store: Store) -> SentSignal:
        with store.database.transaction() as connection:
            return store.signals.send("w", "go", "2", key=None, connection=connection)

    def check(end: Ending) -> None:
        begun = end["a"]
        assert isinstance(begun, BegunTurn)
        assert [signal.payload for signal in begun.signals] == [1, 2][: begun.horizon]

    arena.every_schedule(check, a=lambda store: store.turns.begin(message, "task"), b=send_in_a_transaction)
