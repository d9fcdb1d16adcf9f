"""The suite as a test deploys it: a database, the processes of `suite_app`, and a client of them in the test itself."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import suite_app
from celery.result import AsyncResult
from sqlalchemy import ColumnElement, and_, func, not_, select, text

from weft_tasks.celery_host.names import ENGINE_QUEUE_PREFIX
from weft_tasks.handles import WorkflowHandle
from weft_tasks.model import NewWorkflow, WorkflowInfo, WorkflowStatus
from weft_tasks.store.engines import EngineInfo
from weft_tasks.store.tables import workflows
from weft_tasks.testing.celery_commands import WorkerProcess, celery_beat, celery_worker
from weft_tasks.testing.processes import LocalProcess, tail
from weft_tasks.testing.waiting import PATIENCE, wait_until
from weft_tasks.weft import Weft

HERE = Path(__file__).parent
TTL = timedelta(seconds=3)
GRACE = timedelta(seconds=2)
INTERVAL = timedelta(seconds=1)
BEATS_PER_TTL = 6
"""An engine beats every R/2."""
SLACK = timedelta(seconds=3)
"""What two busy cores may add to a bound."""


class Gate:
    """Where a handler or a task stays until the test opens, and notes that it came."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def comings(self) -> tuple[int, ...]:
        """The process ids of those who came, in order."""
        return tuple(map(int, self.path.read_text().split())) if self.path.exists() else ()

    def wait_for(self, comings: int = 1, timeout: timedelta = PATIENCE) -> None:
        wait_until(
            lambda: len(self.comings) >= comings, what=f"{comings} at the gate {self.path.name}", timeout=timeout
        )

    def open(self) -> None:
        Path(f"{self.path}.open").touch()


class NewLines:
    """What a process logs from now on."""

    def __init__(self, process: LocalProcess) -> None:
        self._process, self._start = process, len(process.log_text())

    @property
    def text(self) -> str:
        return self._process.log_text()[self._start :]

    def wait_for(self, text: str, timeout: timedelta = PATIENCE) -> None:
        wait_until(lambda: text in self.text, what=f"{text!r} in the log of {self._process.name}", timeout=timeout)


class Deployment:
    """Makes the processes of one deployment, and shows what its store has."""

    app: ClassVar[str] = "suite_app"
    paths: ClassVar[tuple[Path, ...]] = (HERE,)
    """The application of its processes, and where it is imported from."""

    def __init__(self, *, env: Mapping[str, str], folder: Path, celery: Mapping[str, Any] | None = None) -> None:
        """`celery`: settings laid over those of `suite_app`."""
        self.env = {**env, "SUITE_CONFIG": json.dumps({**json.loads(env.get("SUITE_CONFIG", "{}")), **(celery or {})})}
        self.folder = folder
        self._gates: list[Gate] = []

    # -- processes, not started

    def worker(self, node: str, *, extra: Sequence[str] = (), **options: Any) -> WorkerProcess:
        env = {**self.env, **options.pop("env", {})}
        options = {"log_folder": self.folder, "import_paths": self.paths, **options}
        return celery_worker(
            self.app,
            node=f"{node}@local",
            env=env,
            # Mingle spends a second of every start on waiting for neighbours.
            extra=["--without-mingle", "--without-gossip", *extra],
            **options,
        )

    def beat(self, name: str = "beat", **options: Any) -> LocalProcess:
        return celery_beat(
            self.app, name=name, log_folder=self.folder, env=self.env, import_paths=self.paths, extra=[], **options
        )

    def command(self, *words: str, name: str = "command") -> LocalProcess:
        """`celery -A` its application with these words."""
        return LocalProcess(
            [sys.executable, "-m", "celery", "--app", self.app, *words],
            name=name,
            log_path=self.folder / f"{name}.log",
            env={**self.env, "PYTHONPATH": os.pathsep.join([*map(str, self.paths), os.environ.get("PYTHONPATH", "")])},
        )

    # -- the client

    @cached_property
    def weft(self) -> Weft:
        weft = suite_app.build(self.env)
        weft.app.finalize()
        return weft

    def call(self, task: str, **options: Any) -> AsyncResult:
        """Send a task by name. The connection is new, because a pooled one does not survive its Redis."""
        with self.weft.app.connection_for_write() as connection:
            return self.weft.app.send_task(task, connection=connection, **options)

    def gate(self, name: str) -> Gate:
        self._gates.append(Gate(self.folder / f"gate-{name}"))
        return self._gates[-1]

    def open_gates(self) -> None:
        """At the end of a test, so that nobody stays behind."""
        while self._gates:
            self._gates.pop().open()

    def park(self, *ids: str) -> None:
        """Start permits, and wait until they are parked."""
        for id in ids:
            self.weft.start("permit", id)
        self.wait_until_parked(*ids)

    def start_on(
        self, node: str, type_name: str, id: str, input: str, *, timeout: timedelta | None = None
    ) -> WorkflowHandle:
        """Start a workflow on this engine: claimed and sent to its own queue, as a reclaim pass would place it."""
        store, engine_id = self.weft.store, self.engine(node).id
        message = store.workflows.start_new(
            NewWorkflow(id=id, type=type_name, input_json=json.dumps(input), timeout=timeout)
        )
        grant = store.claims.acquire(id, message.run_id, message.epoch, engine_id)
        self.weft.dispatcher.send_turn(replace(message, engine_id=engine_id, epoch=grant.epoch, turn=grant.turn))
        return WorkflowHandle(self.weft, id, message.run_id)

    def park_on(self, node: str, prefix: str, count: int) -> list[str]:
        """Start permits until this engine holds so many; their ids."""
        engine_id, started = self.engine(node).id, 0

        def enough() -> list[str]:
            nonlocal started
            self.park(f"{prefix}-{started}")
            started += 1
            held = sorted(id for id in self.held_by(engine_id) if id.startswith(f"{prefix}-"))
            return held if len(held) >= count else []

        return wait_until(enough, what=f"{node} to take {count} workflows")[:count]

    def wait_for_new_work_on(self, node: str, prefix: str) -> None:
        """Start workflows until this engine has run one of them."""
        taken = "SELECT 1 FROM weft_turns WHERE engine_id = :engine_id AND workflow_id LIKE :ids"
        engine_id, started = self.engine(node).id, 0

        def has_taken_one() -> bool:
            nonlocal started
            self.weft.start("once", f"{prefix}-{started}")
            started += 1
            return bool(self.query(taken, engine_id=engine_id, ids=f"{prefix}-%"))

        wait_until(has_taken_one, what=f"{node} to take new work")

    def wait_until_parked(self, *ids: str, timeout: timedelta = PATIENCE) -> None:
        is_parked = and_(workflows.c.engine_id.is_not(None), workflows.c.waits != "[]", not_(workflows.c.due))
        self._wait_until_all(ids, is_parked, f"{len(ids)} workflows to be parked", timeout)

    def wait_for_all(self, ids: Collection[str], timeout: timedelta = PATIENCE) -> None:
        """Wait until all are completed."""
        has_completed = workflows.c.status == WorkflowStatus.COMPLETED
        self._wait_until_all(ids, has_completed, f"{len(ids)} workflows to complete", timeout)

    def _wait_until_all(self, ids: Collection[str], state: ColumnElement[bool], what: str, timeout: timedelta) -> None:
        count = select(func.count()).select_from(workflows).where(workflows.c.id.in_(list(ids)), state)

        def are_all() -> bool:
            with self.weft.store.database.reading() as connection:
                return bool(connection.execute(count).scalar_one() == len(ids))

        wait_until(are_all, what=what, timeout=timeout)

    def wait_for(
        self, id: str, status: WorkflowStatus = WorkflowStatus.COMPLETED, timeout: timedelta = PATIENCE
    ) -> WorkflowInfo:
        """Wait until a workflow has a status."""
        wait_until(
            lambda: self.weft.describe(id).status is status, what=f"workflow {id} to be {status}", timeout=timeout
        )
        return self.weft.describe(id)

    def wait_for_beats(self, *nodes: str, beats: int) -> None:
        """Wait until each engine has written that many more heartbeats: time passes, and they are alive."""
        goals = {node: self.engine(node).beat + beats for node in nodes}
        wait_until(
            lambda: all(self.engine(node).beat >= goal for node, goal in goals.items()),
            what=f"{beats} heartbeats of {', '.join(nodes)}",
        )

    # -- what the store has

    def query(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self.weft.store.database.reading() as connection:
            return [tuple(row) for row in connection.execute(text(statement), parameters)]

    def execute(self, statement: str, **parameters: Any) -> None:
        with self.weft.store.database.transaction() as connection:
            connection.execute(text(statement), parameters)

    def claims(self, *ids: str) -> dict[str, tuple[str, int]]:
        """Engine and epoch of every claim, or of the claims on these workflows."""
        rows = self.query("SELECT workflow_id, engine_id, epoch FROM weft_claims")
        return {row[0]: (row[1], row[2]) for row in rows if not ids or row[0] in ids}

    def held_by(self, engine_id: str) -> set[str]:
        return {id for id, (holder, _epoch) in self.claims().items() if holder == engine_id}

    def engines(self, node: str) -> list[EngineInfo]:
        """Every engine known under a node name, the newest last."""
        return [engine for engine in self.weft.store.engines.list() if engine.node == f"{node}@local"]

    def engine(self, node: str) -> EngineInfo:
        """The newest engine under a node name."""
        return self.engines(node)[-1]

    def queue_of(self, node: str) -> str:
        """The name of the queue that only this engine consumes; also its key in Redis."""
        return f"{ENGINE_QUEUE_PREFIX}{self.engine(node).id}"

    def events(self, event: str, *ids: str) -> list[tuple[str, int]]:
        """The workflow and epoch of each such entry in the history of these workflows."""
        entries = self.weft.store.history.list(event=event)
        return [(entry.workflow_id, entry.epoch) for entry in entries if entry.workflow_id in ids]

    def committed_turns(self, id: str) -> list[tuple[int, int]]:
        """Turn and epoch of each commit, in order."""
        rows = self.query("SELECT turn, epoch FROM weft_turns WHERE workflow_id = :id ORDER BY turn", id=id)
        return [(row[0], row[1]) for row in rows]


def show_logs(*processes: LocalProcess) -> None:
    """The ends of their logs, which pytest shows when the test failed."""
    for process in processes:
        lines = (line for line in process.log_text().splitlines() if "Sending due task" not in line)
        sys.stdout.write(f"-- {process.name}\n{tail(chr(10).join(lines), 60)}\n")
