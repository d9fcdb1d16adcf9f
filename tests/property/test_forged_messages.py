"""Messages of strangers, by Hypothesis: whatever stands on the suite's queues, no task raises, none runs under a claim
that the row does not have, and each bad one is one line in the log, without anything in it that a terminal obeys."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, Task
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from weft_tasks.celery_host.tasks import register_tasks
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.testing.bed import WorkflowBed
from weft_tasks.workflows.turn import Turn

FUZZ = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ENGINE = "engine-1"
HOSTILE = ("", "'; DROP TABLE weft_workflows; --", "nul\0", "\ud800", "a\nweft.fake line", "\x1b[2J", "‮", "x" * 5000)
TEXT = st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=20)
NUMBER = st.integers() | st.sampled_from((-1, 0, 2**31, 2**63 - 1, 2**63, 10**400)) | st.floats()
JSON = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


class Scene:
    """A workflow parked on an engine, and the suite's tasks in an application without a broker."""

    def __init__(self, bed: WorkflowBed) -> None:
        self.bed = bed
        bed.workflow("permit")(_permit)
        bed.start("permit", "permit-1")
        bed.run_due()
        self.app = Celery("forged", set_as_current=False)
        weft: Any = bed.weft
        weft._identity = SimpleNamespace(engine_id=bed.weft.describe("permit-1").engine_id)
        register_tasks(self.app, bed.weft)

    def run(self, name: str, *arguments: Any, **named: Any) -> dict[str, Any]:
        """As a worker does with a message."""
        task: Task = self.app.tasks[name]
        task.push_request(id="forged", called_directly=False)
        try:
            return dict(task.run(*arguments, **named))
        finally:
            task.pop_request()

    @property
    def true_message(self) -> dict[str, Any]:
        row = self.bed.describe("permit-1")
        return {
            "workflow_id": row.id,
            "run_id": row.run_id,
            "engine_id": row.engine_id,
            "epoch": row.epoch,
            "turn": row.turn,
        }


def _permit(turn: Turn) -> None:
    turn.take("event")
    turn.wait("event")


@pytest.fixture
def scene(backend: str, fresh_store: Callable[[str], tuple[Store, ManualClock]]) -> Iterator[Scene]:
    with WorkflowBed(store=fresh_store(backend), engines=1) as bed:
        yield Scene(bed)


def assert_one_line(caplog: pytest.LogCaptureFixture) -> None:
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("weft_tasks")]
    assert len(lines) == 1, lines
    assert lines[0].isprintable()
    assert len(lines[0]) < 3000


@FUZZ
@given(
    changes=st.dictionaries(
        st.sampled_from(("workflow_id", "run_id", "engine_id", "epoch", "turn", "extra", "kind")), JSON, max_size=7
    ),
    dropped=st.sets(st.sampled_from(("workflow_id", "run_id", "engine_id", "epoch", "turn")), max_size=2),
    arguments=st.lists(JSON, max_size=1),
)
@example(changes={"workflow_id": "\ud800"}, dropped=set(), arguments=[])
@example(changes={"engine_id": "x\n\x1b[2Jweft.fake"}, dropped=set(), arguments=[])
@example(changes={"engine_id": "x reason=fine"}, dropped=set(), arguments=[])
@example(changes={}, dropped=set(), arguments=["not ours"])
@example(changes={"workflow_id": "x" * 10_000_000}, dropped=set(), arguments=[])
def test_a_forged_turn_message_begins_nothing_and_is_one_line(
    scene: Scene, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], dropped: set[str], arguments: list[Any]
) -> None:
    message = {key: value for key, value in {**scene.true_message, **changes}.items() if key not in dropped}
    assume(arguments or message != scene.true_message or any(isinstance(v, bool) for v in message.values()))
    before = scene.bed.describe("permit-1")
    caplog.clear()
    with caplog.at_level(logging.INFO):
        shown = scene.run("weft.run_turn", *arguments, **message)
    assert shown["status"] == "discarded"
    assert scene.bed.describe("permit-1") == before
    is_question = (message.get("workflow_id"), message.get("run_id")) == ("", "") and not arguments
    if not is_question:
        assert_one_line(caplog)


@FUZZ
@given(
    name=st.sampled_from(
        ("weft.renew_claims", "weft.reclaim_claims", "weft.poll_signals", "weft.poll_updates", "weft.run_once")
    ),
    arguments=st.lists(JSON, max_size=2),
    named=st.dictionaries(st.sampled_from(("engine_id", "limit", "before", "now", "kind")), JSON, max_size=3),
)
def test_a_forged_tick_is_one_line(
    scene: Scene, caplog: pytest.LogCaptureFixture, name: str, arguments: list[Any], named: dict[str, Any]
) -> None:
    assume(arguments or named)
    caplog.clear()
    shown = scene.run(name, *arguments, **named)
    assert shown["status"] == "discarded"
    assert_one_line(caplog)


@FUZZ
@given(
    name=st.sampled_from(("weft.reply", "weft.reply_failure")),
    arguments=st.lists(JSON, max_size=4),
    changes=st.dictionaries(
        st.sampled_from(("workflow_id", "run_id", "call_id", "reply", "is_failure", "extra")), JSON, max_size=6
    ),
    dropped=st.sets(st.sampled_from(("workflow_id", "run_id", "call_id", "reply")), max_size=2),
)
@example(name="weft.reply", arguments=[1], changes={"workflow_id": "permit-1", "run_id": 7}, dropped=set())
@example(name="weft.reply", arguments=[], changes={"reply": "nul\0"}, dropped=set())
@example(name="weft.reply", arguments=[1, 2], changes={}, dropped=set())
def test_a_forged_reply_reaches_no_workflow(
    scene: Scene,
    caplog: pytest.LogCaptureFixture,
    name: str,
    arguments: list[Any],
    changes: dict[str, Any],
    dropped: set[str],
) -> None:
    """Whose run it does not know."""
    sent: list[dict[str, Any]] = []
    scene.app.tasks["weft.reply"].apply_async = lambda **options: sent.append(options)
    made_up = {"workflow_id": "permit-1", "run_id": "made up", "call_id": "c", "reply": "event"}
    call = {key: value for key, value in {**made_up, **changes}.items() if key not in dropped}
    caplog.clear()
    shown = scene.run(name, *arguments, **call)
    if shown.get("status") == "discarded":
        assert_one_line(caplog)
    elif name == "weft.reply":
        assert shown["reply"].startswith("not delivered")
    else:
        assert json.dumps(sent[-1]["args"])
    assert scene.bed.describe("permit-1").pending_signals == 0


@pytest.mark.parametrize("arguments", [[], [{"a": 1}], ["event"], [None, None, None]])
def test_a_true_message_still_runs(scene: Scene, arguments: list[Any]) -> None:
    """What the tests above would not notice: that everything is discarded."""
    scene.bed.weft.signal("permit-1", "event", arguments)
    message = scene.true_message
    assert scene.run("weft.run_turn", **message)["status"] == "committed"
