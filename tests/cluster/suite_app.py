"""The application of the cluster tests: workflows that do as their input says, under settings with small durations.

The shipped `celeryconfig.py` with T = 3 s and R = 1 s. The environment names broker and database; SUITE_CONFIG has
further Celery settings as JSON, SUITE_LOCKS=always-yes replaces the single-flight locks.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import json
import os
import runpy
import signal
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from celery import Celery

from weft_tasks.locks import AlwaysYes
from weft_tasks.weft import Weft
from weft_tasks.workflows.turn import Turn, TurnEnd

SHIPPED = Path(__file__).parents[2] / "celeryconfig.py"
LONGEST_STAY = 60.0
"""Seconds after which somebody at a gate goes on, so that a test that failed leaves no busy pool for ever."""


def build(environ: Mapping[str, str]) -> Weft:
    """The application with its suite: in the workers by the environment, in the tests as their client."""
    app = Celery("suite")
    app.config_from_object({name: value for name, value in runpy.run_path(str(SHIPPED)).items() if name[0] != "_"})
    app.conf.update(
        broker_url=environ["BROKER_URL"],
        result_backend=environ.get("CELERY_RESULT_BACKEND", environ["BROKER_URL"]),
        weft_database_url=environ["DATABASE_URL"],
        weft_claim_ttl=3,
        weft_renew_interval=1,
        # Tests look at the events of ticks that did nothing.
        weft_idle_tick_event_interval=0.001,
    )
    app.conf.update(json.loads(environ.get("SUITE_CONFIG", "{}")))
    locks = AlwaysYes() if environ.get("SUITE_LOCKS") == "always-yes" else None
    weft = Weft(app, locks=locks)
    weft.workflow("permit")(permit).update("count")(count)
    for handler in (gate, stay, once, poison):
        weft.workflow(handler.__name__)(handler)
    app.task(name="suite.occupy", ignore_result=True)(occupy)
    app.task(name="suite.noted", ignore_result=True)(note)
    app.task(name="suite.written", ignore_result=True)(write)
    return weft


# -- workflows


def permit(turn: Turn) -> TurnEnd | None:
    """Collects events until one is `closed`."""
    for event in turn.take("event"):
        turn.state.setdefault("steps", []).append(event.payload)
        if event.payload == "closed":
            return turn.complete(turn.state["steps"])
    turn.wait("event", timeout=timedelta(days=30))
    return None


def count(turn: Turn, payload: Any) -> int:
    """An update of `permit`: how many events it has, and `payload`."""
    if not isinstance(payload, int):
        raise TypeError(f"{payload!r} is no number")
    return len(turn.state.get("steps", [])) + payload


def gate(turn: Turn) -> TurnEnd:
    """Stays in its turn until the test opens the gate; notes each time it came."""
    stay_at(turn.input)
    return turn.complete(os.getpid())


def stay(turn: Turn) -> TurnEnd | None:
    """The first turn as `gate`; parked after it until an event comes."""
    if turn.number == 0:
        stay_at(turn.input)
    if turn.take("event"):
        return turn.complete(os.getpid())
    turn.wait("event")
    return None


def once(turn: Turn) -> TurnEnd:
    if turn.input:
        note(turn.input)
    return turn.complete(turn.workflow_id)


def poison(turn: Turn) -> TurnEnd:
    """Kills the process it runs in."""
    note(turn.input)
    os.kill(os.getpid(), signal.SIGKILL)
    return turn.complete()


# -- ordinary tasks of the application


def occupy(path: str) -> None:
    """An ordinary task that takes long."""
    stay_at(path)


def note(path: str) -> None:
    """Add a line with this process's id to a file: a side effect that a test can count."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")


def write(database: str, path: str) -> None:
    """Write to an SQLite store with nothing but SQLite, which is what a child forked at a bad moment cannot do."""
    with closing(sqlite3.connect(database, timeout=5)) as connection, connection:
        connection.execute("UPDATE weft_store SET epoch_floor = epoch_floor")
    note(path)


def stay_at(path: str) -> None:
    note(path)
    ends = time.monotonic() + LONGEST_STAY
    while not Path(f"{path}.open").exists() and time.monotonic() < ends:
        time.sleep(0.02)


def __getattr__(name: str) -> Any:
    """`celery -A suite_app` gets the application of its environment; a test's import of this module builds none."""
    if name != "app":
        raise AttributeError(name)
    return globals().setdefault("app", build(os.environ).app)
