"""The public API, by Hypothesis: whatever is given to it is refused with an error of ours, or comes back exactly as it
was given; and no id, however it is spelled, reaches another workflow's row."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from weft_tasks.errors import InvalidInput, WeftError, WorkflowNotFound
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.testing.bed import WorkflowBed
from weft_tasks.workflows.turn import Turn

FUZZ = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
HOSTILE = (
    *("'; DROP TABLE weft_workflows; --", '"', "''", "%", "_", "%s", "$1", ":id", "{}", "{0}", "\\", "*", "?"),
    *("bystander ", " bystander", "Bystander", "bystander%", "bystander\u0301", "b_stander", "../bystander"),
    *(
        "weft:lock",
        "\x00",
        "\x1b[2J",
        "a\nb",
        "\u202e",
        "\u2028",
        "\ud800",
        "\U0001f600",
        "e\u0301",
        "\u00e9",
        "x" * 256,
    ),
)
TEXT = st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=30)
NUMBERS = st.integers() | st.floats() | st.sampled_from((-1, 0, 2**63, 10**400, -(10**400)))
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT | st.binary(max_size=5) | st.just(timedelta(1)) | st.just({1}),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(TEXT | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.fixture
def bed(backend: str, fresh_store: Callable[[str], tuple[Store, ManualClock]]) -> Iterator[WorkflowBed]:
    with WorkflowBed(store=fresh_store(backend), engines=1) as made:
        made.workflow("keeper")(_keeper).update("echo")(lambda _turn, payload: payload)
        made.start("keeper", "bystander", {"kept": True})
        made.run_due()
        yield made


def _keeper(turn: Turn) -> None:
    turn.state.setdefault("got", []).extend(signal.payload for signal in turn.take("event"))
    turn.wait("event")


def is_exact_json(value: Any) -> bool:
    """Whether JSON says it and gives back the same: what the API promises to take."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_exact_json(key) for key in value) and all(
            map(is_exact_json, value.values())
        )
    if isinstance(value, list):
        return all(map(is_exact_json, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)


@FUZZ
@given(id=TEXT | ANYTHING, name=TEXT | ANYTHING, key=st.none() | TEXT | ANYTHING, payload=ANYTHING)
@example(id="'; DROP TABLE weft_workflows; --", name="%s", key="$1", payload={"'": '"'})
@example(id="bystander%", name="event", key=None, payload=10**400)
def test_an_id_reaches_its_own_workflow_alone_or_is_refused(
    bed: WorkflowBed, id: Any, name: Any, key: Any, payload: Any
) -> None:
    weft, before = bed.weft, bed.describe("bystander")
    try:
        weft.start("keeper", id, {"id": "mine"}, on_conflict="restart-if-ended")
    except WeftError:
        assert bed.describe("bystander") == before
        return
    try:
        receipt = weft.signal(id, name, payload, key=key)
        assert (receipt.workflow_id, receipt.number) == (id, 1)
    except WeftError:
        assert bed.describe("bystander") == before
    mine = weft.describe(id) if id is not None else None
    if mine is not None:
        assert (mine.id, mine.input) == (id, {"id": "mine"})
        assert weft.list(after=None, limit=1000)
        assert [w.id for w in weft.list(limit=1000) if w.id == id] == [id]
        weft.terminate(id)
        bed.advance(seconds=1)
        weft.purge(older_than=timedelta(0), status=["terminated"])
        with pytest.raises(WorkflowNotFound):
            weft.describe(id)
    assert bed.describe("bystander") == before


@FUZZ
@given(payload=ANYTHING)
@example(payload={"a": ["\ud800"]})
@example(payload={"nul": "\0"})
@example(payload=[10**400])
@example(payload=json.loads("[" * 100 + "]" * 100))
@example(payload=-0.0)
def test_a_payload_comes_back_exactly_or_is_refused(bed: WorkflowBed, payload: Any) -> None:
    try:
        answer = bed.update("bystander", "echo", payload)
    except InvalidInput:
        assert not is_exact_json(payload) or _is_too_much(payload)
        return
    assert json.dumps(answer) == json.dumps(payload)


@FUZZ
@given(
    verb=st.sampled_from(("describe", "cancel", "terminate", "suspend", "resume", "retry", "handle")),
    id=TEXT | ANYTHING,
)
def test_a_verb_on_an_id_that_nobody_has_touches_nobody(bed: WorkflowBed, verb: str, id: Any) -> None:
    before = bed.describe("bystander")
    if verb == "handle":
        with pytest.raises(WeftError):
            bed.weft.handle(id)
    else:
        with pytest.raises(WeftError):
            getattr(bed.weft, verb)(id)
    assert bed.describe("bystander") == before


@FUZZ
@given(delay=ANYTHING, timeout=ANYTHING, limit=ANYTHING)
def test_a_time_or_a_limit_that_makes_no_sense_is_refused(
    bed: WorkflowBed, delay: Any, timeout: Any, limit: Any
) -> None:
    for call in (
        lambda: bed.weft.start("keeper", None, delay=delay, timeout=timeout),
        lambda: bed.weft.list(limit=limit),
        lambda: bed.weft.purge(older_than=delay, limit=limit),
    ):
        try:
            call()
        except WeftError:
            continue
    assert bed.describe("bystander").status == "running"


def _is_too_much(payload: Any) -> bool:
    try:
        return len(json.dumps(payload)) > 200_000
    except (ValueError, RecursionError):
        return True
