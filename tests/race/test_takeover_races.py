"""Takeover against everything that may touch the workflow, its holder or its target at the same moment (O1, O4).

Whatever the order: a takeover and the old holder's write never both win, and the loser leaves nothing behind.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from weft_tasks.model import HeldClaim, TurnMessage
from weft_tasks.results import Answer
from weft_tasks.store import Store
from weft_tasks.store.claims import Grant, TakeoverAnswer
from weft_tasks.store.engines import HeartbeatAnswer
from weft_tasks.store.turns import BegunTurn, CommitAnswer, CommitStatus, Discard, TurnOutcome

from .actor import Verb
from .arena import Arena, Ending
from .world import World, completes, parks

WON, LOST = TakeoverAnswer.WON, TakeoverAnswer.LOST


def take_over(claim: HeldClaim, run_id: str, target: str) -> Verb:
    return lambda store: store.claims.take_over(claim.workflow_id, run_id, claim.engine_id, claim.epoch, target)


def answer_of(grant: object) -> TakeoverAnswer:
    assert isinstance(grant, Grant), grant
    return grant.answer


@pytest.fixture
def world(arena: Arena) -> World:
    arena.world.engines("dead", "e1", "e2")
    return arena.world


# -- against other takeovers


@pytest.mark.parametrize("state", ["parked", "due", "begun"])
def test_of_two_takeovers_to_two_targets_one_wins(arena: Arena, world: World, state: str) -> None:
    {"parked": world.parked, "due": world.held, "begun": world.begun}[state]("dead")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()

    def check(end: Ending) -> None:
        assert sorted(map(answer_of, end.answers.values())) == [LOST, WON]
        winner = "e1" if answer_of(end["a"]) is WON else "e2"
        assert end.after.owner() == (winner, claim.epoch + 1)
        assert not end.after.workflow().attempt_open

    arena.every_schedule(check, a=take_over(claim, run_id, "e1"), b=take_over(claim, run_id, "e2"))


def test_two_takeovers_of_two_workflows_towards_each_other_both_end(arena: Arena, world: World) -> None:
    """Each locks the engine that the other one locks too, once as target and once as holder."""
    world.engines("dead2")
    one, two = world.parked("dead", "w1"), world.parked("dead2", "w2")
    world.outlive("e1", "e2")
    a, b = take_over(one, world.run_id("w1"), "e1"), take_over(two, world.run_id("w2"), "e1")

    def check(end: Ending) -> None:
        assert end.after.owner("w1") == end.after.owner("w2") == ("e1", 2)

    arena.every_schedule(check, a=a, b=b)


def test_of_a_takeover_and_a_release_one_wins(arena: Arena, world: World) -> None:
    world.parked("dead")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()

    def check(end: Ending) -> None:
        won = {"a": answer_of(end["a"]) is WON, "b": end["b"] is Answer.WON}
        assert sorted(won.values()) == [False, True]
        assert end.after.owner() == (("e1", claim.epoch + 1) if won["a"] else (None, claim.epoch))

    arena.every_schedule(check, a=take_over(claim, run_id, "e1"), b=lambda store: store.claims.release(claim))


# -- against the holder's proof of life


def test_a_holder_that_beats_before_the_statement_that_writes_keeps_its_claim(arena: Arena, world: World) -> None:
    """O4: the conditions stand in the statement that writes. A beat that comes later finds the claim gone; it never
    waits for a takeover, because of many at once some always hold the row."""
    world.parked("dead")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()

    def check(end: Ending) -> None:
        assert end["b"] is HeartbeatAnswer.ALIVE
        assert "b" not in end.play.waited or arena.is_sqlite
        beaten_before = end.play.at("b", "COMMIT") < end.play.at("a", "UPDATE weft_workflows")
        assert answer_of(end["a"]) is (TakeoverAnswer.NOT_ELIGIBLE if beaten_before else WON)
        assert end.after.owner() == (("dead", claim.epoch) if beaten_before else ("e1", claim.epoch + 1))

    arena.every_schedule(
        check,
        in_commit_order=False,
        a=take_over(claim, run_id, "e1"),
        b=lambda store: store.engines.heartbeat("dead", free_slots=1, in_hand=[]),
    )


def test_a_takeover_never_keeps_its_target_from_beating(arena: Arena, world: World) -> None:
    world.parked("dead")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()
    beats_before = world.store.engines.beat_of("e1")
    assert beats_before is not None

    def check(end: Ending) -> None:
        assert answer_of(end["a"]) is WON
        assert end.after.engine("e1").beat == beats_before + 1
        assert "b" not in end.play.waited or arena.is_sqlite

    arena.every_schedule(
        check,
        a=take_over(claim, run_id, "e1"),
        b=lambda store: store.engines.heartbeat("e1", free_slots=1, in_hand=[]),
    )


# -- against a target that leaves


def drain(engine_id: str) -> Verb:
    return lambda store: store.engines.drain(engine_id)


def stop(engine_id: str) -> Verb:
    return lambda store: store.engines.stop(engine_id)


@pytest.mark.parametrize("leave", [drain, stop])
def test_a_target_that_left_first_gets_nothing(arena: Arena, world: World, leave: object) -> None:
    world.parked("dead")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()
    assert callable(leave)

    def check(end: Ending) -> None:
        left_first = end.play.ends[0] == "b"
        assert answer_of(end["a"]) is (TakeoverAnswer.NO_TARGET if left_first else WON)

    arena.every_schedule(check, a=take_over(claim, run_id, "e1"), b=leave("e1"))


def test_a_target_that_drains_and_releases_keeps_nothing(arena: Arena, world: World) -> None:
    """O6: nothing is offered to a draining engine, and what it got a moment before goes with the first release."""
    world.parked("dead")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()

    def drain_and_release(store: Store) -> int:
        store.engines.drain("e1")
        return store.claims.release_idle("e1")

    def check(end: Ending) -> None:
        won = answer_of(end["a"]) is WON
        assert end.after.owner() == ((None, claim.epoch + 1) if won else ("dead", claim.epoch))

    arena.every_schedule(check, a=take_over(claim, run_id, "e1"), b=drain_and_release)


# -- against renewals


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_renewal_never_renews_what_was_taken_over(arena: Arena, world: World, one_by_one: bool) -> None:
    world.parked("dead")
    other = world.parked("dead", "other")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()

    def renew(store: Store) -> object:
        return (store.claims.renew(claim),) if one_by_one else store.claims.renew_all((other, claim))

    def check(end: Ending) -> None:
        assert answer_of(end["a"]) is WON
        assert isinstance(end["b"], tuple)
        assert end["b"][-1] in (Answer.WON, Answer.LOST)
        assert end["b"][0] is Answer.WON or one_by_one
        moved = end.after.claim()
        assert moved is not None
        # O3: whatever the order, the claim lives by its new holder's last heartbeat.
        assert moved.expires_at == end.after.engine("e1").heartbeat_at + 30_000

    arena.every_schedule(check, a=take_over(claim, run_id, "e1"), b=renew)


# -- against the old holder


def commit(begun: BegunTurn, outcome: TurnOutcome) -> Verb:
    return lambda store: store.turns.commit(begun, outcome)


def settle(begun: BegunTurn) -> Verb:
    return lambda store: store.turns.settle(begun)


def retry(begun: BegunTurn) -> Verb:
    return lambda store: store.turns.retry_later(begun, '{"type":"E"}', timedelta(seconds=1))


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(lambda begun: commit(begun, parks("go", consumed=(1,))), id="commit-that-parks"),
        pytest.param(lambda begun: commit(begun, completes(consumed=(1,))), id="commit-that-ends"),
        pytest.param(settle, id="settle"),
        pytest.param(retry, id="retry-later"),
    ],
)
def test_a_takeover_and_the_old_holders_ending_of_a_turn_never_both_win(
    arena: Arena, world: World, ending: object
) -> None:
    """O1. A commit that came first is part of what was taken over; one that came second changed nothing."""
    message = world.held("dead")
    world.store.signals.send("w", "go", '"now"', key=None)
    begun = world.begin(message)
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()
    assert callable(ending)
    takes_over = take_over(claim, run_id, "e1")
    alone = arena.one_after_the_other(takes_over)

    def check(end: Ending) -> None:
        assert isinstance(end["b"], CommitAnswer)
        moved, committed = answer_of(end["a"]) is WON, end["b"].status is CommitStatus.WON
        assert moved or committed
        if end["b"].status is CommitStatus.LOST:
            assert end.after == alone.after or end.after.fingerprint(()) == alone.after.fingerprint(())
            assert not end.after.all("turns")
            assert all(signal.consumed_turn is None for signal in end.after.all("signals"))
        elif moved:
            assert end.play.ends == ["b", "a"], "the fence let a commit through after the takeover"
            assert end.after.owner() == ("e1", claim.epoch + 1)

    arena.every_schedule(check, a=takes_over, b=ending(begun))


@pytest.mark.parametrize("is_begun", [False, True], ids=["due", "begun-before"])
def test_a_takeover_and_the_old_holders_begin_never_leave_a_turn_that_may_commit(
    arena: Arena, world: World, is_begun: bool
) -> None:
    """A begin that was first is fenced off by the takeover; one that was second is discarded (O10)."""
    message = world.held("dead")
    if is_begun:
        world.begin(message)
        world.beat("dead")
        world.beat("dead")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()

    def check(end: Ending) -> None:
        assert answer_of(end["a"]) is WON
        assert end.after.owner() == ("e1", claim.epoch + 1)
        assert not end.after.workflow().attempt_open
        assert isinstance(end["b"], BegunTurn) or end["b"] is Discard.OTHER_OWNER
        if isinstance(end["b"], BegunTurn):
            assert end["b"].epoch == claim.epoch

    arena.every_schedule(check, a=take_over(claim, run_id, "e1"), b=lambda store: store.turns.begin(message, "task-2"))


def test_a_takeover_from_a_deaf_holder_and_its_begin_do_not_wait_for_each_other(arena: Arena, world: World) -> None:
    """O12: a begin clears the mark on its engine, whose row the takeover locks: never in opposite orders."""
    message = world.held("dead")
    overdue(world, message, "dead")
    world.store.engines.mark_deaf("dead")
    claim, run_id = world.claim(), world.run_id()

    def check(end: Ending) -> None:
        begun, moved = isinstance(end["b"], BegunTurn), answer_of(end["a"]) is WON
        assert begun or moved
        if begun and not moved:
            assert end.after.owner() == ("dead", claim.epoch)
        if begun:
            assert not end.after.engine("dead").deaf

    arena.every_schedule(check, a=take_over(claim, run_id, "e1"), b=lambda store: store.turns.begin(message, "task-1"))


def test_marking_an_engine_deaf_and_a_begin_there_end_in_one_of_two_ways(arena: Arena, world: World) -> None:
    message = world.held("dead")
    world.store.engines.mark_deaf("dead")
    arena.every_schedule(
        lambda end: None,
        in_commit_order=False,
        a=lambda store: store.engines.mark_deaf("dead"),
        b=lambda store: store.turns.begin(message, "task-1"),
    )


def overdue(world: World, message: TurnMessage, *beating: str) -> None:
    """Let the holder beat, with free slots, through as many unanswered dispatches as make it deaf (O12)."""
    for _ in range(world.settings.deaf_after + 1):
        world.live_through(world.settings.renew_interval, *beating, "e1", "e2")
        world.store.workflows.note_dispatch(message)


# -- against signals


def test_a_signal_and_a_takeover_both_arrive_and_one_of_them_sends_the_wake(arena: Arena, world: World) -> None:
    """O9: a parked workflow that moves gets no turn, and one that became due meanwhile is woken at its new owner."""
    world.parked("dead")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()

    def check(end: Ending) -> None:
        grant = end["a"]
        assert isinstance(grant, Grant)
        assert grant.answer is WON
        row = end.after.workflow()
        assert row.due
        sent = end["b"].message  # type: ignore[attr-defined]
        epochs = [claim.epoch + 1] if grant.is_due else []
        assert (row.epoch in epochs) or (sent.engine_id, sent.epoch) == ("e1", row.epoch), "nobody woke the new owner"

    arena.every_schedule(
        check,
        a=take_over(claim, run_id, "e1"),
        b=lambda store: store.signals.send("w", "go", '"now"', key=None),
    )


def test_the_polls_wake_and_a_takeover_leave_a_due_workflow_and_a_message_for_its_owner(
    arena: Arena, world: World
) -> None:
    message = world.held("dead")
    begun = world.begin(message)
    world.store.turns.commit(begun, parks("go"))
    world.store.signals.send("w", "go", '"now"', key=None)
    # A wait that nobody woke, as after an outage in the middle: the poll is there for that.
    arena.execute("UPDATE weft_workflows SET due = false")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()
    (wait,) = world.store.signals.list_ready()

    def check(end: Ending) -> None:
        grant = end["a"]
        assert isinstance(grant, Grant)
        assert grant.answer is WON
        assert isinstance(end["b"], tuple)
        answer, sent = end["b"]
        assert answer is Answer.WON
        assert end.after.workflow().due
        assert grant.is_due or (sent.engine_id, sent.epoch) == ("e1", claim.epoch + 1)

    arena.every_schedule(check, a=take_over(claim, run_id, "e1"), b=lambda store: store.signals.wake(wait))


# -- three at once


def test_two_takeovers_and_the_old_holders_commit(arena: Arena, world: World) -> None:
    begun = world.begun("dead")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()

    def check(end: Ending) -> None:
        moved = [answer_of(end["a"]), answer_of(end["b"])].count(WON)
        assert isinstance(end["c"], CommitAnswer)
        committed = end["c"].status is CommitStatus.WON
        assert moved == 1
        assert end.after.workflow().epoch == claim.epoch + 1
        assert end.after.workflow().turn == (1 if committed else 0)

    arena.drawn_schedules(
        check,
        a=take_over(claim, run_id, "e1"),
        b=take_over(claim, run_id, "e2"),
        c=commit(begun, parks("go")),
    )


def test_a_takeover_a_commit_and_a_signal(arena: Arena, world: World) -> None:
    begun = world.begun("dead")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()

    def check(end: Ending) -> None:
        assert answer_of(end["a"]) is WON
        assert end.after.workflow().due, "a signal for a workflow that waits for it, or never committed, is lost"
        assert end.after.owner() == ("e1", claim.epoch + 1)

    arena.drawn_schedules(
        check,
        a=take_over(claim, run_id, "e1"),
        b=commit(begun, parks("go")),
        c=lambda store: store.signals.send("w", "go", '"now"', key=None),
    )


def test_a_takeover_the_holders_heartbeat_and_its_commit(arena: Arena, world: World) -> None:
    begun = world.begun("dead")
    world.outlive("e1", "e2")
    claim, run_id = world.claim(), world.run_id()

    def check(end: Ending) -> None:
        assert end["b"] is HeartbeatAnswer.ALIVE
        assert isinstance(end["c"], CommitAnswer)
        moved, committed = answer_of(end["a"]) is WON, end["c"].status is CommitStatus.WON
        assert moved or committed
        assert end.after.owner() == (("e1", claim.epoch + 1) if moved else ("dead", claim.epoch))

    arena.drawn_schedules(
        check,
        in_commit_order=False,
        a=take_over(claim, run_id, "e1"),
        b=lambda store: store.engines.heartbeat("dead", free_slots=1, in_hand=["task-1"]),
        c=commit(begun, parks("go")),
    )
