"""Changes of status from outside against the owner and against each other (O7): whoever is first, the other is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from weft_tasks.errors import WorkflowEnded, WorkflowNotFound
from weft_tasks.model import NewWorkflow, Parent, WorkflowStatus
from weft_tasks.results import Answer
from weft_tasks.store import Store
from weft_tasks.store.claims import Grant, TakeoverAnswer
from weft_tasks.store.lifecycle import Changed, OverdueEnd
from weft_tasks.store.outbox import Debt
from weft_tasks.store.turns import BegunTurn, CommitAnswer, CommitStatus

from .actor import Raised, Verb
from .arena import Arena, Ending
from .world import TYPE, World, completes, parks

FROM_OUTSIDE: dict[str, Verb] = {
    "cancel": lambda store: store.lifecycle.cancel("w"),
    "terminate": lambda store: store.lifecycle.terminate("w", "enough"),
    "suspend": lambda store: store.lifecycle.suspend("w"),
    "time-out": lambda store: store.lifecycle.end_overdue(overdue),
}
overdue = OverdueEnd(workflow_id="w", run_id="")
STATUS = {"cancel": "running", "terminate": "terminated", "suspend": "suspended", "time-out": "timed-out"}


def from_outside(which: str, world: World) -> Verb:
    """The verb; a timeout names the run."""
    if which != "time-out":
        return FROM_OUTSIDE[which]
    named = replace(overdue, run_id=world.run_id())
    return lambda store: store.lifecycle.end_overdue(named)


def has_changed(answer: object) -> bool:
    return isinstance(answer, Changed) or (isinstance(answer, tuple) and answer[0] is Answer.WON)


@pytest.fixture
def world(arena: Arena) -> World:
    arena.world.engines("e1", "e2")
    return arena.world


def timed(world: World) -> None:
    """A workflow `w` whose own time is up."""
    world.store.workflows.start_new(NewWorkflow(id="w", type=TYPE, input_json="{}", timeout=timedelta(milliseconds=1)))
    world.clock.advance(timedelta(seconds=1))


def begun(world: World) -> BegunTurn:
    timed(world)
    start = world.message()
    assert world.store.claims.acquire("w", start.run_id, start.epoch, "e1").answer is TakeoverAnswer.WON
    return world.begin(world.message())


# -- against the owner


@pytest.mark.parametrize("which", FROM_OUTSIDE)
@pytest.mark.parametrize("outcome", ["parks", "ends"])
def test_a_change_from_outside_and_a_commit_never_undo_each_other(
    arena: Arena, world: World, which: str, outcome: str
) -> None:
    """The fence rises with the change: what commits after it is refused. What ended before it stays ended."""
    turn = begun(world)
    epoch = turn.epoch

    def check(end: Ending) -> None:
        assert isinstance(end["a"], CommitAnswer)
        committed, changed = end["a"].status is CommitStatus.WON, has_changed(end["b"])
        row = end.after.workflow()
        assert committed or changed
        assert row.epoch == epoch + changed
        assert (row.turn == 1) is committed
        if changed:
            assert row.status == STATUS[which]
            assert row.engine_id is None
        else:
            assert row.status == "completed"
            assert end["b"] == (Answer.LOST, None) or end["b"].error in ("WorkflowEnded", "WrongStatus")  # type: ignore[union-attr]
        if not committed:
            assert [order.task_id for order in end.after.all("aborts")] == ["task-1"], "the turn in flight is aborted"

    arena.every_schedule(
        check,
        a=lambda store: store.turns.commit(turn, parks("go") if outcome == "parks" else completes()),
        b=from_outside(which, world),
    )


@pytest.mark.parametrize("which", FROM_OUTSIDE)
def test_a_change_from_outside_and_a_begin_leave_no_turn_that_nobody_aborts(
    arena: Arena, world: World, which: str
) -> None:
    begun(world)
    world.store.claims.release_all("e1")
    message = world.message()
    grant = world.store.claims.acquire("w", message.run_id, message.epoch, "e1")
    message = replace(message, engine_id="e1", epoch=grant.epoch)

    def check(end: Ending) -> None:
        assert has_changed(end["b"])
        assert end.after.workflow().epoch == message.epoch + 1
        ordered = [order.task_id for order in end.after.all("aborts")]
        assert ordered == (["task-2"] if isinstance(end["a"], BegunTurn) else [])

    arena.every_schedule(check, a=lambda store: store.turns.begin(message, "task-2"), b=from_outside(which, world))


@pytest.mark.parametrize("which", FROM_OUTSIDE)
def test_a_change_from_outside_and_a_takeover_both_raise_the_epoch(arena: Arena, world: World, which: str) -> None:
    begun(world)
    claim, run_id = world.claim(), world.run_id()
    world.outlive("e2")

    def check(end: Ending) -> None:
        assert isinstance(end["a"], Grant)
        moved = end["a"].answer is TakeoverAnswer.WON
        assert has_changed(end["b"])
        assert end.after.owner() == (None, claim.epoch + 1 + moved)
        assert end.after.workflow().status == STATUS[which]

    arena.every_schedule(
        check,
        a=lambda store: store.claims.take_over("w", run_id, "e1", claim.epoch, "e2"),
        b=from_outside(which, world),
    )


@pytest.mark.parametrize("which", FROM_OUTSIDE)
def test_a_signal_to_a_workflow_that_is_being_changed_is_kept_undeliverable_or_refused(
    arena: Arena, world: World, which: str
) -> None:
    begun(world)

    def check(end: Ending) -> None:
        signals = end.after.all("signals")
        is_ended = which in ("terminate", "time-out")
        assert len(signals) == (0 if isinstance(end["a"], Raised) else 1)
        assert [signal.consumed_turn for signal in signals] == ([-1] if is_ended else [None]) * len(signals)
        assert is_ended or not isinstance(end["a"], Raised)

    arena.every_schedule(
        check, a=lambda store: store.signals.send("w", "go", '"now"', key=None), b=from_outside(which, world)
    )


@pytest.mark.parametrize("which", ["terminate", "time-out"])
def test_an_update_to_a_workflow_that_is_being_ended_is_answered_or_refused(
    arena: Arena, world: World, which: str
) -> None:
    """Nobody waits for ever: an update is never stored behind the end that would have answered it."""
    begun(world)

    def check(end: Ending) -> None:
        stored = [update.status for update in end.after.all("updates")]
        assert stored == ([] if isinstance(end["a"], Raised) else ["abandoned"])

    arena.every_schedule(
        check, a=lambda store: store.updates.send("w", "ask", "1", key="k"), b=from_outside(which, world)
    )


# -- against each other


@pytest.mark.parametrize(
    ("one", "two"),
    [
        *(("cancel", "cancel"), ("cancel", "terminate"), ("terminate", "terminate"), ("suspend", "terminate")),
        *(("suspend", "cancel"), ("suspend", "suspend"), ("time-out", "terminate"), ("time-out", "time-out")),
    ],
)
def test_two_changes_from_outside_follow_each_other(arena: Arena, world: World, one: str, two: str) -> None:
    begun(world)
    before = world.message().epoch

    def check(end: Ending) -> None:
        steps = end.after.workflow().epoch - before
        assert 1 <= steps <= 2
        assert len(end.after.all("aborts")) == 1, "the turn in flight is aborted once"

    arena.every_schedule(check, a=from_outside(one, world), b=from_outside(two, world))


def test_two_resumes_make_a_workflow_run_again_once(arena: Arena, world: World) -> None:
    world.parked("e1")
    world.store.lifecycle.suspend("w")
    before = world.message().epoch

    def check(end: Ending) -> None:
        assert sorted(isinstance(answer, Raised) for answer in end.answers.values()) == [False, True]
        assert end.after.owner() == (None, before + 1)

    resume: Verb = lambda store: store.lifecycle.resume("w")  # noqa: E731
    arena.every_schedule(check, a=resume, b=resume)


def test_a_retry_and_a_signal(arena: Arena, world: World) -> None:
    """Refused while it had failed, delivered once it runs again."""
    failed(world)

    def check(end: Ending) -> None:
        assert isinstance(end["a"], Changed)
        assert len(end.after.all("signals")) == (0 if isinstance(end["b"], Raised) else 1)

    arena.every_schedule(
        check,
        a=lambda store: store.lifecycle.retry("w"),
        b=lambda store: store.signals.send("w", "go", '"now"', key=None),
    )


def failed(world: World) -> None:
    turn = world.begun("e1")
    outcome = replace(completes(), status=WorkflowStatus.FAILED, result=None, error='{"type":"E"}')
    world.store.turns.commit(turn, outcome)


# -- an id that is used again


RESTART = NewWorkflow(id="w", type=TYPE, input_json='"again"')


def restart(store: Store) -> object:
    return store.workflows.start_new(RESTART, restarts=True)


def test_of_two_restarts_one_replaces_the_run_that_has_ended(arena: Arena, world: World) -> None:
    failed(world)
    before = world.message().epoch

    def check(end: Ending) -> None:
        refused = [answer.error for answer in end.answers.values() if isinstance(answer, Raised)]
        assert refused == ["WorkflowAlreadyExists"]
        assert end.after.workflow().epoch == before + 1
        assert len(end.after.all("workflows")) == 1

    arena.every_schedule(check, a=restart, b=restart)


AGAINST_A_RESTART: dict[str, Verb] = {
    "signal": lambda store: store.signals.send("w", "go", '"now"', key=None),
    "update": lambda store: store.updates.send("w", "ask", "1", key="k"),
    "cancel": lambda store: store.lifecycle.cancel("w"),
    "retry": lambda store: store.lifecycle.retry("w"),
}


@pytest.mark.parametrize("which", AGAINST_A_RESTART)
def test_whoever_meets_a_restart_finds_the_old_run_or_the_new_one(arena: Arena, world: World, which: str) -> None:
    """The id never ceases to exist, so nobody is told that it does not."""
    failed(world)

    def check(end: Ending) -> None:
        errors = [answer.error for answer in end.answers.values() if isinstance(answer, Raised)]
        assert "WorkflowNotFound" not in errors

    arena.every_schedule(check, a=AGAINST_A_RESTART[which], b=restart)


def test_a_purge_and_a_restart_of_the_same_id_never_lower_its_epoch(arena: Arena, world: World) -> None:
    failed(world)
    before = world.message().epoch
    world.clock.advance(timedelta(seconds=1))

    def check(end: Ending) -> None:
        assert end.after.workflow().epoch >= before
        assert end.after.workflow().status == "running"

    arena.every_schedule(check, a=restart, b=purge)


def test_a_purge_and_a_start_of_the_same_id_never_lower_its_epoch(arena: Arena, world: World) -> None:
    failed(world)
    before = world.message().epoch
    world.clock.advance(timedelta(seconds=1))

    def check(end: Ending) -> None:
        if isinstance(end["a"], Raised):
            assert end["a"].error == "WorkflowAlreadyExists"
        else:
            assert end.after.workflow().epoch >= before

    # Who is told that the id exists is told so after its transaction, from a row that may be gone by then.
    arena.every_schedule(
        check,
        in_commit_order=False,
        is_serial=False,
        a=lambda store: store.workflows.start("w", TYPE, "{}"),
        b=purge,
    )


def test_a_purge_and_a_signal_or_start_do_not_wait_for_each_other(arena: Arena, world: World) -> None:
    """One holds the epoch floor and wants the workflow, the other holds the workflow and wants the floor."""
    failed(world)
    world.clock.advance(timedelta(seconds=1))

    def signal_or_start(store: Store) -> object:
        with store.database.transaction() as connection:
            with pytest.raises((WorkflowEnded, WorkflowNotFound)):
                store.signals.send("w", "go", '"now"', key=None, connection=connection)
            store.workflows.start_new(RESTART, connection, restarts=True)
            return store.signals.send("w", "go", '"now"', key=None, connection=connection).receipt.number

    def check(end: Ending) -> None:
        assert end["a"] == 1
        assert end.after.workflow().status == "running"

    arena.every_schedule(check, a=signal_or_start, b=purge)


def test_a_purge_and_a_retry_never_delete_what_runs_again(arena: Arena, world: World) -> None:
    failed(world)
    world.clock.advance(timedelta(seconds=1))

    def check(end: Ending) -> None:
        there = [workflow.status for workflow in end.after.all("workflows")]
        assert there == ([] if isinstance(end["a"], Raised) else ["running"])

    arena.every_schedule(check, a=lambda store: store.lifecycle.retry("w"), b=purge)


def purge(store: Store) -> int:
    return store.lifecycle.purge(older_than=timedelta(0), statuses=[WorkflowStatus.FAILED])


# -- parents and children


def family(world: World) -> tuple[BegunTurn, BegunTurn]:
    """A parent and a child, each in a turn; the child is cancelled when its parent ends, and owes it a reply."""
    world.started("parent")
    parent = Parent(id="parent", run_id=world.run_id("parent"), reply="done", close_policy="cancel")
    world.store.workflows.start_new(NewWorkflow(id="child", type=TYPE, input_json="{}", parent=parent))
    turns = []
    for workflow_id in ("parent", "child"):
        message = world.message(workflow_id)
        world.store.claims.acquire(workflow_id, message.run_id, message.epoch, "e1")
        turns.append(world.begin(world.message(workflow_id), f"task-{workflow_id}"))
    return turns[0], turns[1]


ENDS_OF_A_PARENT: dict[str, Callable[[BegunTurn], Verb]] = {
    "commits": lambda parent: lambda store: store.turns.commit(parent, completes()),
    "is-terminated": lambda parent: lambda store: store.lifecycle.terminate("parent", "enough"),
}


@pytest.mark.parametrize("how", ENDS_OF_A_PARENT)
def test_the_end_of_a_parent_and_its_childs_commit_do_not_wait_for_each_other(
    arena: Arena, world: World, how: str
) -> None:
    parent, child = family(world)

    def check(end: Ending) -> None:
        assert isinstance(end["b"], CommitAnswer)
        ended_first = end["b"].status is CommitStatus.WON
        row = end.after.workflow("child")
        assert row.status == ("completed" if ended_first else "running")
        assert bool(row.cancelling) is not ended_first
        assert len(end.after.all("outbox")) == (1 if ended_first else 0)

    arena.drawn_schedules(  # Every one were hundreds, as far as the tables can tell.
        check,
        count=40,
        a=ENDS_OF_A_PARENT[how](parent),
        b=lambda store: store.turns.commit(child, completes()),
    )


def test_the_end_of_a_parent_and_a_drain_do_not_wait_for_each_other(arena: Arena, world: World) -> None:
    family(world)
    world.store.claims.release_all("e1")
    for workflow_id in ("parent", "child"):
        message = world.message(workflow_id)
        world.store.claims.acquire(workflow_id, message.run_id, message.epoch, "e1")

    def check(end: Ending) -> None:
        assert end.after.workflow("parent").status == "terminated"
        assert end.after.workflow("child").cancelling

    arena.every_schedule(
        check,
        # What the release leaves out because it is locked, the end of the parent releases itself.
        in_commit_order=False,
        is_serial=False,
        a=lambda store: store.lifecycle.terminate("parent", "enough"),
        b=lambda store: store.claims.release_idle("e1"),
    )


def test_of_two_commits_that_start_the_same_child_one_is_refused_and_neither_waits_for_ever(
    arena: Arena, world: World
) -> None:
    turns = [world.begun("e1", workflow_id, f"task-{workflow_id}") for workflow_id in ("w1", "w2")]
    children = [NewWorkflow(id=child, type=TYPE, input_json="{}") for child in ("x", "y")]

    def commit(turn: BegunTurn, order: list[NewWorkflow]) -> Verb:
        return lambda store: store.turns.commit(turn, replace(parks("go"), children=tuple(order)))

    def check(end: Ending) -> None:
        refused = [answer.error for answer in end.answers.values() if isinstance(answer, Raised)]
        assert refused == ["InvalidInput"]
        assert sorted(row.id for row in end.after.all("workflows")) == ["w1", "w2", "x", "y"]
        assert sum(row.turn for row in end.after.all("workflows")) == 1

    arena.every_schedule(check, a=commit(turns[0], children), b=commit(turns[1], children[::-1]))


# -- debts


def test_two_passes_share_the_overdue_debts_between_them(arena: Arena, world: World) -> None:
    """Paying twice is harmless, but no reason to do it."""
    _, child = family(world)
    world.store.turns.commit(child, completes())
    world.live_through(2 * world.settings.renew_interval, "e1", "e2")

    def check(end: Ending) -> None:
        listed = [debt.id for debts in end.answers.values() for debt in as_debts(debts)]
        assert len(listed) == 1

    overdue_debts: Verb = lambda store: store.outbox.list_overdue()  # noqa: E731
    arena.every_schedule(check, in_commit_order=False, a=overdue_debts, b=overdue_debts)


def as_debts(answer: object) -> tuple[Debt, ...]:
    assert isinstance(answer, tuple)
    return answer
