"""Turns used in ways that have no meaning, and input that cannot be: each has its error, and nothing is half done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flows import HOUR, MINUTE, collect, everything, statuses, wait_for_ever

from weft_tasks.errors import InvalidInput, SignalKeyConflict, UnknownWorkflowType, WorkflowNotCompleted
from weft_tasks.model import WorkflowStatus
from weft_tasks.testing import SimulatedCrash, WorkflowBed
from weft_tasks.workflows.registry import Retry
from weft_tasks.workflows.turn import Turn

LIMIT = 256 * 1024


def neither(turn: Turn) -> None:
    """Ends in no way and waits for nothing."""


def ends_twice(turn: Turn) -> Any:
    turn.complete(1)
    return turn.complete(2)


def completes_and_fails(turn: Turn) -> Any:
    turn.complete(1)
    return turn.fail("after all")


def returns_junk(turn: Turn) -> Any:
    return {"result": 1}


def returns_an_end_of_its_own(turn: Turn) -> Any:
    end = turn.complete(1)
    return type(end)(status=end.status, result=2)


def leaves_junk(turn: Turn) -> Any:
    turn.state["junk"] = object()
    return turn.complete()


def replaces_the_state(turn: Turn) -> Any:
    turn.state = []  # type: ignore[assignment]
    return turn.complete()


def leaves_too_much(turn: Turn) -> Any:
    turn.state["much"] = "x" * LIMIT
    return turn.complete()


def leaves_numbers_as_keys(turn: Turn) -> Any:
    turn.state[7] = "seven"  # type: ignore[index]
    return turn.complete()


def leaves_not_a_number(turn: Turn) -> Any:
    turn.state["nan"] = float("nan")
    return turn.complete()


def leaves_itself(turn: Turn) -> Any:
    turn.state["self"] = turn.state
    return turn.complete()


def completes_with_junk(turn: Turn) -> Any:
    return turn.complete(object())


def completes_with_too_much(turn: Turn) -> Any:
    return turn.complete("x" * LIMIT)


def waits_for_nothing_named(turn: Turn) -> Any:
    turn.wait()


def waits_for_an_empty_name(turn: Turn) -> Any:
    turn.wait("")


def takes_less_than_nothing(turn: Turn) -> Any:
    turn.wait("event")
    turn.take("event", limit=-1)


MISUSES: list[tuple[Callable[[Turn], Any], str]] = [
    (neither, "waits for nothing: it would never run again"),
    (ends_twice, "the turn ended already, with completed"),
    (completes_and_fails, "the turn ended already, with completed"),
    (returns_junk, r"the handler returned dict; it may return turn\.complete"),
    (returns_an_end_of_its_own, "the handler returned TurnEnd"),
    (leaves_junk, "state is not JSON: it holds a object"),
    (replaces_the_state, r"state must be a JSON object \(a dict\), not list"),
    (leaves_too_much, "state has 262155 bytes as JSON; the limit is 262144"),
    (leaves_numbers_as_keys, "state has a key that is not a string: 7"),
    (leaves_not_a_number, "state is not JSON"),
    (leaves_itself, "state is nested too deeply"),
    (completes_with_junk, "result is not JSON: it holds a object"),
    (completes_with_too_much, "result has 262146 bytes"),
    (waits_for_nothing_named, "wait needs the name of at least one signal"),
    (waits_for_an_empty_name, "signal name must not be empty"),
    (takes_less_than_nothing, "limit must not be negative"),
]


@pytest.mark.parametrize(("handler", "problem"), MISUSES, ids=[handler.__name__ for handler, _ in MISUSES])
def test_a_turn_that_has_no_meaning_fails_with_the_reason_and_commits_nothing(
    bed: WorkflowBed, handler: Callable[[Turn], Any], problem: str
) -> None:
    @bed.workflow("misused", retry=Retry(tries=1))
    def misused(turn: Turn) -> Any:
        turn.take("event")
        turn.call({"task": "shop.charge"})
        turn.start_child("misused", id="child")
        return handler(turn)

    bed.start("misused", "m")
    bed.signal("m", "event")
    bed.run_due()
    with pytest.raises(WorkflowNotCompleted, match=problem):
        bed.result("m")
    assert (bed.status("m"), bed.state("m"), bed.calls) == (WorkflowStatus.FAILED, {}, ())
    assert [info.id for info in bed.weft.list()] == ["m"]


def test_a_misuse_is_tried_again_like_everything_that_a_handler_raises(bed: WorkflowBed) -> None:
    @bed.workflow("sometimes")
    def sometimes(turn: Turn) -> Any:
        return turn.complete() if turn.tries else "junk"

    bed.start("sometimes", "s")
    bed.advance(MINUTE)
    assert (statuses(bed), bed.status("s")) == (["retrying", "committed"], WorkflowStatus.COMPLETED)


def test_an_end_that_was_made_and_not_returned_counts(bed: WorkflowBed) -> None:
    @bed.workflow("forgetful")
    def forgetful(turn: Turn) -> None:
        turn.complete("said")

    bed.start("forgetful", "f")
    bed.run_due()
    assert bed.result("f") == "said"


def test_an_end_wins_over_waits(bed: WorkflowBed) -> None:
    @bed.workflow("both")
    def both(turn: Turn) -> Any:
        turn.wait("never")
        return turn.complete("ended")

    bed.start("both", "b")
    bed.run_due()
    assert (bed.result("b"), bed.describe("b").waits) == ("ended", ())


# -- signals


def test_a_signal_is_taken_once_in_a_turn_and_consumed_once_in_a_life(bed: WorkflowBed) -> None:
    @bed.workflow("greedy")
    def greedy(turn: Turn) -> None:
        seen = [[event.payload for event in turn.take("event", limit=limit)] for limit in (1, 0, None, None)]
        turn.state.setdefault("seen", []).append(seen)
        turn.wait("event")

    bed.start("greedy", "g")
    for n in range(3):
        bed.signal("g", "event", n)
    bed.run_due()
    bed.signal("g", "event", 3)
    bed.run_due()
    assert bed.state("g")["seen"] == [[[0], [], [1, 2], []], [[3], [], [], []]]


def test_signals_that_a_turn_leaves_stay_and_those_it_waits_for_bring_the_next_turn_at_once(bed: WorkflowBed) -> None:
    @bed.workflow("one-by-one")
    def one_by_one(turn: Turn) -> None:
        turn.state.setdefault("seen", []).extend(event.payload for event in turn.take("event", limit=1))
        turn.wait("event")

    bed.start("one-by-one", "o")
    for n in range(3):
        bed.signal("o", "event", n)
        bed.signal("o", "unheard", n)
    bed.run_due()
    assert (bed.state("o")["seen"], len(bed.turns)) == ([0, 1, 2], 3)
    assert bed.describe("o").pending_signals == 3


def test_the_order_is_kept_for_each_name_and_a_key_makes_a_repeat_harmless(bed: WorkflowBed) -> None:
    bed.workflow("collect")(collect)
    bed.start("collect", "c")
    receipts = [bed.signal("c", "event", n, key=f"k{n}") for n in (1, 2, 1, 3, 2)]
    bed.run_due()
    receipts.append(bed.signal("c", "event", 1, key="k1"))
    bed.run_due()
    assert bed.state("c")["events"] == [1, 2, 3]
    assert [receipt.is_duplicate for receipt in receipts] == [False, False, True, False, True, True]
    with pytest.raises(SignalKeyConflict, match="'k1'"):
        bed.signal("c", "event", "other", key="k1")


# -- keys for side effects


def test_idempotency_keys_are_the_same_in_every_try_and_differ_otherwise(bed: WorkflowBed) -> None:
    seen: list[tuple[int, str, str]] = []

    @bed.workflow("charging", retry=Retry(delay=timedelta(seconds=1)))
    def charging(turn: Turn) -> None:
        seen.append((turn.number, turn.idempotency_key(), turn.idempotency_key()))
        if len(seen) == 1:
            raise RuntimeError("the first try")
        if len(seen) == 2:
            raise SimulatedCrash
        turn.sleep(HOUR)

    bed.start("charging", "c")
    bed.advance(MINUTE)
    bed.kill_engine()
    bed.advance(2 * HOUR)
    first, *again, second_turn, third_turn = seen
    assert again == [first, first]
    run_id = bed.describe("c").run_id
    assert first == (0, f"{run_id}:0:0", f"{run_id}:0:1")
    assert len({key for turn in (first, second_turn, third_turn) for key in turn[1:]}) == 6
    bed.weft.terminate("c")
    bed.start("charging", "c", on_conflict="restart-if-ended")
    bed.run_due()
    assert seen[-1][1] != first[1]


# -- input that cannot be


BAD_NAMES = [
    ("", "must not be empty"),
    ("x" * 256, "has 256 characters; the limit is 255"),
    ("new\nline", "holds the character"),
    ("nul\0", "holds the character"),
    ("del\x7f", "holds the character"),
    ("half \ud800", "holds the character"),
    (7, "must be a string, not int"),
    (b"bytes", "must be a string, not bytes"),
]


@pytest.mark.parametrize(("bad", "problem"), BAD_NAMES)
@pytest.mark.parametrize(
    ("what", "give"),
    [
        ("workflow id", lambda weft, bad: weft.start("waits", bad)),
        ("workflow id", lambda weft, bad: weft.signal(bad, "event")),
        ("workflow id", lambda weft, bad: weft.update(bad, "event")),
        ("workflow id", lambda weft, bad: weft.describe(bad)),
        ("workflow id", lambda weft, bad: weft.signal_or_start("waits", bad, "event")),
        ("signal name", lambda weft, bad: weft.signal("w", bad)),
        ("signal name", lambda weft, bad: weft.signal_or_start("waits", "w", bad)),
        ("update name", lambda weft, bad: weft.update("w", bad)),
        ("signal key", lambda weft, bad: weft.signal("w", "event", key=bad)),
        ("update key", lambda weft, bad: weft.update("w", "event", key=bad)),
    ],
)
def test_an_id_a_name_or_a_key_that_cannot_be_is_refused_and_changes_nothing(
    sqlite_bed: WorkflowBed, what: str, give: Callable[[Any, Any], Any], bad: Any, problem: str
) -> None:
    bed = sqlite_bed
    bed.workflow("waits")(wait_for_ever)
    bed.start("waits", "w")
    before = everything(bed)
    with pytest.raises(InvalidInput, match=f"{what}.*{problem}"):
        give(bed.weft, bad)
    assert everything(bed) == before


@pytest.mark.parametrize("verb", ["signal", "update", "describe", "cancel", "signal_or_start"])
def test_only_a_start_may_leave_out_the_id(sqlite_bed: WorkflowBed, verb: str) -> None:
    sqlite_bed.workflow("waits")(wait_for_ever)
    arguments: dict[str, list[Any]] = {"signal": ["e"], "update": ["e"], "signal_or_start": ["event"]}
    before = ["waits"] if verb == "signal_or_start" else []
    with pytest.raises(InvalidInput, match="workflow id must be a string, not NoneType"):
        getattr(sqlite_bed.weft, verb)(*before, None, *arguments.get(verb, []))
    assert sqlite_bed.weft.list() == ()
    assert sqlite_bed.start("waits") != sqlite_bed.start("waits")


@pytest.mark.parametrize("character", ["é", "日本", "🦉", " ", "/", "'", '"', "%", "\u200b", "\\"])
def test_every_other_character_may_stand_in_an_id_a_name_and_a_key(bed: WorkflowBed, character: str) -> None:
    @bed.workflow(character)
    def anything(turn: Turn) -> Any:
        for event in turn.take(character):
            return turn.complete(event.payload)
        turn.wait(character)
        return None

    anything.update(character)(lambda turn, payload: payload)
    id = character * (255 // len(character))
    bed.start(character, id)
    bed.run_due()
    assert bed.update(id, character, character, key=character) == character
    bed.signal(id, character, character, key=character)
    bed.run_due()
    assert bed.result(id) == character


BAD_PAYLOADS: list[tuple[Any, str]] = [
    (object(), "is not JSON: it holds a object"),
    ({"a": {1, 2}}, "is not JSON: it holds a set"),
    (b"bytes", "is not JSON: it holds a bytes"),
    ([timedelta(1)], "is not JSON: it holds a timedelta"),
    ({1: "one"}, "has a key that is not a string: 1"),
    (float("inf"), "is not JSON"),
    ("x" * (LIMIT - 1), f"has {LIMIT + 1} bytes as JSON; the limit is {LIMIT}"),
    ("é" * (LIMIT // 6 + 1), f"has {LIMIT + 4} bytes as JSON"),
]


@pytest.mark.parametrize(("payload", "problem"), BAD_PAYLOADS, ids=[problem for _, problem in BAD_PAYLOADS])
@pytest.mark.parametrize(
    ("what", "give"),
    [
        ("input", lambda weft, bad: weft.start("waits", "new", bad)),
        ("payload", lambda weft, bad: weft.signal("w", "event", bad)),
        ("payload", lambda weft, bad: weft.update("w", "event", bad)),
        ("payload", lambda weft, bad: weft.signal_or_start("waits", "new", "event", bad)),
        ("input", lambda weft, bad: weft.signal_or_start("waits", "new", "event", input=bad)),
    ],
)
def test_a_payload_that_is_not_json_or_too_large_is_refused_and_changes_nothing(
    sqlite_bed: WorkflowBed, what: str, give: Callable[[Any, Any], Any], payload: Any, problem: str
) -> None:
    bed = sqlite_bed
    bed.workflow("waits")(wait_for_ever)
    bed.start("waits", "w")
    before = everything(bed)
    with pytest.raises(InvalidInput, match=f"{what} {problem}"):
        give(bed.weft, payload)
    assert everything(bed) == before


@pytest.mark.parametrize(
    "payload", [None, True, 0, -1.5, "", "\0", "\ud800", [], {}, {"": [None]}, 10**100, "x" * (LIMIT - 2)]
)
def test_whatever_json_can_say_up_to_the_limit_arrives_as_it_was_sent(bed: WorkflowBed, payload: Any) -> None:
    @bed.workflow("echo")
    def echo(turn: Turn) -> Any:
        for event in turn.take("event"):
            return turn.complete(event.payload)
        turn.wait("event")
        return None

    bed.start("echo", "e", payload)
    bed.signal("e", "event", payload)
    bed.run_due()
    result = bed.result("e")
    assert (result, type(result)) == (payload, type(payload))
    assert bed.describe("e").input == payload


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", 7])
def test_a_type_or_an_update_with_a_name_that_cannot_be_is_not_registered(bed: WorkflowBed, name: Any) -> None:
    with pytest.raises(InvalidInput, match="workflow type"):
        bed.workflow(name)(wait_for_ever)
    waits = bed.workflow("waits")(wait_for_ever)
    with pytest.raises(InvalidInput, match="update name"):
        waits.update(name)
    assert (bed.weft.registry.names, waits.updates) == (("waits",), {})


def test_an_update_is_registered_once(bed: WorkflowBed) -> None:
    waits = bed.workflow("waits")(wait_for_ever)
    waits.update("u")(lambda turn, payload: 1)
    with pytest.raises(InvalidInput, match="'u' is registered already for 'waits'"):
        waits.update("u")(lambda turn, payload: 2)


def test_a_type_that_nobody_registered_is_refused_with_the_names_there_are(bed: WorkflowBed) -> None:
    bed.workflow("permit")(wait_for_ever)
    bed.workflow("order")(wait_for_ever)
    for start in (bed.weft.start, lambda name: bed.weft.signal_or_start(name, "w", "event")):
        with pytest.raises(
            UnknownWorkflowType, match=r"no workflow type 'permits' is registered here \(known: order, permit\)"
        ):
            start("permits")
    assert bed.weft.list() == ()
