"""What the Celery host finds out about a called task: from a real result backend, and never longer than it may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from celery.states import FAILURE, PENDING, RETRY, REVOKED, STARTED, SUCCESS

from weft_tasks.celery_host.bounded import BoundedThread
from weft_tasks.celery_host.publisher import CeleryDispatcher
from weft_tasks.events import Event, Events, OutcomeUnknown
from weft_tasks.settings import Settings
from weft_tasks.store.outbox import Debt, DebtKind
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.workflows.dispatcher import CallOutcome

TIMEOUT = timedelta(seconds=0.5)
CALL = Debt(id="call-1", kind=DebtKind.CALL, workflow_id="w", run_id="r", body={"reply": "done"})


@pytest.fixture(scope="module")
def results() -> Iterator[LocalRedis]:
    with LocalRedis() as server:
        yield server


def dispatcher_of(backend: str | None, *, events: list[Event] | None = None) -> tuple[Celery, CeleryDispatcher]:
    app = Celery("shop", broker="memory://", backend=backend, set_as_current=False)
    sink = Events(*([] if events is None else [events.append]))
    return app, CeleryDispatcher(app, Settings(publish_timeout=TIMEOUT), sink)


@pytest.fixture
def asked(results: LocalRedis) -> Iterator[tuple[Celery, CeleryDispatcher]]:
    app, dispatcher = dispatcher_of(results.url(0))
    yield app, dispatcher
    app.backend.delete(app.backend.get_key_for_task(CALL.id))
    app.close()


def test_a_result_is_an_outcome(asked: tuple[Celery, CeleryDispatcher]) -> None:
    app, dispatcher = asked
    app.backend.store_result(CALL.id, {"receipt": 7}, SUCCESS)
    assert dispatcher.outcome_of_call(CALL) == CallOutcome(payload={"receipt": 7}, is_failure=False)


def test_a_failure_is_an_outcome_with_its_type_message_and_traceback(asked: tuple[Celery, CeleryDispatcher]) -> None:
    app, dispatcher = asked
    app.backend.store_result(CALL.id, ValueError("no money"), FAILURE, traceback="in line 7")
    failure = {"type": "ValueError", "message": "no money", "traceback": "in line 7"}
    assert dispatcher.outcome_of_call(CALL) == CallOutcome(payload=failure, is_failure=True)


def test_a_task_that_was_revoked_has_failed(asked: tuple[Celery, CeleryDispatcher]) -> None:
    app, dispatcher = asked
    app.backend.mark_as_revoked(CALL.id, "expired")
    outcome = dispatcher.outcome_of_call(CALL)
    assert outcome is not None
    assert outcome.is_failure
    assert isinstance(outcome.payload, dict)
    assert outcome.payload["type"] == "TaskRevokedError"
    assert app.backend.get_state(CALL.id) == REVOKED


@pytest.mark.parametrize("state", [None, STARTED, RETRY])
def test_of_a_task_that_has_not_ended_no_outcome_is_known(
    asked: tuple[Celery, CeleryDispatcher], state: str | None
) -> None:
    app, dispatcher = asked
    if state is not None:
        app.backend.store_result(CALL.id, RuntimeError("busy") if state == RETRY else {}, state)
    assert app.backend.get_state(CALL.id) == (state or PENDING)
    assert dispatcher.outcome_of_call(CALL) is None


def test_without_a_result_backend_no_outcome_is_known() -> None:
    events: list[Event] = []
    app, dispatcher = dispatcher_of(None, events=events)
    assert dispatcher.outcome_of_call(CALL) is None
    assert events == []
    app.close()


def test_a_backend_that_is_silent_holds_up_nobody() -> None:
    events: list[Event] = []
    with LocalRedis() as server:
        app, dispatcher = dispatcher_of(server.url(0), events=events)
        server.pause()
        began = time.monotonic()
        for _ in range(20):
            assert dispatcher.outcome_of_call(CALL) is None
        assert time.monotonic() - began < 4 * TIMEOUT.total_seconds()
        server.resume()
    assert [type(event) for event in events] == [OutcomeUnknown] * 20
    app.close()


# -- the thread behind it


def test_a_job_that_raises_is_an_error_in_words_and_the_next_one_runs() -> None:
    def fail() -> None:
        raise ValueError("broken")

    thread, done = BoundedThread("test", 5, waits_for="nobody"), list[int]()
    assert thread.call(fail) == "ValueError: broken"
    assert thread.call(lambda: done.append(1)) is None
    assert done == [1]


def test_what_waits_behind_a_stuck_job_is_given_up_and_never_done() -> None:
    """Its caller was told that it did not happen, and somebody else makes up for it."""
    go, done = threading.Event(), list[Any]()
    thread = BoundedThread("test", 0.2, waits_for="the server")
    first = thread.call(lambda: done.append(go.wait(10)))
    assert first == "the server did not answer within 0.2 s"
    assert thread.call(lambda: done.append("late")) == "the server does not answer"
    go.set()
    deadline = time.monotonic() + 5
    while thread.call(lambda: None) is not None:
        assert time.monotonic() < deadline
    assert done == [True]
