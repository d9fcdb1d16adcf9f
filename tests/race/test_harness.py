"""The harness itself: it tries every order, sees who waits, and notices the textbook's lost update and deadlock."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import pytest
from sqlalchemy import select, update

from weft_tasks.store import Store
from weft_tasks.store.tables import passes

from .actor import Verb
from .arena import Arena, Ending


def anything(_end: Ending) -> None:
    """No check of the test's own."""


def read_then_write(store: Store) -> int:
    """The textbook's mistake: the new value is worked out from one that nobody kept others from changing."""
    with store.database.transaction() as connection:
        skipped = connection.execute(select(passes.c.skipped).where(passes.c.kind == "renewal")).scalar_one()
        connection.execute(update(passes).where(passes.c.kind == "renewal").values(skipped=skipped + 1))
    return int(skipped)


def touch(*kinds: str) -> Verb:
    """Change these rows in this order, in one transaction."""

    def verb(store: Store) -> None:
        with store.database.transaction() as connection:
            for kind in kinds:
                connection.execute(update(passes).where(passes.c.kind == kind).values(skipped=passes.c.skipped + 1))

    return verb


def test_every_order_of_steps_that_do_not_meet_is_tried(postgres_arena: Arena) -> None:
    a, b = touch("renewal", "reclaim"), touch("signal-poll")
    # Two statements and a COMMIT against one statement and a COMMIT.
    assert postgres_arena.every_schedule(anything, skips_families=False, a=a, b=b) == comb(5, 2)


def test_a_writer_of_the_same_row_is_seen_waiting_for_the_commit(arena: Arena) -> None:
    waited: list[set[str]] = []
    count = arena.every_schedule(lambda end: waited.append(end.play.waited), a=touch("renewal"), b=touch("renewal"))
    assert any(waited), "nobody was ever seen waiting"
    assert not all(waited), "somebody always had to wait"
    assert count < len(waited), "the serial orders were not played"


def test_a_lost_update_is_noticed(postgres_arena: Arena) -> None:
    with pytest.raises(AssertionError, match="ends like no serial order"):
        postgres_arena.every_schedule(anything, a=read_then_write, b=read_then_write)


def test_what_sqlite_keeps_apart_is_not_reported(arena_on, postgres_arena: Arena) -> None:  # type: ignore[no-untyped-def]
    sqlite = arena_on("sqlite")
    sqlite.renew()
    assert sqlite.every_schedule(anything, a=read_then_write, b=read_then_write) > 2


def test_a_deadlock_is_noticed_and_left_to_the_database(postgres_arena: Arena) -> None:
    with pytest.raises(AssertionError, match="a deadlock"):
        postgres_arena.every_schedule(anything, a=touch("renewal", "reclaim"), b=touch("reclaim", "renewal"))


def test_after_a_play_that_failed_the_next_one_is_sound(postgres_arena: Arena) -> None:
    def fails(_end: Ending) -> None:
        raise AssertionError("no")

    with pytest.raises(AssertionError, match="no") as caught:
        postgres_arena.every_schedule(fails, a=touch("renewal"), b=touch("renewal"))
    assert "the schedule:" in caught.value.__notes__[0]
    postgres_arena.every_schedule(anything, a=touch("renewal"), b=touch("renewal"))


def test_drawn_schedules_are_the_same_for_the_same_seed(postgres_arena: Arena) -> None:
    def draw() -> Sequence[list[tuple[str, str]]]:
        steps: list[list[tuple[str, str]]] = []
        postgres_arena.drawn_schedules(
            lambda end: steps.append(end.play.steps),
            count=8,
            seed=7,
            a=touch("renewal"),
            b=touch("renewal"),
            c=touch("reclaim"),
        )
        return steps

    first = draw()
    assert first == draw()
    assert len({tuple(steps) for steps in first}) > 2
