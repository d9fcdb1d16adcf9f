"""Every log line has a stable key and its fields, for people and for machines; the page about them lists them."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from celery.signals import after_setup_logger, after_setup_task_logger

import weft_tasks
from weft_tasks.events import (
    ClaimAttempted,
    ClaimLost,
    ClaimOutcome,
    CommitUnknown,
    Event,
    Events,
    PublishFailed,
    TurnEnded,
    TurnFailed,
    WakeDiscarded,
)
from weft_tasks.lines import KEYS, write
from weft_tasks.log_lines import log_event
from weft_tasks.model import TurnMessage
from weft_tasks.store.turns import Discard

PACKAGE = Path(weft_tasks.__file__).parent
PAGE = PACKAGE.parent / "docs/logs.md"
HOSTILE = "w' engine=other\nweft.claim.lost workflow='forged'\x1b[2J\u202e"
WHO: dict[str, Any] = {"workflow_id": "order-1", "run_id": "r", "engine_id": "8b1f", "epoch": 3}
TURN: dict[str, Any] = {"workflow_id": "order-1", "engine_id": "8b1f", "epoch": 3, "turn": 2}


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="weft_tasks")
    return caplog


def discarded(reason: str, workflow_id: str = "order-1") -> WakeDiscarded:
    message = TurnMessage(workflow_id=workflow_id, run_id="r", engine_id="8b1f", epoch=3, turn=2)
    return WakeDiscarded(message=message, reason=reason)


@pytest.mark.parametrize(
    ("event", "level", "line"),
    [
        (
            ClaimLost(**WHO, turn=2, attempt=1),
            "WARNING",
            "weft.claim.lost workflow='order-1' engine=8b1f epoch=3 turn=2 attempt=1: the commit was refused",
        ),
        (
            ClaimAttempted(
                **WHO, outcome=ClaimOutcome.TAKEOVER, from_engine_id="77aa", silent_for=timedelta(seconds=41.5)
            ),
            "INFO",
            "weft.claim.taken-over workflow='order-1' engine=8b1f epoch=3 from=77aa silent_for=41.500",
        ),
        (
            ClaimAttempted(**WHO, outcome=ClaimOutcome.ACQUIRED),
            "DEBUG",
            "weft.claim.acquired workflow='order-1' engine=8b1f epoch=3",
        ),
        (
            ClaimAttempted(**WHO, outcome=ClaimOutcome.LOST_RACE),
            "DEBUG",
            "weft.claim.lost-race workflow='order-1' engine=8b1f epoch=3",
        ),
        (
            TurnFailed(**TURN, error="ValueError: no", retry_in=2.0),
            "WARNING",
            "weft.turn.failed workflow='order-1' engine=8b1f epoch=3 turn=2 error='ValueError: no': next try in 2 s",
        ),
        (
            TurnFailed(**TURN, error="ValueError: no", retry_in=None),
            "WARNING",
            "weft.turn.failed workflow='order-1' engine=8b1f epoch=3 turn=2 error='ValueError: no': "
            "the workflow has failed",
        ),
        (
            CommitUnknown(**TURN, error="no answer"),
            "WARNING",
            "weft.commit.unknown workflow='order-1' engine=8b1f epoch=3 turn=2 error='no answer'",
        ),
        (
            discarded(Discard.OTHER_TURN),
            "INFO",
            "weft.wake.discarded workflow='order-1' engine=8b1f epoch=3 turn=2 reason=other-turn",
        ),
        (
            discarded(Discard.SET_ASIDE),
            "WARNING",
            "weft.workflow.set-aside workflow='order-1' engine=8b1f epoch=3 turn=2: retry it once it can work",
        ),
        (
            PublishFailed(message="turn 2 of 'order-1'", error="gone"),
            "WARNING",
            "weft.publish.failed what=\"turn 2 of 'order-1'\" error='gone': the row sends it again",
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_an_event_is_one_line_with_its_key_first(
    logged: pytest.LogCaptureFixture, event: Event, level: str, line: str
) -> None:
    log_event(event)
    assert [(record.levelname, record.getMessage()) for record in logged.records] == [(level, line)]
    assert logged.records[0].weft_event == line.split()[0]  # type: ignore[attr-defined]


def test_a_turn_that_ended_as_it_should_is_no_line(logged: pytest.LogCaptureFixture) -> None:
    log_event(TurnEnded(**TURN, type="order", status="committed", took=timedelta(0), woken_after=None))
    assert logged.records == []


def test_hostile_ids_and_errors_stay_on_their_line_and_in_their_field(logged: pytest.LogCaptureFixture) -> None:
    log_event(discarded(Discard.NO_WORKFLOW, HOSTILE))
    log_event(TurnFailed(**{**TURN, "workflow_id": HOSTILE}, error=HOSTILE, retry_in=None))
    write(logging.getLogger("weft_tasks"), logging.INFO, "weft.engine.started", {"node": HOSTILE})
    assert len(logged.records) == 3
    for record in logged.records:
        line = record.getMessage()
        assert line.isprintable(), line
        assert repr(HOSTILE) in line


def test_a_percent_sign_is_only_a_percent_sign(logged: pytest.LogCaptureFixture) -> None:
    log_event(PublishFailed(message="100%s", error="%d"))
    assert "what='100%s' error='%d'" in logged.records[0].getMessage()


def test_a_receiver_that_raises_is_a_line_with_its_traceback(logged: pytest.LogCaptureFixture) -> None:
    def broken(_event: Event) -> None:
        raise ValueError("broken")

    Events(broken).emit(PublishFailed(message="m", error="e"))
    assert logged.records[0].weft_event == "weft.sink.failed"  # type: ignore[attr-defined]
    assert logged.records[0].exc_info is not None


def test_the_json_formatter_of_docs_logs_md_finds_the_fields_and_nothing_that_hides_them() -> None:
    """With the block of the page, which sets it for whatever handlers Celery has given a logger."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    page: dict[str, Any] = {}
    exec(block, page)
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logger = logging.getLogger("weft_tasks")
    logger.addHandler(handler)
    try:
        after_setup_logger.send(sender=None, logger=logger)
        log_event(ClaimLost(**{**WHO, "workflow_id": HOSTILE}, turn=2, attempt=1))
    finally:
        logger.removeHandler(handler)
        for signal in (after_setup_logger, after_setup_task_logger):
            signal.disconnect(page["write_json"])
    (written,) = text.getvalue().splitlines()
    shown = json.loads(written)
    assert shown["weft_event"] == "weft.claim.lost"
    assert shown["weft_workflow"] == HOSTILE
    assert (shown["weft_engine"], shown["weft_epoch"], shown["weft_turn"]) == ("8b1f", 3, 2)
    assert shown["message"].startswith("weft.claim.lost workflow=")


# -- the keys


def calls() -> Iterator[tuple[Path, ast.Call]]:
    for file in PACKAGE.rglob("*.py"):
        if "testing" not in file.parts:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call):
                    yield file, node


def test_every_line_is_written_under_a_key_that_is_listed_and_every_key_is_used() -> None:
    used = set()
    for file, call in calls():
        if isinstance(call.func, ast.Name) and call.func.id == "write" and len(call.args) >= 3:
            key = call.args[2]
            assert isinstance(key, ast.Constant), f"{file}:{call.lineno}: a key is a constant"
            used.add(key.value)
    assert used == set(KEYS) - {"weft.start.refused"}


def test_nothing_logs_past_the_keys() -> None:
    """But for the one line of a worker that does not start."""
    methods = {"debug", "info", "warning", "error", "exception", "critical", "log"}
    past = [
        f"{file.relative_to(PACKAGE)}"
        for file, call in calls()
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in methods
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "logger"
    ]
    assert sorted(past) == ["celery_host/steps.py", "lines.py", "weft.py"]


def test_the_page_about_logs_lists_the_keys_with_their_meanings() -> None:
    rows = re.findall(r"^\| `(weft\.[a-z.-]+)` \| (.+) \|$", PAGE.read_text(), re.M)
    assert dict(rows) == dict(KEYS)
    assert [key for key, _meaning in rows] == list(KEYS)


def test_keys_that_other_pages_name_are_ones_that_there_are() -> None:
    for page in PAGE.parent.rglob("*.md"):
        named = set(
            re.findall(
                r"`(weft\.(?:claim|turn|commit|heart|engine|pass|publish|wake|tidying)\.[a-z-]+)[ `]", page.read_text()
            )
        )
        assert named <= set(KEYS), page
