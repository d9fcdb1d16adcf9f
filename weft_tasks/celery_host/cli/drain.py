"""`drain`: take an engine out of service, and wait until it holds nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from weft_tasks.celery_host.cli.parameters import DURATION
from weft_tasks.celery_host.cli.suite import Failure, with_suite

if TYPE_CHECKING:
    from weft_tasks.celery_host.cli.output import Output
    from weft_tasks.store.engines import EngineInfo
    from weft_tasks.weft import Weft

DEFAULT_PATIENCE = timedelta(seconds=60)
PAUSE_S = 0.2
NAMED = 5


@click.command()
@click.argument("node")
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    default=DEFAULT_PATIENCE,
    show_default="60s",
    help="How long to wait for the turns that run now.",
)
@with_suite
def drain(suite: Weft, output: Output, node: str, timeout: timedelta) -> None:
    """Take the engine NODE out of service, and wait until it holds no workflow.

    NODE is its node name (`engine-1@host`), or its engine id. From now on it is given nothing, its idle workflows move
    to other engines at once, and each busy one with the commit of its turn. When this says "drained", it holds nothing
    and will get nothing: stop the worker whenever you like. The worker itself stays up and goes on with tasks that are
    no workflows; only starting it again brings the engine back.

    A SIGTERM to the worker does all of this as well. Exit status 1 if turns still run when the time is up; the engine
    goes on draining, and the same command waits again.
    """
    from weft_tasks.model import EngineStatus

    engine = _find(suite, node)
    if engine.status is not EngineStatus.STOPPED:
        _say_who_is_left(suite, output, engine)
        engine = _wait_until_empty(suite, output, engine, timeout)
    document = {"node": engine.node, "engine": engine.id, "status": engine.status.value, "claims": engine.claims}
    words = "has stopped" if engine.status is EngineStatus.STOPPED else "is drained"
    output.show(document, f"{engine.node} ({engine.id}) {words} and holds no workflow")


def _wait_until_empty(suite: Weft, output: Output, engine: EngineInfo, timeout: timedelta) -> EngineInfo:
    """The mark is committed before anything is released: then nothing new can begin there, and what is still held when
    this looks is held because its turn runs (O6)."""
    from weft_tasks.celery_host.words import counted

    ends = time.monotonic() + timeout.total_seconds()
    suite.store.engines.drain(engine.id)
    told: int | None = None
    while True:
        if suite.store.claims.release_idle(engine.id):
            suite.dispatcher.request_reclaim()
        found = _by_id(suite, engine.id)
        if found is None or found.claims == 0:
            return found or engine
        if time.monotonic() >= ends:
            raise Failure(_not_yet(suite, found, timeout))
        if found.claims != told and not output.as_json:
            output.note(f"{found.node} is draining: turns of {counted(found.claims, 'workflow')} run")
            told = found.claims
        time.sleep(PAUSE_S)


def _not_yet(suite: Weft, engine: EngineInfo, timeout: timedelta) -> str:
    from weft_tasks.celery_host.words import counted

    held = [info.id for info in suite.list(engine_id=engine.id, limit=NAMED)]
    more = ", …" if engine.claims > len(held) else ""
    return (
        f"after {timeout.total_seconds():g} s {engine.node} still runs turns of {counted(engine.claims, 'workflow')} "
        f"({', '.join(held)}{more}); it goes on draining. Ask again, or stop the worker to end them"
    )


def _find(suite: Weft, node: str) -> EngineInfo:
    """The newest engine under the name, one that runs before one that has stopped."""
    from weft_tasks.model import EngineStatus

    engines = suite.store.engines.list()
    named = [engine for engine in engines if node in (engine.node, engine.id)]
    if not named:
        known = ", ".join(sorted({engine.node for engine in engines})) or "none"
        raise Failure(f"no engine is known under {node!r} (known: {known})")
    running = [engine for engine in named if engine.status is not EngineStatus.STOPPED]
    return (running or named)[-1]


def _by_id(suite: Weft, engine_id: str) -> EngineInfo | None:
    return next((engine for engine in suite.store.engines.list() if engine.id == engine_id), None)


def _say_who_is_left(suite: Weft, output: Output, drained: EngineInfo) -> None:
    others = [engine for engine in suite.store.workflows.list_engines_taking_work() if engine.engine_id != drained.id]
    known: set[str] = {name for engine in others for name, _version in engine.types}
    orphaned: Sequence[str] = [name for name in drained.types if name not in known]
    if orphaned:
        output.note(f"no other engine runs {', '.join(orphaned)} now: those workflows wait until one does")
