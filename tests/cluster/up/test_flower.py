"""What a person sees on Flower's tasks page: passes, run_once and turns by name, what each was asked and what became of
it, and not a row for every tick. SCREENSHOT=FILE keeps a picture of the page, as `make screenshot` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from flower_page import Row, TasksPage, missing_program, tasks_page
from stack import PATIENCE, Stack

from weft_tasks.testing.waiting import wait_until

pytestmark = pytest.mark.skipif(
    missing_program() is not None,
    reason=f"no {missing_program()} on PATH: apt-get install chromium chromium-driver",
)


@pytest.fixture(scope="module")
def page(stack: Stack, killed: str) -> Iterator[TasksPage]:
    """After an engine was killed and its order has moved, three orders have ended, and somebody called run_once."""
    stack.order(paid="good", refused="declined", late="slow")
    stack.run_once()
    with tasks_page(f"http://127.0.0.1:{stack.flower_port}") as page:
        page.load().show(100)
        wait_until(lambda: rows_of(page, "weft.run_once"), what="run_once on the page", timeout=PATIENCE)
        yield page
        if picture := os.environ.get("SCREENSHOT"):
            page.filter("")
            page.show(15)
            wait_until(lambda: len(page.rows) == 15, what="the newest rows")
            page.save(Path(picture))


def rows_of(page: TasksPage, name: str) -> list[Row]:
    return [row for row in page.rows if row.name == name]


def test_a_turn_says_which_workflow_it_was_for_and_what_became_of_it(page: TasksPage) -> None:
    assert page.headings[:5] == ["NAME", "ARGS", "KWARGS", "RESULT", "STATE"]
    (first,) = (row for row in rows_of(page, "weft.run_turn") if row.kwargs.startswith("'paid' turn 0 epoch "))
    assert first.state == "SUCCESS"
    assert "engine-" in first.worker
    assert first.result.startswith("{'status': 'committed', 'workflow': 'paid', 'turn': 0, 'epoch': 1")
    assert [row.name for row in page.rows if row.kwargs.startswith("{'workflow_id': 'paid'")] == ["weft.reply"] * 2


def test_all_passes_and_run_once_are_there_by_name_with_their_results(page: TasksPage) -> None:
    assert "'counts': {'reclaimed': 1}" in "".join(row.result for row in rows_of(page, "weft.reclaim_claims"))
    assert "'counts': {'woken': 1}" in "".join(row.result for row in rows_of(page, "weft.poll_signals"))
    for name in ("weft.renew_claims", "weft.poll_updates"):
        assert rows_of(page, name)
    (asked,) = rows_of(page, "weft.run_once")
    assert asked.result.startswith("{'run_once': [{'pass': 'renewal', 'status': 'completed'")
    assert asked.state == "SUCCESS"


def test_ticks_that_did_nothing_do_not_fill_the_page(page: TasksPage) -> None:
    """They come every second, and the takeover alone took T + G, which is six."""
    assert len(rows_of(page, "weft.renew_claims")) <= 2
    assert len(rows_of(page, "weft.poll_updates")) <= 2


def test_what_failed_is_one_click_away(page: TasksPage) -> None:
    page.filter("FAILURE")
    wait_until(lambda: {row.state for row in page.rows} == {"FAILURE"}, what="rows of failures alone")
    assert {row.name for row in page.rows} == {"examples.order.app.charge"}
    page.filter("")
