"""The ordinary `celery worker` and `celery beat` commands, as processes of a test."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from celery.utils.nodenames import default_nodename, host_format

from weft_tasks.testing.processes import LocalProcess


class WorkerProcess(LocalProcess):
    """A `celery worker`; `node` is its full name, `queues` what its command line names."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        node: str,
        queues: Sequence[str],
        log_folder: Path,
        env: Mapping[str, str],
        cwd: Path | None,
    ) -> None:
        super().__init__(
            argv,
            name=f"worker {node}",
            log_path=log_folder / f"{node}.log",
            env=env,
            cwd=cwd,
            ready_line=f"{node} ready.",
        )
        self.node, self.queues = node, tuple(queues)


def celery_worker(
    app: str,
    *,
    log_folder: Path,
    node: str = "e1@local",
    queues: Sequence[str] = (),
    concurrency: int = 2,
    pool: str = "prefork",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    import_paths: Sequence[Path] = (),
    extra: Sequence[str] = (),
) -> WorkerProcess:
    """`celery -A app worker`, not started yet. Without queues it consumes what its app says.

    `import_paths` go before the PYTHONPATH that it inherits; `extra` ends the command line.
    """
    full_node = host_format(default_nodename(node))
    return WorkerProcess(
        [
            *_celery(app, "worker"),
            *("--hostname", full_node, "--concurrency", str(concurrency), "--pool", pool),
            *(("--queues", ",".join(queues)) if queues else ()),
            *extra,
        ],
        node=full_node,
        queues=queues,
        log_folder=log_folder,
        env=_environment(env, import_paths),
        cwd=cwd,
    )


def celery_beat(
    app: str,
    *,
    log_folder: Path,
    name: str = "beat",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    import_paths: Sequence[Path] = (),
    extra: Sequence[str] = (),
) -> LocalProcess:
    """`celery -A app beat`, not started yet. Its schedule file, if its scheduler has one, is beside its log."""
    return LocalProcess(
        [*_celery(app, "beat"), "--schedule", str(log_folder / f"{name}-schedule"), *extra],
        name=name,
        log_path=log_folder / f"{name}.log",
        env=_environment(env, import_paths),
        cwd=cwd,
        ready_line="beat: Starting...",
    )


def _celery(app: str, command: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "celery", "--app", app, command, "--loglevel", "INFO")


def _environment(env: Mapping[str, str] | None, import_paths: Sequence[Path]) -> dict[str, str]:
    """Unbuffered, so that what a task prints is in the log when a test looks."""
    inherited = os.environ.get("PYTHONPATH")
    paths = [*map(str, import_paths), *([inherited] if inherited else [])]
    return {"PYTHONUNBUFFERED": "1", **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {}), **(env or {})}
