"""The topology of workers: who consumes what, under which names, and whether the store's engines are among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from weft_tasks.celery_host.checks.broker import Worker, Workers
from weft_tasks.celery_host.checks.findings import Finding, error, ok, warning
from weft_tasks.celery_host.names import ENGINE_QUEUE_PREFIX, MAINTENANCE_QUEUE, RUN_TURN, TASK_OF_PASS, TURNS_QUEUE
from weft_tasks.model import EngineStatus
from weft_tasks.settings import Settings
from weft_tasks.store.engines import EngineInfo

START_MAINTENANCE = f"celery -A APP worker -n maintenance-1@%h -Q {MAINTENANCE_QUEUE}"
START_ENGINE = f"celery -A APP worker -n engine-1@%h -Q celery,{TURNS_QUEUE}"
OTHER_APPLICATION = (
    "give each application a Redis database number, or a global_keyprefix, of its own; or deploy the application to it"
)


def check_workers(workers: Workers, engines: Sequence[EngineInfo] | None, settings: Settings) -> Iterator[Finding]:
    """`engines` is None if the store does not answer: then only what the broker shows is looked at."""
    alive = [engine for engine in engines or () if engine.is_beating(settings.grace)]
    if not workers.answered:
        silent = "" if not alive else f", although {_nodes(alive)} beat: they use another broker, or are too busy"
        yield error("workers", f"no worker answers on this broker{silent}", f"{START_ENGINE}; {START_MAINTENANCE}")
        return
    yield from _names(workers)
    yield from _consumers(workers)
    yield from _strangers(workers)
    if engines is not None:
        yield from _engines(workers, alive)
    nodes = ", ".join(sorted({f"{worker.node} ({_roles(worker)})" for worker in workers.answered}))
    yield ok("workers", f"{len(workers.answered)} answer: {nodes}")


def _names(workers: Workers) -> Iterator[Finding]:
    for node, count in Counter(worker.node for worker in workers.answered).items():
        if count > 1:
            yield error(
                "node names",
                f"{count} workers run under the node name {node!r}: commands for one reach all of them",
                "give each worker a name of its own: celery worker -n NAME@%h",
            )


def _consumers(workers: Workers) -> Iterator[Finding]:
    if not workers.consuming(TURNS_QUEUE):
        yield error("workers", f"no worker consumes {TURNS_QUEUE}: new workflows do not start", START_ENGINE)
    maintenance = workers.consuming(MAINTENANCE_QUEUE)
    if not maintenance:
        yield error(
            "workers",
            f"no worker consumes {MAINTENANCE_QUEUE}: no pass runs, so timers are late and dead engines stay unnoticed",
            START_MAINTENANCE,
        )
    elif all(TURNS_QUEUE in worker.queues for worker in maintenance) and len(workers.answered) > 1:
        yield warning(
            "workers",
            f"{MAINTENANCE_QUEUE} is consumed by engines only: busy ones delay the passes",
            f"give it a worker of its own, {START_MAINTENANCE}, and the engines -Q celery,{TURNS_QUEUE}",
        )


def _strangers(workers: Workers) -> Iterator[Finding]:
    for queue, needed in ((TURNS_QUEUE, {RUN_TURN}), (MAINTENANCE_QUEUE, set(TASK_OF_PASS.values()))):
        for worker in workers.consuming(queue):
            if worker.registered is not None and not needed <= worker.registered:
                yield error(
                    "workers",
                    f"{worker.node} consumes {queue}, but its application has no Weft: messages that reach it are lost",
                    OTHER_APPLICATION,
                )


def _engines(workers: Workers, alive: Sequence[EngineInfo]) -> Iterator[Finding]:
    by_node = {worker.node: worker for worker in workers.answered}
    for engine in alive:
        worker = by_node.get(engine.node)
        if worker is None:
            yield warning(
                "workers",
                f"engine {engine.node} beats, but does not answer on this broker",
                "wait and look again: it may be busy, reconnecting, or starting. If that stays, restart it",
            )
        elif f"{ENGINE_QUEUE_PREFIX}{engine.id}" not in worker.queues and engine.status is EngineStatus.LIVE:
            yield warning(
                "workers",
                f"engine {engine.node} does not consume its own queue: its workflows get no turns there",
                "restart it, if that stays",
            )
    known = {engine.node for engine in alive}
    for node in sorted(worker.node for worker in workers.consuming(TURNS_QUEUE) if worker.node not in known):
        yield warning(
            "workers",
            f"{node} consumes {TURNS_QUEUE}, but is no engine in this store: it starts, lost the store, or has another",
            f"look at its log for `weft.engine.started`, and at its weft_database_url; {OTHER_APPLICATION}",
        )


def _roles(worker: Worker) -> str:
    roles = [
        name for name, queue in (("engine", TURNS_QUEUE), ("maintenance", MAINTENANCE_QUEUE)) if queue in worker.queues
    ]
    if not roles and any(queue.startswith(ENGINE_QUEUE_PREFIX) for queue in worker.queues):
        return "drained engine"
    return " and ".join(roles) or "neither engine nor maintenance"


def _nodes(engines: Sequence[EngineInfo]) -> str:
    return ", ".join(sorted(engine.node for engine in engines))
