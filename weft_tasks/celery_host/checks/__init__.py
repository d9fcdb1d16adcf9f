"""What is wrong with a deployment, and what to do about it: the findings of `celery -A APP weft check`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from weft_tasks.celery_host.checks.broker import Broker, check_broker, check_lock_server
from weft_tasks.celery_host.checks.configuration import check_celery_settings, check_settings
from weft_tasks.celery_host.checks.contents import check_engines, check_passes, check_stuck
from weft_tasks.celery_host.checks.findings import Finding, Level
from weft_tasks.celery_host.checks.store import check_store
from weft_tasks.celery_host.checks.workers import check_workers

if TYPE_CHECKING:
    from weft_tasks.weft import Weft

__all__ = ["Finding", "Level", "check_deployment"]


def check_deployment(suite: Weft, patience: timedelta) -> tuple[Finding, ...]:
    """Look at settings, store, broker, lock server, workers, passes and what is stuck. What cannot be looked at,
    because something before it fails, is left out. Waits up to `patience` for each answer of the broker and of the
    workers.

    Changes nothing but a scratch key in the lock server that lives for a second. Raises StoreUnavailable only if the
    store stops answering meanwhile.
    """
    return tuple(_findings(suite, patience))


def _findings(suite: Weft, patience: timedelta) -> Iterator[Finding]:
    settings = check_settings(suite)
    yield settings
    yield from check_celery_settings(suite.app)
    with Broker(suite.app, patience) as broker:
        reached = check_broker(broker)
        yield reached
        if settings.level is Level.ERROR:
            return
        store = tuple(check_store(suite.store, suite.settings))
        yield from store
        has_store = not any(finding.level is Level.ERROR for finding in store)
        yield from check_lock_server(suite, has_store=has_store)
        overview = suite.store.overviews.read() if has_store else None
        workers = None
        if reached.level is not Level.ERROR:
            workers = broker.workers()
            yield from check_workers(workers, None if overview is None else overview.engines, suite.settings)
        if overview is not None:
            yield from check_engines(overview, suite.settings)
            yield from check_passes(overview, suite.settings, workers)
            yield from check_stuck(overview)
