"""Two ticks of one pass that fire at the same moment: one begins it, the other is a counted skip (O2)."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement

from weft_tasks.store import Store
from weft_tasks.store.clock import DatabaseClock

from .actor import Verb
from .arena import Arena, Ending


class LateStatement(DatabaseClock):
    """The clock of a statement that was on its way to its row for two seconds: behind a lock, on a busy machine."""

    def now(self) -> ColumnElement[int]:
        return super().now() - 2000


def test_of_two_ticks_one_begins_the_pass(arena: Arena) -> None:
    def check(end: Ending) -> None:
        assert sorted(end.answers.values()) == [False, True]
        (mark,) = [row for row in end.after.all("passes") if row.kind == "reclaim"]
        assert mark.token == ("a" if end["a"] else "b")

    def begin(token: str) -> Verb:
        return lambda store: store.pass_marks.begin("reclaim", token)

    arena.every_schedule(check, a=begin("a"), b=begin("b"))


def test_a_tick_that_was_overtaken_on_the_way_to_its_row_does_not_take_the_other_for_one_from_the_future(
    arena: Arena,
) -> None:
    """A mark from the future counts as old, because the clock was set back. A mark from after one's own beginning is
    not from the future: its writer was faster."""
    late = Store.open(arena.settings, clock=LateStatement())
    try:
        assert Store.open(arena.settings).pass_marks.begin("reclaim", "fast")
        assert not late.pass_marks.begin("reclaim", "late")
    finally:
        late.database.dispose()


def test_the_result_that_is_kept_is_of_the_pass_that_began_last(arena: Arena) -> None:
    arena.store.pass_marks.begin("reclaim", "first")

    def check(end: Ending) -> None:
        (mark,) = [row for row in end.after.all("passes") if row.kind == "reclaim"]
        assert mark.token == "second"
        assert mark.result in (None, '"of the first"')
        if mark.result is not None:
            assert end.play.at("a", "COMMIT") < end.play.at("b", "COMMIT")

    arena.every_schedule(
        check,
        a=lambda store: store.pass_marks.finish("reclaim", "first", '"of the first"', took=timedelta(seconds=1)),
        b=lambda store: store.pass_marks.begin("reclaim", "second", even_if_recent=True),
    )
