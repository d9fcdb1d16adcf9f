"""Versions: only code that knows a workflow's type and version is given it, and what waits for what can be seen."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery
from flows import DAY, HOUR, MINUTE, collect, statuses, wait_for_ever

from weft_tasks.errors import InvalidInput
from weft_tasks.model import WorkflowStatus
from weft_tasks.testing import WorkflowBed
from weft_tasks.weft import Weft
from weft_tasks.workflows.turn import Turn, TurnEnd


def deployment(version: int, *runs: int, **others: Any) -> Weft:
    """A release of an application: `permit` in this version, which says which code ran it; and others."""
    weft = Weft(Celery(f"release-{version}", set_as_current=False))

    @weft.workflow("permit", version=version, runs=runs)
    def permit(turn: Turn) -> TurnEnd | None:
        turn.state.setdefault("ran on", []).append(version)
        if turn.take("close"):
            return turn.complete(turn.state["ran on"])
        turn.wait("close")
        return None

    for name, handler in others.items():
        weft.workflow(name)(handler)
    return weft


@pytest.fixture
def rolling(store_and_clock: Any) -> WorkflowBed:
    """The first release, with one engine."""
    return WorkflowBed(deployment(1), store=store_and_clock, engines=1)


def waiting(bed: WorkflowBed) -> str:
    """What the latest round of passes says about work that nobody can do."""
    (reclaim,) = [part for part in bed.passes["run_once"] if part["pass"] == "reclaim"]
    return str(reclaim)


def test_an_engine_with_the_next_version_only_leaves_the_old_ones_alone(rolling: WorkflowBed) -> None:
    rolling.start("permit", "old")
    rolling.run_due()
    assert rolling.describe("old").version == 1
    rolling.kill_engine()
    rolling.add_engine(deployment(2))
    rolling.signal("old", "close")
    rolling.advance(HOUR)
    assert (rolling.status("old"), rolling.describe("old").turn) == (WorkflowStatus.RUNNING, 1)
    assert "no engine for 'permit' version 1 now" in waiting(rolling)
    rolling.add_engine()
    rolling.advance(MINUTE)
    assert rolling.result("old") == [1, 1]


def test_code_that_runs_both_versions_takes_both(rolling: WorkflowBed) -> None:
    rolling.start("permit", "old")
    rolling.run_due()
    rolling.kill_engine()
    rolling.add_engine(deployment(2, 1))
    rolling.signal("old", "close")
    rolling.advance(MINUTE)
    assert rolling.result("old") == [1, 2]


def test_a_workflow_keeps_the_version_that_it_was_started_with(store_and_clock: Any) -> None:
    bed = WorkflowBed(deployment(3, 1, 2), store=store_and_clock)
    bed.start("permit", "p")
    bed.signal("p", "close")
    bed.run_due()
    assert (bed.result("p"), bed.describe("p").version) == ([3], 3)


def test_a_new_workflow_waits_for_an_engine_that_knows_its_version(rolling: WorkflowBed, store_and_clock: Any) -> None:
    newer = WorkflowBed(deployment(2), store=store_and_clock, engines=0)
    newer.start("permit", "new")
    rolling.advance(MINUTE)
    assert rolling.describe("new").version == 2
    assert rolling.turns == ()
    assert "no engine for 'permit' version 2 now" in waiting(rolling)
    rolling.add_engine(deployment(2))
    rolling.advance(MINUTE)
    assert rolling.state("new") == {"ran on": [2]}


def test_an_offer_that_reaches_an_engine_which_does_not_know_the_version_is_discarded(rolling: WorkflowBed) -> None:
    rolling.start("permit", "p")
    rolling.kill_engine()
    rolling.add_engine(deployment(2))
    rolling.run_due()
    assert statuses(rolling) == ["discarded"]
    assert rolling.turns[0].reason == "not-acquired: no-target"
    assert rolling.owner("p") is None


def test_a_rolling_deploy_from_one_version_to_the_next_runs_each_workflow_on_code_that_knows_it(
    rolling: WorkflowBed,
) -> None:
    rolling.add_engine()
    for n in range(6):
        rolling.start("permit", f"old-{n}")
    rolling.run_due()
    for old in rolling.engines:
        rolling.add_engine(deployment(2))
        rolling.stop_engine(old)
        rolling.run_due()
    rolling.advance(DAY)
    assert {rolling.owner(f"old-{n}") for n in range(6)} == {None}
    back = rolling.add_engine()
    rolling.advance(MINUTE)
    assert {rolling.owner(f"old-{n}") for n in range(6)} == {back}


def test_a_child_has_the_version_of_the_code_that_started_it(store_and_clock: Any) -> None:
    def parent(turn: Turn) -> None:
        turn.start_child("permit", id="child") if turn.number == 0 else None
        turn.wait("never")

    bed = WorkflowBed(deployment(2, 1, parent=parent), store=store_and_clock)
    bed.start("parent", "p")
    bed.run_due()
    assert bed.describe("child").version == 2


def test_an_engine_that_does_not_know_the_type_is_not_given_it(rolling: WorkflowBed) -> None:
    rolling.kill_engine()
    rolling.add_engine(deployment(1, other=wait_for_ever))
    only_collect = Weft(Celery("other", set_as_current=False))
    only_collect.workflow("collect")(collect)
    stranger = rolling.add_engine(only_collect)
    for n in range(4):
        rolling.start("permit", f"p{n}")
    rolling.advance(MINUTE)
    assert stranger not in {rolling.owner(f"p{n}") for n in range(4)}


@pytest.mark.parametrize("version", [0, -1, 2**31, "1", 1.0, True, None])
def test_a_version_that_cannot_be_is_refused(version: Any) -> None:
    weft = Weft(Celery("bad", set_as_current=False))
    for arguments in ({"version": version}, {"runs": [version]}):
        with pytest.raises(InvalidInput, match="workflow version must be a whole number from 1 on"):
            weft.workflow("permit", **arguments)(wait_for_ever)
    assert weft.registry.names == ()


def test_two_handlers_cannot_share_a_name() -> None:
    weft = deployment(1)
    with pytest.raises(InvalidInput, match="'permit' is registered already"):
        weft.workflow("permit")(wait_for_ever)
