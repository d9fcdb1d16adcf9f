"""Engines that register, beat, drain, stop and are cleaned up at the same moment (O3, O6, O12)."""

from __future__ import annotations

import pytest

from weft_tasks.model import HeldClaim
from weft_tasks.results import Answer
from weft_tasks.store import Store
from weft_tasks.store.engines import HeartbeatAnswer

from .actor import Raised, Verb
from .arena import Arena, Ending
from .world import World


def register(engine_id: str, node: str) -> Verb:
    return lambda store: store.engines.register(engine_id, node=node, host="h", pid=1, types=["permit"], slots=4)


def beat(engine_id: str, *in_hand: str) -> Verb:
    return lambda store: store.engines.heartbeat(engine_id, free_slots=1, in_hand=in_hand)


@pytest.fixture
def world(arena: Arena) -> World:
    arena.world.engines("e1", "e2")
    return arena.world


def test_of_two_engines_that_register_under_one_node_name_one_is_refused_by_name(arena: Arena) -> None:
    def check(end: Ending) -> None:
        (refused,) = [answer for answer in end.answers.values() if isinstance(answer, Raised)]
        assert refused.error == "DuplicateNodeError"
        assert "engine e1" in refused.message
        assert "engine e2" in refused.message
        (engine,) = end.after.all("engines")
        assert {row.engine_id for row in end.after.all("engine_types")} == {engine.id}

    arena.every_schedule(check, a=register("e1", "n"), b=register("e2", "n"))


def test_a_successor_registers_or_is_refused_while_its_predecessor_drains(arena: Arena, world: World) -> None:
    def check(end: Ending) -> None:
        live = [engine.id for engine in end.after.all("engines") if engine.node == "e1@h" and engine.status == "live"]
        assert live == ([] if isinstance(end["a"], Raised) else ["new"])

    arena.every_schedule(check, a=register("new", "e1@h"), b=lambda store: store.engines.drain("e1"))


def test_a_predecessor_that_beats_after_all_is_not_stopped(arena: Arena, world: World) -> None:
    last_beat = world.store.engines.beat_of("e1")
    assert last_beat is not None

    def check(end: Ending) -> None:
        assert (end["a"] is True) is (end["b"] is HeartbeatAnswer.GONE)

    arena.every_schedule(check, a=lambda store: store.engines.stop_unless_beating("e1", last_beat), b=beat("e1"))


@pytest.mark.parametrize(
    ("leave", "answer"),
    [("drain", HeartbeatAnswer.DRAINING), ("stop", HeartbeatAnswer.GONE)],
)
def test_a_heartbeat_learns_of_what_was_committed_before_it(
    arena: Arena, world: World, leave: str, answer: HeartbeatAnswer
) -> None:
    def check(end: Ending) -> None:
        left_first = end.play.ends[0] == "b"
        assert end["a"] is (answer if left_first else HeartbeatAnswer.ALIVE)
        assert end.after.engine("e1").status == {"drain": "draining", "stop": "stopped"}[leave]

    arena.every_schedule(check, a=beat("e1"), b=lambda store: getattr(store.engines, leave)("e1"))


def test_a_drain_never_brings_a_stopped_engine_back(arena: Arena, world: World) -> None:
    def check(end: Ending) -> None:
        assert end.after.engine("e1").status == "stopped"

    arena.every_schedule(check, a=lambda store: store.engines.drain("e1"), b=lambda store: store.engines.stop("e1"))


def test_two_heartbeats_after_a_silence_advance_the_witnessed_clock_by_one_interval(arena: Arena, world: World) -> None:
    """The witnessed clock moves by at most R at a time, however many engines come back at once."""
    before = arena.rows().all("clock")[0].witnessed
    world.clock.advance(10 * world.settings.renew_interval)

    def check(end: Ending) -> None:
        assert end.after.all("clock")[0].witnessed == before + 5_000
        assert {engine.heartbeat_witnessed for engine in end.after.all("engines")} == {before + 5_000}

    arena.every_schedule(check, a=beat("e1"), b=beat("e2"))


def test_a_beat_and_a_registration_at_once(arena: Arena, world: World) -> None:
    arena.every_schedule(lambda end: None, a=beat("e1"), b=register("e3", "n3"))


def test_the_clean_up_and_a_heartbeat_of_the_engine_that_it_found_gone(arena: Arena, world: World) -> None:
    world.live_through(11 * world.settings.claim_ttl, "e2")

    def check(end: Ending) -> None:
        assert (end["a"] == ("e1",)) is (end["b"] is HeartbeatAnswer.GONE)
        types = {row.engine_id for row in end.after.all("engine_types")}
        assert types == {engine.id for engine in end.after.all("engines")}

    arena.every_schedule(check, a=lambda store: store.engines.clean_up(), b=beat("e1"))


def test_two_clean_ups(arena: Arena, world: World) -> None:
    world.engines("e3", "e4")
    world.live_through(11 * world.settings.claim_ttl, "e2")

    def check(end: Ending) -> None:
        removed = [engine_id for answer in end.answers.values() for engine_id in answer]  # type: ignore[attr-defined]
        assert sorted(removed) == ["e1", "e3", "e4"]

    def clean_up(store: Store) -> list[str]:
        return sorted(store.engines.clean_up())

    arena.every_schedule(check, a=clean_up, b=clean_up)


# -- renewals


def test_two_renewals_of_overlapping_slices_in_different_order_both_end(arena: Arena, world: World) -> None:
    claims = [world.parked("e1", f"w{number}") for number in range(3)]
    world.beat("e1")

    def check(end: Ending) -> None:
        assert end["a"] == end["b"] == (Answer.WON,) * 2

    arena.every_schedule(check, a=renew(*claims[:2]), b=renew(*reversed(claims[1:])))


def test_a_renewal_and_a_release_of_everything(arena: Arena, world: World) -> None:
    claims = [world.parked("e1", f"w{number}") for number in range(2)]

    def check(end: Ending) -> None:
        assert end["b"] == 2
        assert not end.after.all("claims")

    arena.every_schedule(check, a=renew(*reversed(claims)), b=lambda store: store.claims.release_all("e1"))


def test_a_renewal_follows_the_heartbeat_that_was_committed_before_it(arena: Arena, world: World) -> None:
    claim = world.parked("e1")
    world.clock.advance(world.settings.renew_interval)

    def check(end: Ending) -> None:
        found = end.after.claim()
        assert found is not None
        behind = end.after.engine("e1").heartbeat_at + 30_000 - found.expires_at
        beaten_before = end.play.at("b", "COMMIT") < end.play.at("a", "UPDATE weft_claims")
        assert behind == (0 if beaten_before else 5_000)

    arena.every_schedule(check, in_commit_order=False, a=renew(claim), b=beat("e1"))


def renew(*claims: HeldClaim) -> Verb:
    def verb(store: Store) -> tuple[Answer, ...]:
        return store.claims.renew_all(claims)

    return verb
