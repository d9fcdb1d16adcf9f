"""The schema, through Alembic: migrate it, and refuse to work on one that is missing, older or newer."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, column, inspect, select, table, text, update

from weft_tasks.errors import InvalidInput, SchemaError
from weft_tasks.store.database import Database
from weft_tasks.store.tables import store

VERSION_TABLE = "weft_schema_version"
HEAD, BASE = "head", "base"
# Any constant will do, as long as every release uses the same one.
_MIGRATION_LOCK = 0x77656674


def migrate(database: Database, revision: str = HEAD) -> None:
    """Bring the schema up or down to `revision`, in one transaction. Several processes may call it at once; one does
    the work.

    "head" is the revision of this release, "base" a database without our tables. Raises InvalidInput for a revision
    that this release does not know, SchemaError if the database is at one.
    """
    _position_of(revision)
    with database.transaction() as connection:
        if not database.is_sqlite:
            # DDL may wait for running statements, and so may the other migrating processes for this one.
            connection.execute(text("SET LOCAL statement_timeout = '60s'"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        # Looked at under the lock: another process may have migrated while this one waited.
        found = _revision_in(connection)
        _refuse_unknown(database, found)
        if _position_of(revision) < _position_of(found or BASE):
            command.downgrade(_config(connection), revision)
        else:
            command.upgrade(_config(connection), revision)


def revisions() -> tuple[str, ...]:
    """Every revision that this release knows, oldest first."""
    return tuple(reversed([script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()]))


def goes_back(database: Database, revision: str) -> bool:
    """Whether `revision` is older than what the database is at. Raises as `migrate` does."""
    found = current_revision(database)
    _refuse_unknown(database, found)
    return _position_of(revision) < _position_of(found or BASE)


def _position_of(revision: str) -> int:
    known = (BASE, *revisions())
    if revision == HEAD:
        return len(known) - 1
    if revision not in known:
        raise InvalidInput("revision", f"{revision!r} is none of {', '.join((*known, HEAD))}")
    return known.index(revision)


def _refuse_unknown(database: Database, found: str | None) -> None:
    if found is not None and found not in revisions():
        raise SchemaError(
            f"the schema of {database.shown_url} is at revision {found}, which this release (revision "
            f"{head_revision()}) does not know: install the release of weft_tasks that migrated it"
        )


def current_revision(database: Database) -> str | None:
    """The revision the database is at; None without a schema."""
    with database.reading() as connection:
        return _revision_in(connection)


def _revision_in(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalar_one_or_none()


def head_revision() -> str:
    """The revision this release works with."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise SchemaError("this installation of weft_tasks has no migrations; install it again")
    return head


def check(database: Database) -> None:
    """Raises SchemaError, in one sentence with the remedy, unless the schema is the one of this release."""
    found, wanted = current_revision(database), head_revision()
    if found == wanted:
        return
    if found is None:
        raise SchemaError(
            f"the database {database.shown_url} has no weft_tasks schema: run `celery -A APP weft migrate` once"
        )
    _refuse_unknown(database, found)
    raise SchemaError(
        f"the schema of {database.shown_url} is at revision {found}, this release needs {wanted}: "
        "run `celery -A APP weft migrate`"
    )


def check_takes_writes(database: Database) -> None:
    """Write nothing, as a writer would. Raises StoreUnavailable if the store is locked, read-only or full."""
    with database.transaction() as connection:
        connection.execute(update(store).where(store.c.id == 0).values(epoch_floor=store.c.epoch_floor))


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
