"""Who gets what in a reclaim pass: evenly, the same in every process, and without a look at every engine each time."""

from __future__ import annotations

from collections import Counter

import pytest

from weft_tasks.store import targets
from weft_tasks.store.targets import Placement
from weft_tasks.store.workflows import CandidateKind, EngineLoad, ReclaimCandidate


def engines(*loads: int, types: frozenset[tuple[str, int]] = frozenset({("t", 1)})) -> list[EngineLoad]:
    return [EngineLoad(engine_id=f"e{number}", types=types, claims=load) for number, load in enumerate(loads)]


def orphan(number: int, *, type_name: str = "t", deposed: str | None = None) -> ReclaimCandidate:
    return ReclaimCandidate(
        kind=CandidateKind.UNOWNED,
        workflow_id=f"w{number:06}",
        run_id="run",
        type=type_name,
        engine_id=None,
        epoch=1,
        turn=0,
        deposed_engine_id=deposed,
    )


def given(placement: Placement, candidates: list[ReclaimCandidate]) -> Counter[str | None]:
    return Counter(placement.choose(candidate) for candidate in candidates)


def test_unequal_engines_are_equal_afterwards() -> None:
    orphans = [orphan(number) for number in range(60)]
    assert given(Placement(engines(0, 10, 20), orphans), orphans) == {"e0": 30, "e1": 20, "e2": 10}


def test_two_passes_with_the_same_list_make_the_same_plan() -> None:
    orphans = [orphan(number) for number in range(50)]
    one, other = Placement(engines(3, 3, 3, 1), orphans), Placement(engines(3, 3, 3, 1), orphans[::-1])
    assert [one.choose(each) for each in orphans] == [other.choose(each) for each in orphans]


def test_single_orphans_do_not_all_go_to_one_of_several_equals() -> None:
    alone = [orphan(number) for number in range(100)]
    found = Counter(Placement(engines(0, 0, 0), [each]).choose(each) for each in alone)
    assert min(found[f"e{number}"] for number in range(3)) > 15


def test_a_plan_throws_its_dice_once_for_each_engine_and_not_for_each_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million workflows on 200 engines took minutes to plan, in which the pass reached its deadline."""
    thrown: list[object] = []
    real = targets._dice
    monkeypatch.setattr(targets, "_dice", lambda *arguments: thrown.append(arguments) or real(*arguments))
    orphans = [orphan(number) for number in range(1_000)]
    assert set(given(Placement(engines(*[0] * 20), orphans), orphans).values()) == {50}
    assert len(thrown) == 20


def test_the_deposed_engine_comes_last_but_before_nobody() -> None:
    deposed = [orphan(number, deposed="e0") for number in range(6)]
    assert given(Placement(engines(0, 9), deposed), deposed) == {"e1": 6}
    assert given(Placement(engines(0), deposed), deposed) == {"e0": 6}


def test_what_was_given_back_counts_no_more() -> None:
    orphans = [orphan(number) for number in range(8)]
    placement = Placement(engines(0, 0), orphans[:4])
    for each in orphans[:4]:
        target = placement.choose(each)
        if target == "e0":
            placement.give_back(target)
    assert given(placement, orphans[4:]) == {"e0": 3, "e1": 1}


def test_an_engine_that_was_lost_for_a_type_gets_no_more_of_it_but_others() -> None:
    types = frozenset({("t", 1), ("u", 1)})
    placement = Placement(engines(0, 0, types=types), [orphan(0)])
    placement.drop("e0", orphan(0))
    assert given(placement, [orphan(number) for number in range(1, 5)]) == {"e1": 4}
    assert given(placement, [orphan(number, type_name="u") for number in range(10, 14)])["e0"] == 4
    assert placement.choose(orphan(9, type_name="unknown")) is None
