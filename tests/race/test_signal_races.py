"""Signals against turns, polls and each other: no number twice, no key twice, no wake lost (O9)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from weft_tasks.errors import WeftError
from weft_tasks.results import Answer
from weft_tasks.store import Store
from weft_tasks.store.signals import SentSignal
from weft_tasks.store.turns import BegunTurn, CommitAnswer, CommitStatus, TurnOutcome
from weft_tasks.store.updates import SentUpdate

from .actor import Raised, Verb
from .arena import Arena, Ending
from .world import World, completes, parks


def send(name: str = "go", payload: str = '"now"', *, key: str | None = None, to: str = "w") -> Verb:
    return lambda store: store.signals.send(to, name, payload, key=key)


def numbers(end: Ending) -> list[int]:
    return sorted(signal.number for signal in end.after.all("signals"))


@pytest.fixture
def world(arena: Arena) -> World:
    arena.world.engines("e1", "e2")
    return arena.world


# -- signals among themselves


@pytest.mark.parametrize("state", ["parked", "begun", "started"])
def test_two_signals_get_numbers_in_the_order_of_their_commits(arena: Arena, world: World, state: str) -> None:
    {"parked": world.parked, "begun": world.begun, "started": lambda by: world.started()}[state]("e1")

    def check(end: Ending) -> None:
        assert numbers(end) == [1, 2]
        receipts = {name: sent.receipt.number for name, sent in end.answers.items() if isinstance(sent, SentSignal)}
        assert [receipts[name] for name in end.play.ends] == [1, 2]
        messages = [sent.message for sent in end.answers.values() if isinstance(sent, SentSignal) and sent.message]
        assert len(messages) == (1 if state == "parked" else 0), "the owner is woken once"

    arena.every_schedule(check, a=send(payload="1"), b=send(payload="2"))


def test_of_two_signals_under_one_key_one_is_stored_and_both_get_its_receipt(arena: Arena, world: World) -> None:
    world.parked("e1")

    def check(end: Ending) -> None:
        assert numbers(end) == [1]
        receipts = [sent.receipt for sent in end.answers.values() if isinstance(sent, SentSignal)]
        assert sorted(receipt.is_duplicate for receipt in receipts) == [False, True]
        assert {receipt.number for receipt in receipts} == {1}

    arena.every_schedule(check, a=send(key="k"), b=send(key="k"))


def test_of_two_different_signals_under_one_key_the_second_is_refused(arena: Arena, world: World) -> None:
    world.parked("e1")

    def check(end: Ending) -> None:
        assert numbers(end) == [1]
        refused = [answer for answer in end.answers.values() if isinstance(answer, Raised)]
        assert [answer.error for answer in refused] == ["SignalKeyConflict"]

    arena.every_schedule(check, a=send(key="k", payload="1"), b=send(key="k", payload="2"))


# -- against the endings of a turn


ENDINGS = {
    "parks-on-it": lambda begun: lambda store: store.turns.commit(begun, parks("go")),
    "parks-on-another": lambda begun: lambda store: store.turns.commit(begun, parks("else")),
    "ends": lambda begun: lambda store: store.turns.commit(begun, completes()),
    "settles": lambda begun: lambda store: store.turns.settle(begun),
    "retries": lambda begun: lambda store: store.turns.retry_later(begun, '{"type":"E"}', timedelta(seconds=1)),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_signal_that_arrives_while_a_turn_ends_is_not_lost(arena: Arena, world: World, ending: str) -> None:
    """It keeps the workflow due, or wakes it, or is refused because the workflow has ended; never is it just there."""
    begun = world.begun("e1")

    def check(end: Ending) -> None:
        assert isinstance(end["a"], CommitAnswer)
        assert end["a"].status is CommitStatus.WON
        row = end.after.workflow()
        if ending == "ends":
            undelivered = [signal.consumed_turn for signal in end.after.all("signals")]
            assert undelivered == ([] if isinstance(end["b"], Raised) else [-1])
            return
        assert isinstance(end["b"], SentSignal)
        signal_first = end.play.ends[0] == "b"
        assert bool(row.due) is (signal_first or ending in ("parks-on-it", "retries"))
        if ending != "retries":
            messages = [m for m in (end["a"].next_message, end["b"].message) if m is not None]
            assert len(messages) == (1 if row.due else 0), "exactly one of the two tells the owner"

    arena.every_schedule(check, a=ENDINGS[ending](begun), b=send())


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_update_that_arrives_while_a_turn_ends_is_answered_by_the_next(
    arena: Arena, world: World, ending: str
) -> None:
    """Somebody waits for its answer, whatever the workflow itself waits for."""
    begun = world.begun("e1")

    def check(end: Ending) -> None:
        assert isinstance(end["a"], CommitAnswer)
        stored = [update.status for update in end.after.all("updates")]
        if ending == "ends":
            assert stored == ([] if isinstance(end["b"], Raised) else ["abandoned"])
            return
        assert stored == ["pending"]
        assert end.after.workflow().due
        assert isinstance(end["b"], SentUpdate)
        if ending != "retries":
            messages = [m for m in (end["a"].next_message, end["b"].message) if m is not None]
            assert len(messages) == 1, "exactly one of the two tells the owner"

    arena.every_schedule(check, a=ENDINGS[ending](begun), b=ask())


def test_of_two_updates_under_one_key_one_is_stored_and_both_get_its_receipt(arena: Arena, world: World) -> None:
    world.parked("e1")

    def check(end: Ending) -> None:
        receipts = {sent.receipt for sent in end.answers.values() if isinstance(sent, SentUpdate)}
        assert len(receipts) == len(end.after.all("updates")) == 1
        assert sum(sent.message is not None for sent in end.answers.values() if isinstance(sent, SentUpdate)) == 1

    arena.every_schedule(check, a=ask(key="k"), b=ask(key="k"))


def test_a_signal_and_an_update_share_one_order(arena: Arena, world: World) -> None:
    world.parked("e1")

    def check(end: Ending) -> None:
        arrived = [*end.after.all("signals"), *end.after.all("updates")]
        assert sorted(row.number for row in arrived) == [1, 2]
        assert end.after.workflow().inbox == 2

    arena.every_schedule(check, a=send(), b=ask())


def ask(*, key: str | None = None) -> Verb:
    return lambda store: store.updates.send("w", "ask", "1", key=key or "some-key")


def test_a_begin_sees_a_signal_or_its_commit_does(arena: Arena, world: World) -> None:
    message = world.held("e1")

    def begin_and_park(store: Store) -> tuple[BegunTurn, CommitAnswer]:
        begun = store.turns.begin(message, "task-1")
        assert isinstance(begun, BegunTurn)
        consumed = [signal.number for signal in begun.signals]
        return begun, store.turns.commit(begun, parks("go", consumed=consumed))

    def check(end: Ending) -> None:
        assert isinstance(end["a"], tuple)
        begun, committed = end["a"]
        assert committed.status is CommitStatus.WON
        (signal,) = end.after.all("signals")
        assert (signal.consumed_turn == 0) is bool(begun.signals)
        assert end.after.workflow().due is not bool(begun.signals)

    arena.every_schedule(check, a=begin_and_park, b=send())


def test_a_turn_that_is_tried_again_sees_the_signals_of_its_first_begin(arena: Arena, world: World) -> None:
    """The horizon is fixed once, whatever arrives between the tries."""
    message = world.held("e1")
    first = world.begin(message, "task-0")
    world.store.turns.retry_later(first, '{"type":"E"}', timedelta(0))

    def check(end: Ending) -> None:
        assert isinstance(end["a"], BegunTurn)
        assert (end["a"].signals, end["a"].horizon) == ((), first.horizon)

    arena.every_schedule(check, a=lambda store: store.turns.begin(message, "task-1"), b=send())


def test_two_commits_never_consume_one_signal_twice(arena: Arena, world: World) -> None:
    """The attempt that was given up and the next one both took it; one commits."""
    message = world.held("e1")
    world.store.signals.send("w", "go", '"now"', key=None)
    one = world.begin(message, "task-1")
    world.beat("e1")
    world.beat("e1")
    two = world.begin(message, "task-2")

    def check(end: Ending) -> None:
        statuses = {name: answer.status for name, answer in end.answers.items() if isinstance(answer, CommitAnswer)}
        assert statuses == {"a": CommitStatus.LOST, "b": CommitStatus.WON}
        assert [signal.consumed_turn for signal in end.after.all("signals")] == [0]

    taken = parks("go", consumed=(1,))
    arena.every_schedule(
        check, a=lambda store: store.turns.commit(one, taken), b=lambda store: store.turns.commit(two, taken)
    )


# -- against the poll


def poll(store: Store) -> list[Answer]:
    """One pass of the signal poll."""
    return [store.signals.wake(wait)[0] for wait in store.signals.list_ready()]


def test_a_poll_in_the_middle_of_a_commit_finds_the_workflow_at_the_next_poll(arena: Arena, world: World) -> None:
    """The commit parks on a signal that was there before: its own count, or the poll, makes the workflow due."""
    world.held("e1")
    world.store.signals.send("w", "go", '"now"', key=None)
    begun = world.begin(world.message())
    outcome: TurnOutcome = parks("go", wants_more=True)

    def check(end: Ending) -> None:
        assert isinstance(end["a"], CommitAnswer)
        assert end["a"].status is CommitStatus.WON
        assert end.after.workflow().due
        assert end["b"] == []

    arena.every_schedule(check, in_commit_order=False, a=lambda store: store.turns.commit(begun, outcome), b=poll)


def test_two_polls_wake_a_workflow_once(arena: Arena, world: World) -> None:
    forgotten(arena, world)

    def check(end: Ending) -> None:
        woken = [answer for answers in end.answers.values() for answer in answers]  # type: ignore[attr-defined]
        assert woken.count(Answer.WON) == 1
        assert end.after.workflow().due

    arena.every_schedule(check, in_commit_order=False, a=poll, b=poll)


def test_a_poll_and_a_signal_wake_a_workflow_once(arena: Arena, world: World) -> None:
    forgotten(arena, world)

    def check(end: Ending) -> None:
        assert isinstance(end["a"], list)
        assert isinstance(end["b"], SentSignal)
        assert end["a"].count(Answer.WON) + (end["b"].message is not None) == 1
        assert end.after.workflow().due
        assert numbers(end)[0] == 1
        assert len(numbers(end)) == 2

    arena.every_schedule(check, in_commit_order=False, a=poll, b=send())


def test_a_poll_and_a_release_leave_a_due_workflow(arena: Arena, world: World) -> None:
    forgotten(arena, world)
    claim = world.claim()

    def check(end: Ending) -> None:
        assert end.after.workflow().due
        assert end.after.owner() == (None, claim.epoch)

    arena.every_schedule(check, in_commit_order=False, a=poll, b=lambda store: store.claims.release(claim))


def forgotten(arena: Arena, world: World) -> None:
    """Parked with its signal buffered and nobody having woken it: what the poll is there for."""
    world.parked("e1")
    world.store.signals.send("w", "go", '"first"', key=None)
    arena.execute("UPDATE weft_workflows SET due = false")


# -- starts


def test_of_two_starts_of_one_id_one_wins(arena: Arena) -> None:
    def check(end: Ending) -> None:
        refused = [answer for answer in end.answers.values() if isinstance(answer, Raised)]
        assert [answer.error for answer in refused] == ["WorkflowAlreadyExists"]
        assert "(status running)" in refused[0].message
        assert len(end.after.all("workflows")) == 1

    start: Verb = lambda store: store.workflows.start("w", "permit", "{}")  # noqa: E731
    arena.every_schedule(check, a=start, b=start)


def test_a_signal_to_a_workflow_that_is_being_started_arrives_or_is_told(arena: Arena) -> None:
    def check(end: Ending) -> None:
        stored = len(end.after.all("signals"))
        assert stored == (0 if isinstance(end["b"], Raised) else 1)
        assert not isinstance(end["b"], Raised) or end["b"].error == "WorkflowNotFound"

    arena.every_schedule(check, a=lambda store: store.workflows.start("w", "permit", "{}"), b=send())


# -- three at once


def test_three_signals_and_their_numbers(arena: Arena, world: World) -> None:
    world.parked("e1")

    def check(end: Ending) -> None:
        assert numbers(end) == [1, 2, 3]
        assert sum(bool(sent.message) for sent in end.answers.values() if isinstance(sent, SentSignal)) == 1

    arena.drawn_schedules(check, a=send(), b=send(key="k"), c=send("else"))


def test_a_commit_a_poll_and_a_signal(arena: Arena, world: World) -> None:
    begun = world.begun("e1")

    def check(end: Ending) -> None:
        assert end.after.workflow().due

    arena.drawn_schedules(
        check, in_commit_order=False, a=lambda store: store.turns.commit(begun, parks("go")), b=poll, c=send()
    )


def test_every_error_of_a_race_is_one_of_ours(arena: Arena, world: World) -> None:
    """A loser is answered in the package's own words, never in the driver's."""
    world.begun("e1")

    def check(end: Ending) -> None:
        ours = {error.__name__ for error in _all_below(WeftError)}
        assert {a.error for a in end.answers.values() if isinstance(a, Raised)} <= ours

    arena.every_schedule(check, a=lambda store: store.workflows.start("w", "permit", "{}"), b=send(key="k"))


def _all_below(kind: type) -> list[type]:
    return [kind, *(found for child in kind.__subclasses__() for found in _all_below(child))]
