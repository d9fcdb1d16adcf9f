"""The application under fault: workflows that note, in their state, what they were given, and each side effect in the
ledger. The environment names broker and database; FAULTS_LEDGER the ledger, FAULTS_CONFIG further settings as JSON."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import json
import os
import resource
import runpy
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from celery import Celery, current_app

from faults.ledger import Ledger
from weft_tasks import Turn, TurnEnd, Weft

SHIPPED = Path(__file__).parents[1] / "celeryconfig.py"
NAMES = ("a", "b")
TTL_S, INTERVAL_S = 4, 1
HUNGRY_TURNS = 3
MEGABYTE = 1024 * 1024
SETTINGS: Mapping[str, Any] = {
    "weft_claim_ttl": TTL_S,
    "weft_renew_interval": INTERVAL_S,
    # A killed worker can take a message along that Redis has handed over and kombu not yet noted.
    "weft_call_resend_after": 8,
}


def build(environ: Mapping[str, str]) -> Weft:
    """The shipped configuration with small durations: in the workers, in the clients, and in the bench itself."""
    app = Celery("faults")
    app.config_from_object({name: value for name, value in runpy.run_path(str(SHIPPED)).items() if name[0] != "_"})
    app.conf.update(SETTINGS)
    app.conf.update(
        broker_url=environ["BROKER_URL"],
        result_backend=environ["BROKER_URL"],
        weft_database_url=environ["DATABASE_URL"],
    )
    app.conf.update(json.loads(environ.get("FAULTS_CONFIG", "{}")))
    weft = Weft(app)
    weft.workflow("collector")(collector).update("add")(add)
    for handler in (alarm, caller, leaf, hog, endless):
        weft.workflow(handler.__name__)(handler)
    app.task(name="faults.note", acks_late=True)(note)
    return weft


# -- workflows


def collector(turn: Turn) -> TurnEnd | None:
    """Keeps number and key of each signal by name, in the order in which turns were given them."""
    for name in NAMES:
        taken = [[signal.number, signal.payload] for signal in turn.take(name)]
        turn.state.setdefault(name, []).extend(taken)
        for _number, key in taken:
            effect(turn, f"signal {key}")
    if turn.take("finish"):
        return turn.complete(None)
    turn.wait(*NAMES, "finish")
    return None


def add(turn: Turn, key: str) -> int:
    """An update of `collector`: notes it, and answers with how many there are now."""
    added: list[Any] = turn.state.setdefault("added", [])
    added.append(key)
    effect(turn, f"update {key}")
    return len(added)


def alarm(turn: Turn) -> TurnEnd | None:
    """Sleeps as long as its input says, then completes."""
    if turn.number == 0:
        turn.sleep(turn.input)
        return None
    effect(turn, "alarm")
    return turn.complete(turn.number)


def caller(turn: Turn) -> TurnEnd | None:
    """Calls a task and starts a child, and completes once both have answered."""
    if turn.number == 0:
        turn.call(current_app.signature("faults.note", args=[turn.workflow_id]), reply="noted")
        turn.start_child("leaf", reply="grown")
    for name in ("noted", "grown"):
        turn.state.setdefault(name, []).extend(reply.payload for reply in turn.take(name))
    if turn.state["noted"] and turn.state["grown"]:
        effect(turn, "answers")
        return turn.complete(turn.state)
    turn.wait("noted", "grown")
    return None


def leaf(turn: Turn) -> TurnEnd:
    effect(turn, "leaf")
    return turn.complete("grown")


def hog(turn: Turn) -> TurnEnd:
    """Takes all memory in its first three turns: either the system refuses it, or kills the process for it."""
    path = Path(turn.input["count"])
    with path.open("a") as file:
        file.write("x")
    if path.stat().st_size <= HUNGRY_TURNS:
        if turn.input["ends"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)  # As the kernel does when memory has run out.
        _exhaust_memory()
    effect(turn, "hog")
    return turn.complete("fed")


def _exhaust_memory() -> None:
    """Ask for more than this process is allowed, which raises MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 64 * MEGABYTE, before[1]))
    try:
        bytearray(1024 * MEGABYTE)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def endless(turn: Turn) -> TurnEnd:
    """A turn that never ends, as long as the file of its input is not there."""
    effect(turn, "endless")
    while not Path(turn.input).exists():
        time.sleep(0.05)
    return turn.complete("over")


# -- its task


def note(workflow_id: str) -> str:
    Ledger.from_environment().note(what="activity", workflow=workflow_id, task=current_app.current_task.request.id)
    return "noted"


def effect(turn: Turn, what: str) -> None:
    """A side effect: a line in the ledger, with who did it under which claim."""
    begun = turn._begun
    Ledger.from_environment().note(
        what=what,
        workflow=begun.workflow_id,
        run=begun.run_id,
        turn=begun.turn,
        attempt=begun.attempt,
        engine=begun.engine_id,
        epoch=begun.epoch,
    )


def __getattr__(name: str) -> Any:
    """`celery -A faults.app` gets the application of its environment; an import of this module builds none."""
    if name != "app":
        raise AttributeError(name)
    return globals().setdefault("app", build(os.environ).app)
