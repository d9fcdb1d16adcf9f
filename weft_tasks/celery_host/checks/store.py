"""The store: whether it answers, has this release's schema, and agrees with this host about the time."""

from __future__ import annotations

from collections.abc import Iterator

from weft_tasks.celery_host.checks.findings import Finding, error, ok, warning
from weft_tasks.errors import SchemaError, SettingsError, StoreUnavailable
from weft_tasks.settings import Settings
from weft_tasks.store import Store, schema


def check_store(store: Store, settings: Settings) -> Iterator[Finding]:
    """An error finding means that nothing can be read from it."""
    try:
        database = store.database
        schema.check(database)
        skew = store.overviews.clock_skew()
    except StoreUnavailable as unavailable:
        yield error("store", str(unavailable), "start the database, or correct weft_database_url")
        return
    except SchemaError as missing:
        yield error("schema", str(missing), "celery -A APP weft migrate")
        return
    except SettingsError as refused:
        yield error("store", str(refused), "correct weft_database_url")
        return
    yield ok("store", f"{database.shown_url} answers, at revision {schema.head_revision()}")
    try:
        schema.check_takes_writes(database)
    except StoreUnavailable as refused:
        yield error(
            "store",
            f"it answers, but takes no writes: {refused}",
            "end what locks it (a frozen process, a long transaction), or see to its space and rights; until then no "
            "engine beats, no turn commits and every pass fails",
        )
    if database.is_sqlite:
        yield ok("store", "SQLite serves processes of one machine only; several machines need PostgreSQL")
    if abs(skew) > settings.renew_interval:
        ahead = "ahead of" if skew.total_seconds() > 0 else "behind"
        yield warning(
            "clock",
            f"the database's clock is {abs(skew).total_seconds():.1f} s {ahead} this host's: no ownership depends on "
            "it, but times that you pass to `at`, and Celery's `expires`, do",
            "synchronize the clocks of both (NTP)",
        )
