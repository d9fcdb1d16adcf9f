"""Acquire against other acquires, and against engines that come and go (O5, O6, O3)."""

from __future__ import annotations

import pytest

from weft_tasks.model import TurnMessage
from weft_tasks.store import Store
from weft_tasks.store.claims import Grant, TakeoverAnswer
from weft_tasks.store.engines import HeartbeatAnswer

from .actor import Verb
from .arena import Arena, Ending
from .world import World

WON, LOST = TakeoverAnswer.WON, TakeoverAnswer.LOST


def acquire(message: TurnMessage, engine_id: str, *, must_be_due: bool = True) -> Verb:
    return lambda store: store.claims.acquire(
        message.workflow_id, message.run_id, message.epoch, engine_id, must_be_due=must_be_due
    )


def answer_of(grant: object) -> TakeoverAnswer:
    assert isinstance(grant, Grant), grant
    return grant.answer


@pytest.fixture
def world(arena: Arena) -> World:
    arena.world.engines("e1", "e2")
    return arena.world


@pytest.mark.parametrize("other", ["e1", "e2"], ids=["same-engine", "other-engine"])
def test_of_two_acquires_one_wins(arena: Arena, world: World, other: str) -> None:
    """The message came twice, or the reclaim pass was as fast as the message."""
    message = world.started()

    def check(end: Ending) -> None:
        assert sorted(map(answer_of, end.answers.values())) == [LOST, WON]
        winner = "e1" if answer_of(end["a"]) is WON else other
        assert end.after.owner() == (winner, message.epoch + 1)

    arena.every_schedule(check, a=acquire(message, "e1"), b=acquire(message, other, must_be_due=False))


def test_a_release_and_an_acquire_follow_each_other(arena: Arena, world: World) -> None:
    """Nobody acquires under the epoch of a claim that is not released yet."""
    world.held("e1")
    message, claim = world.message(), world.claim()

    def check(end: Ending) -> None:
        if answer_of(end["a"]) is WON:
            assert end.after.owner() == ("e2", claim.epoch + 1)
        else:
            assert answer_of(end["a"]) is LOST
            assert end.after.owner() == (None, claim.epoch)

    arena.every_schedule(check, a=acquire(message, "e2"), b=lambda store: store.claims.release(claim))


def test_a_draining_engine_acquires_nothing(arena: Arena, world: World) -> None:
    message = world.started()

    def check(end: Ending) -> None:
        drained_first = end.play.ends[0] == "b"
        assert answer_of(end["a"]) is (TakeoverAnswer.NO_TARGET if drained_first else WON)

    arena.every_schedule(check, a=acquire(message, "e1"), b=lambda store: store.engines.drain("e1"))


def test_what_an_engine_acquires_while_it_drains_is_released(arena: Arena, world: World) -> None:
    message = world.started()

    def drain_and_release(store: Store) -> int:
        store.engines.drain("e1")
        return store.claims.release_idle("e1")

    def check(end: Ending) -> None:
        assert end.after.owner()[0] is None

    arena.every_schedule(check, a=acquire(message, "e1"), b=drain_and_release)


def test_an_engine_that_stops_while_it_acquires_is_silent_with_what_it_got(arena: Arena, world: World) -> None:
    message = world.started()

    def release_and_stop(store: Store) -> None:
        store.claims.release_all("e1")
        store.engines.stop("e1")

    def check(end: Ending) -> None:
        if end.after.owner()[0] == "e1":
            assert answer_of(end["a"]) is WON
        assert end.after.engine("e1").status == "stopped"

    arena.every_schedule(check, a=acquire(message, "e1"), b=release_and_stop)
    candidates = [c.kind for c in world.store.workflows.list_reclaim_candidates()]
    assert candidates == []


def test_the_clean_up_takes_no_engine_that_a_claim_names(arena: Arena, world: World) -> None:
    """O3. An engine that was away for long, beats again and acquires, while its row is about to be cleaned up."""
    world.live_through(11 * world.settings.claim_ttl, "e2")
    message = world.started()

    def beat_and_acquire(store: Store) -> tuple[HeartbeatAnswer, Grant]:
        beaten = store.engines.heartbeat("e1", free_slots=1, in_hand=[])
        return beaten, store.claims.acquire("w", message.run_id, message.epoch, "e1")

    def check(end: Ending) -> None:
        assert isinstance(end["a"], tuple)
        beaten, grant = end["a"]
        cleaned = end["b"] == ("e1",)
        assert cleaned is (beaten is HeartbeatAnswer.GONE)
        assert grant.answer is (TakeoverAnswer.NO_TARGET if cleaned else WON)
        assert ("e1" in [engine.id for engine in end.after.all("engines")]) is not cleaned
        # The types go with their engine, and only with it.
        assert any(row.engine_id == "e1" for row in end.after.all("engine_types")) is not cleaned

    arena.every_schedule(check, a=beat_and_acquire, b=lambda store: store.engines.clean_up())


def test_the_clean_up_and_the_takeover_of_a_long_gone_engines_last_claim(arena: Arena, world: World) -> None:
    claim = world.parked("e1")
    run_id = world.run_id()
    world.live_through(11 * world.settings.claim_ttl, "e2")

    def check(end: Ending) -> None:
        assert answer_of(end["a"]) is WON
        assert end.after.owner() == ("e2", claim.epoch + 1)
        moved_before = end.play.at("a", "COMMIT") < end.play.at("b", "DELETE FROM weft_engines")
        assert end["b"] == (("e1",) if moved_before else ())

    arena.every_schedule(
        check,
        # The two meet at nothing but the takeover's end, so it may end like either order.
        in_commit_order=False,
        a=lambda store: store.claims.take_over("w", run_id, "e1", claim.epoch, "e2"),
        b=lambda store: store.engines.clean_up(),
    )


def test_three_acquires(arena: Arena, world: World) -> None:
    world.engines("e3")
    message = world.started()

    def check(end: Ending) -> None:
        assert sorted(map(answer_of, end.answers.values())) == [LOST, LOST, WON]
        assert end.after.workflow().epoch == message.epoch + 1

    arena.drawn_schedules(check, a=acquire(message, "e1"), b=acquire(message, "e2"), c=acquire(message, "e3"))
