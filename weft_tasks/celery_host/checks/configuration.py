"""The application's configuration: our settings, Celery's that matter to us, and what beat is to fire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from celery import Celery

from weft_tasks.celery_host.checks.findings import Finding, error, ok, warning
from weft_tasks.celery_host.names import TASK_OF_PASS
from weft_tasks.errors import SettingsError

if TYPE_CHECKING:
    from weft_tasks.weft import Weft

SAFE_CONTENT = frozenset({"json", "application/json"})


def check_settings(suite: Weft) -> Finding:
    """Whether the `weft_*` settings construct."""
    try:
        settings = suite.settings
    except SettingsError as refused:
        return error("settings", str(refused), "change the settings that are named in the application's configuration")
    ttl, interval = settings.claim_ttl.total_seconds(), settings.renew_interval.total_seconds()
    limit = settings.silence_limit.total_seconds()
    return ok("settings", f"T = {ttl:g} s, R = {interval:g} s; a silent engine is dead after {limit:g} s")


def check_celery_settings(app: Celery) -> Iterator[Finding]:
    """Celery's own settings that the suite depends on, and the beat entries of the passes."""
    yield from _content(app)
    if app.conf.worker_prefetch_multiplier != 1:
        yield warning(
            "prefetch",
            f"worker_prefetch_multiplier is {app.conf.worker_prefetch_multiplier}: new workflows wait behind a busy "
            "worker that has prefetched them",
            "set worker_prefetch_multiplier = 1",
        )
    yield from _transport(app)
    yield from _schedule(app)


def _content(app: Celery) -> Iterator[Finding]:
    for name in ("accept_content", "result_accept_content"):
        unsafe = sorted(str(kind) for kind in set(getattr(app.conf, name) or ()) - SAFE_CONTENT)
        if unsafe:
            yield warning(
                "content",
                f"{name} accepts {', '.join(unsafe)}: who can write to the broker may bring code along",
                f'set {name} = ["json"]',
            )


def _transport(app: Celery) -> Iterator[Finding]:
    options: dict[str, Any] = app.conf.broker_transport_options or {}
    missing = [name for name in ("socket_timeout", "socket_connect_timeout") if not options.get(name)]
    if missing:
        yield warning(
            "transport",
            f"broker_transport_options has no {' and no '.join(missing)}: a broker that falls silent blocks a worker "
            "for as long as it is silent",
            'set broker_transport_options = {"socket_timeout": 10, "socket_connect_timeout": 3, '
            '"socket_keepalive": True, "health_check_interval": 5}',
        )


def _schedule(app: Celery) -> Iterator[Finding]:
    entries: dict[str, Any] = app.conf.beat_schedule or {}
    scheduled = {entry.get("task") for entry in entries.values()}
    unscheduled = [task for task in TASK_OF_PASS.values() if task not in scheduled]
    if unscheduled:
        yield error(
            "schedule",
            f"beat_schedule does not fire {', '.join(unscheduled)}",
            "leave the entries of these names to Weft(app), and do not assign beat_schedule after it",
        )
    unknown = sorted(str(task) for task in scheduled if task not in app.tasks)
    if unknown:
        yield warning(
            "schedule",
            f"beat_schedule fires {', '.join(unknown)}, which this application does not know",
            "import the modules of these tasks (`include`), or remove the entries",
        )
    if not unscheduled and not unknown:
        yield ok("schedule", f"beat fires {len(entries)} entries, the four passes among them")
