"""The span of a turn, as OpenTelemetry makes it for Celery tasks, links to whoever sent what woke the turn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from weft_tasks.store.tables import signals
from weft_tasks.tracing import current_trace, link_current_span
from weft_tasks.weft import Weft
from weft_tasks.workflows.turn import Turn


class Scene:
    """An application with one engine, in this process, whose spans are kept in memory."""

    def __init__(self, weft: Weft, tracing: TracerProvider, spans: InMemorySpanExporter) -> None:
        self.weft = weft
        self.tracer = tracing.get_tracer("test")
        self._spans = spans

    def run_turn(self, id: str) -> ReadableSpan:
        """Run the workflow's turn as its task, and return the span of it."""
        known = self.weft.describe(id)
        self._spans.clear()
        self.weft.app.tasks["weft.run_turn"].apply(
            kwargs={
                "workflow_id": id,
                "run_id": known.run_id,
                "engine_id": known.engine_id,
                "epoch": known.epoch,
                "turn": known.turn,
            }
        )
        (ran,) = [span for span in self._spans.get_finished_spans() if span.name == "run/weft.run_turn"]
        return ran


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    spans = InMemorySpanExporter()
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    app = Celery("traced", broker="memory://", set_as_current=False)
    app.conf.weft_database_url = f"sqlite:///{tmp_path / 'weft.sqlite3'}"
    weft = Weft(app)
    for handler in (permit, parent, child):
        weft.workflow(handler.__name__)(handler)
    app.finalize()
    weft.migrate()
    engine_id = weft._identity.mint()
    weft.store.engines.register(engine_id, node="e@h", host="h", pid=1, types=weft.registry.names, slots=1)
    instrumentor = CeleryInstrumentor()
    instrumentor.instrument(tracer_provider=tracing)
    yield Scene(weft, tracing, spans)
    instrumentor.uninstrument()
    weft.store.database.dispose()


def permit(turn: Turn) -> None:
    turn.take("event")
    turn.wait("event")


def parent(turn: Turn) -> None:
    if turn.number == 0:
        turn.start_child("child", id="the-child", reply="done")
    turn.take("done")
    turn.wait("done")


def child(turn: Turn) -> Any:
    return turn.complete(1)


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def id_of(span: trace.Span) -> int:
    return span.get_span_context().span_id


def test_a_first_turn_links_to_whoever_started_the_workflow(scene: Scene) -> None:
    with scene.tracer.start_as_current_span("web request") as sender:
        scene.weft.start("permit", "w")
    ran = scene.run_turn("w")
    assert linked(ran) == {id_of(sender)}
    assert ran.attributes is not None
    assert (ran.attributes["weft.workflow.id"], ran.attributes["weft.workflow.type"]) == ("w", "permit")
    assert (ran.attributes["weft.turn"], ran.attributes["weft.epoch"]) == (0, 1)


def test_a_turn_links_to_every_sender_of_what_woke_it_and_to_nobody_else(scene: Scene) -> None:
    with scene.tracer.start_as_current_span("start"):
        scene.weft.start("permit", "w")
    scene.run_turn("w")
    with scene.tracer.start_as_current_span("one") as one:
        scene.weft.signal("w", "event")
        scene.weft.signal("w", "event")
    with scene.tracer.start_as_current_span("two") as two:
        scene.weft.update("w", "ask")
    with scene.tracer.start_as_current_span("a signal that nobody waits for"):
        scene.weft.signal("w", "other")
    scene.weft.signal("w", "event")
    assert linked(scene.run_turn("w")) == {id_of(one), id_of(two)}
    scene.weft.signal("w", "event")
    assert linked(scene.run_turn("w")) == set()


def test_a_child_links_to_the_turn_that_started_it_and_its_parent_to_the_turn_that_ended_it(scene: Scene) -> None:
    scene.weft.start("parent", "the-parent")
    started = scene.run_turn("the-parent")
    ended = scene.run_turn("the-child")
    assert linked(ended) == {started.context.span_id if started.context else 0}
    woken = scene.run_turn("the-parent")
    assert linked(woken) == {ended.context.span_id if ended.context else 0}


def test_what_is_sent_outside_of_any_span_or_in_one_that_is_not_recorded_leaves_no_trace(scene: Scene) -> None:
    scene.weft.start("permit", "w")
    assert linked(scene.run_turn("w")) == set()
    with TracerProvider(sampler=ALWAYS_OFF).get_tracer("off").start_as_current_span("unsampled"):
        scene.weft.signal("w", "event")
        assert current_trace() is None
    with scene.weft.store.database.reading() as connection:
        assert connection.execute(signals.select()).one().trace is None
    assert linked(scene.run_turn("w")) == set()


def test_a_trace_that_cannot_be_read_is_left_out(scene: Scene) -> None:
    with scene.tracer.start_as_current_span("turn") as span:
        trace_of_it = current_trace()
        link_current_span(["nonsense", "", f"{trace_of_it}"], {})
    assert isinstance(span, ReadableSpan)
    assert linked(span) == {id_of(span)}


def test_without_the_library_a_turn_runs_as_ever_and_imports_none_of_it() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from weft_tasks.testing.bed import WorkflowBed\n"
        "with WorkflowBed() as bed:\n"
        "    bed.workflow('once')(lambda turn: turn.complete(1))\n"
        "    bed.start('once', 'w'); bed.run_due(); assert bed.result('w') == 1\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.')]\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
