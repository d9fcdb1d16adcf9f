"""Turns: begins, endings, releases and drains that meet at one workflow (O1, O6, O9, O11)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from weft_tasks.model import TurnMessage
from weft_tasks.results import Answer
from weft_tasks.store import Store
from weft_tasks.store.engines import HeartbeatAnswer
from weft_tasks.store.turns import BegunTurn, CommitAnswer, CommitStatus, Discard, TurnOutcome

from .actor import Verb
from .arena import Arena, Ending
from .world import World, completes, parks


def begin(message: TurnMessage, task: str) -> Verb:
    return lambda store: store.turns.begin(message, task)


def drain(engine_id: str) -> Verb:
    return lambda store: store.engines.drain(engine_id)


def drain_and_release(engine_id: str) -> Verb:
    """What the heart does at the first beat after the worker was told to stop (O6)."""

    def verb(store: Store) -> int:
        store.engines.drain(engine_id)
        return store.claims.release_idle(engine_id)

    return verb


def beat_and_release(engine_id: str) -> Verb:
    """What the heart does at every beat from then on."""

    def verb(store: Store) -> tuple[HeartbeatAnswer, int]:
        beaten = store.engines.heartbeat(engine_id, free_slots=1, in_hand=[])
        return beaten, store.claims.release_idle(engine_id)

    return verb


def status_of(answer: object) -> CommitStatus:
    assert isinstance(answer, CommitAnswer), answer
    return answer.status


@pytest.fixture
def world(arena: Arena) -> World:
    arena.world.engines("e1", "e2")
    return arena.world


# -- begin


def test_of_two_begins_of_a_message_that_came_twice_one_opens_the_attempt(arena: Arena, world: World) -> None:
    message = world.held("e1")

    def check(end: Ending) -> None:
        begun = [answer for answer in end.answers.values() if isinstance(answer, BegunTurn)]
        assert len(begun) == 1
        assert begun[0].attempt == end.after.workflow().attempt == 1
        assert end.after.workflow().begun == 1
        assert Discard.IN_HAND in end.answers.values()

    arena.every_schedule(check, a=begin(message, "task-1"), b=begin(message, "task-2"))


def test_of_two_begins_after_an_attempt_that_is_over_one_opens_the_next(arena: Arena, world: World) -> None:
    message = world.held("e1")
    world.begin(message, "task-0")
    world.beat("e1")
    world.beat("e1")

    def check(end: Ending) -> None:
        begun = [answer for answer in end.answers.values() if isinstance(answer, BegunTurn)]
        assert [turn.attempt for turn in begun] == [2]
        assert Discard.IN_HAND in end.answers.values()

    arena.every_schedule(check, a=begin(message, "task-1"), b=begin(message, "task-2"))


def test_a_commit_of_an_attempt_that_is_over_and_the_next_begin_never_both_win(arena: Arena, world: World) -> None:
    message = world.held("e1")
    late = world.begin(message, "task-0")
    world.beat("e1")
    world.beat("e1")

    def check(end: Ending) -> None:
        committed = status_of(end["a"]) is CommitStatus.WON
        assert committed is (end["b"] is Discard.OTHER_TURN)
        assert committed is not isinstance(end["b"], BegunTurn)
        assert end.after.workflow().attempt == (1 if committed else 2)

    arena.every_schedule(check, a=lambda store: store.turns.commit(late, parks("go")), b=begin(message, "task-1"))


def test_an_attempt_whose_begin_waited_through_heartbeats_is_not_over_at_once(arena: Arena, world: World) -> None:
    """O9: two beats in a row that did not name it. A begin that waits for the row counts from the beat before its wait;
    that is right as long as an engine names a turn from its receipt on, and so names it in all but the first of them.
    """
    message = world.held("e1")

    def beat_three_times(store: Store) -> None:
        store.engines.heartbeat("e1", free_slots=1, in_hand=[])
        for _ in range(2):
            store.engines.heartbeat("e1", free_slots=1, in_hand=["task-1"])

    def begin_and_once_more(store: Store) -> tuple[object, object]:
        return store.turns.begin(message, "task-1"), store.turns.begin(message, "task-2")

    def check(end: Ending) -> None:
        assert isinstance(end["a"], tuple)
        first, again = end["a"]
        assert isinstance(first, BegunTurn)
        assert again is Discard.IN_HAND

    arena.drawn_schedules(
        check,
        in_commit_order=False,
        is_serial=False,
        a=begin_and_once_more,
        b=lambda store: store.signals.send("w", "go", '"now"', key=None),
        c=beat_three_times,
    )


def test_nothing_begins_on_an_engine_that_drained_before(arena: Arena, world: World) -> None:
    message = world.held("e1")

    def check(end: Ending) -> None:
        assert isinstance(end["a"], BegunTurn) or end["a"] is Discard.ENGINE_NOT_LIVE

    # A begin reads whether its engine is live and does not lock it: it may be through although the drain was quicker.
    # Then it counts as the turn that was in hand at the drain: its commit releases the claim.
    arena.every_schedule(check, in_commit_order=False, a=begin(message, "task-1"), b=drain("e1"))


def test_a_begin_and_a_drain_that_releases_leave_an_open_turn_or_a_free_workflow(arena: Arena, world: World) -> None:
    message = world.held("e1")

    def check(end: Ending) -> None:
        row = end.after.workflow()
        assert row.due
        assert bool(row.attempt_open) is (row.engine_id is not None) is isinstance(end["a"], BegunTurn)

    arena.every_schedule(check, in_commit_order=False, a=begin(message, "task-1"), b=drain_and_release("e1"))


def test_a_begin_and_a_release_never_both_win(arena: Arena, world: World) -> None:
    message = world.held("e1")
    claim = world.claim()

    def check(end: Ending) -> None:
        assert isinstance(end["a"], BegunTurn) is (end["b"] is Answer.LOST)

    arena.every_schedule(check, a=begin(message, "task-1"), b=lambda store: store.claims.release(claim))


def test_of_two_begins_at_the_limit_one_sets_the_workflow_aside(arena: Arena, world: World) -> None:
    """O11, and once: the epoch rises by one, the history has one entry, and one of them says so."""
    message, _ = at_the_limit(world)

    def check(end: Ending) -> None:
        row = end.after.workflow()
        assert (row.status, row.engine_id, row.epoch) == ("set-aside", None, message.epoch + 1)
        assert [entry.event for entry in end.after.all("history")].count("set-aside") == 1
        assert sorted(end.answers.values()) == [False, True]

    arena.every_schedule(check, a=sets_aside(message, "task-a"), b=sets_aside(message, "task-b"))


@pytest.mark.parametrize("other", ["release", "commit", "takeover"])
def test_setting_aside_meets_what_ends_the_last_attempt(arena: Arena, world: World, other: str) -> None:
    """The last of the begun turns is over, as far as heartbeats can tell, and comes back to life at this moment."""
    message, last = at_the_limit(world)
    claim = world.claim()
    if other == "takeover":
        world.store.engines.stop("e1")
    against: dict[str, Verb] = {
        "release": lambda store: store.claims.release_all("e1"),
        "commit": lambda store: store.turns.commit(last, parks("go")),
        "takeover": lambda store: store.claims.take_over("w", message.run_id, "e1", claim.epoch, "e2"),
    }

    def check(end: Ending) -> None:
        row = end.after.workflow()
        assert end["a"] is (row.status == "set-aside"), "who set it aside says so, and nobody else"
        assert row.epoch <= message.epoch + 1
        if other == "commit":
            assert (status_of(end["b"]) is CommitStatus.WON) is not end["a"]

    arena.every_schedule(check, a=sets_aside(message, "task-x"), b=against[other])


def sets_aside(message: TurnMessage, task: str) -> Verb:
    """Whether a begin says that it set the workflow aside; for which other reason it began nothing is all the same."""
    return lambda store: store.turns.begin(message, task) is Discard.SET_ASIDE


def at_the_limit(world: World) -> tuple[TurnMessage, BegunTurn]:
    """As many begun turns in a row as may be, each of them over without a trace; the message, and the last of them."""
    message = world.held("e1")
    for number in range(world.settings.begun_turn_limit):
        last = world.begin(message, f"task-{number}")
        world.beat("e1")
        world.beat("e1")
    return message, last


def last_step(end: Ending, actor: str) -> int:
    """Where in the play the actor was through: at its COMMIT, or at the one statement that was all of its verb."""
    return max(n for n, step in enumerate(end.play.steps) if step[0] == actor)


# -- the endings of a turn against a drain


def test_a_commit_on_an_engine_that_drains_leaves_nothing_for_long(arena: Arena, world: World) -> None:
    """O6. The commit that did not see the drain, and that the release did not see: the next beat releases it."""
    begun = world.begun("e1")
    claim = world.claim()

    def check(end: Ending) -> None:
        assert status_of(end["a"]) is CommitStatus.WON
        assert end.after.workflow().turn == 1
        assert end.after.owner() in [(None, claim.epoch), ("e1", claim.epoch)]

    def leave(store: Store) -> None:
        drain_and_release("e1")(store)

    arena.every_schedule(check, is_serial=False, a=lambda store: store.turns.commit(begun, parks("go")), b=leave)

    def leave_and_beat(store: Store) -> None:
        leave(store)
        beat_and_release("e1")(store)

    def check_after_the_next_beat(end: Ending) -> None:
        check(end)
        # Only what is still under way when that beat releases can remain, and then the beat after it releases it.
        steps = end.play.steps
        last_release = max(n for n, step in enumerate(steps) if step[0] == "b" and "UPDATE weft_workflows" in step[1])
        # On PostgreSQL such a commit is one statement, without a COMMIT of its own.
        if last_step(end, "a") < last_release:
            assert end.after.owner() == (None, claim.epoch)

    arena.every_schedule(
        check_after_the_next_beat,
        is_serial=False,
        a=lambda store: store.turns.commit(begun, parks("go")),
        b=leave_and_beat,
    )


@pytest.mark.parametrize("outcome", [parks("go"), completes()], ids=["parks", "ends"])
def test_a_commit_and_the_last_release_of_an_engine_leave_it_nothing(
    arena: Arena, world: World, outcome: TurnOutcome
) -> None:
    """The last thing an engine does. A turn that was aborted does not count as begun (O6, O11); one that commits at
    this moment is left out by the release, and then its workflow is either free or to be had from a stopped engine."""
    begun = world.begun("e1")
    world.store.engines.drain("e1")

    def release_and_stop(store: Store) -> int:
        released = store.claims.release_all("e1")
        store.engines.stop("e1")
        return released

    def check(end: Ending) -> None:
        row = end.after.workflow()
        committed = status_of(end["a"]) is CommitStatus.WON
        assert (row.turn == 1) is committed
        assert (end["b"] == 1) is not committed
        assert row.begun == 0
        assert row.engine_id is None
        assert end.after.engine("e1").status == "stopped"

    arena.every_schedule(
        check,
        in_commit_order=False,
        a=lambda store: store.turns.commit(begun, outcome),
        b=release_and_stop,
    )


def test_two_endings_of_one_attempt_end_it_once(arena: Arena, world: World) -> None:
    """An unknown commit is written again while the first one is still under way (O8)."""
    begun = world.begun("e1")

    def check(end: Ending) -> None:
        assert sorted(map(status_of, end.answers.values())) == [CommitStatus.LOST, CommitStatus.WON]
        assert [turn.turn for turn in end.after.all("turns")] == [0]
        assert end.after.workflow().turn == 1

    arena.every_schedule(
        check,
        a=lambda store: store.turns.commit(begun, parks("go")),
        b=lambda store: store.turns.commit(begun, parks("go")),
    )


@pytest.mark.parametrize("ending", ["commit", "settle", "retry"])
def test_whether_an_unknown_ending_had_arrived_is_known_once_it_is_over(
    arena: Arena, world: World, ending: str
) -> None:
    """O8: read in the middle it says no and means not yet, so the writer writes again; read after the end, yes."""
    begun = world.begun("e1")
    endings: dict[str, Verb] = {
        "commit": lambda store: store.turns.commit(begun, parks("go")),
        "settle": lambda store: store.turns.settle(begun),
        "retry": lambda store: store.turns.retry_later(begun, '{"type":"E"}', timedelta(seconds=1)),
    }

    def check(end: Ending) -> None:
        assert end["b"] is (last_step(end, "a") < end.play.at("b", "SELECT"))

    arena.every_schedule(
        check, in_commit_order=False, a=endings[ending], b=lambda store: store.turns.was_closed_by(begun)
    )


def test_a_release_of_an_aborted_turn_is_no_arrived_commit(arena: Arena, world: World) -> None:
    """O8. The commit never arrived, the stop released the claim: what was unknown was lost, not won."""
    begun = world.begun("e1")
    world.store.claims.release_all("e1")
    assert world.store.turns.commit(begun, parks("go")).status is CommitStatus.LOST
    assert not world.store.turns.was_closed_by(begun), "a turn that never committed is reported as committed"


# -- dispatch


def test_a_dispatch_that_is_noted_twice_counts_once_towards_deafness(arena: Arena, world: World) -> None:
    """Two reclaim passes at once (O12): they may send twice, but heard nothing only once."""
    message = world.held("e1")
    world.live_through(2 * world.settings.renew_interval, "e1", "e2")

    def check(end: Ending) -> None:
        assert end.after.workflow().unanswered == 1

    note: Verb = lambda store: store.workflows.note_dispatch(message)  # noqa: E731
    arena.every_schedule(check, a=note, b=note)


def test_a_dispatch_and_the_begin_that_answers_an_earlier_one(arena: Arena, world: World) -> None:
    message = world.held("e1")
    world.live_through(2 * world.settings.renew_interval, "e1", "e2")

    def check(end: Ending) -> None:
        assert isinstance(end["b"], BegunTurn)
        assert end.after.workflow().unanswered == 0

    arena.every_schedule(check, a=lambda store: store.workflows.note_dispatch(message), b=begin(message, "task-1"))


# -- three at once


def test_two_begins_and_a_takeover(arena: Arena, world: World) -> None:
    message = world.held("e1")
    claim = world.claim()
    world.outlive("e2")

    def check(end: Ending) -> None:
        assert end.after.owner() == ("e2", claim.epoch + 1)
        assert not end.after.workflow().attempt_open
        assert sum(isinstance(answer, BegunTurn) for answer in end.answers.values()) <= 1

    arena.drawn_schedules(
        check,
        a=begin(message, "task-1"),
        b=begin(message, "task-2"),
        c=lambda store: store.claims.take_over("w", message.run_id, "e1", claim.epoch, "e2"),
    )


def test_a_commit_a_drain_that_releases_and_a_signal(arena: Arena, world: World) -> None:
    begun = world.begun("e1")

    def check(end: Ending) -> None:
        assert status_of(end["a"]) is CommitStatus.WON
        assert end.after.workflow().due

    arena.drawn_schedules(
        check,
        is_serial=False,
        a=lambda store: store.turns.commit(begun, parks("go")),
        b=drain_and_release("e1"),
        c=lambda store: store.signals.send("w", "go", '"now"', key=None),
    )
