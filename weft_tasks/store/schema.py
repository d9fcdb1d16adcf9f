"""The schema, through Alembic: migrate it, and refuse to work on one that is missing, older or newer."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, column, inspect, select, table, text

from weft_tasks.errors import SchemaError
from weft_tasks.store.database import Database

VERSION_TABLE = "weft_schema_version"
# Any constant will do, as long as every release uses the same one.
_MIGRATION_LOCK = 0x77656674


def migrate(database: Database, revision: str = "head") -> None:
    """Bring the schema to `revision`, in one transaction. Several processes may call it at once; one does the work."""
    with database.transaction() as connection:
        if not database.is_sqlite:
            # DDL may wait for running statements, and so may the other migrating processes for this one.
            connection.execute(text("SET LOCAL statement_timeout = '60s'"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        if revision == "base":
            command.downgrade(_config(connection), revision)
        else:
            command.upgrade(_config(connection), revision)


def current_revision(database: Database) -> str | None:
    """The revision the database is at; None without a schema."""
    with database.reading() as connection:
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
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if found in known:
        raise SchemaError(
            f"the schema of {database.shown_url} is at revision {found}, this release needs {wanted}: "
            "run `celery -A APP weft migrate`"
        )
    raise SchemaError(
        f"the schema of {database.shown_url} is at revision {found}, which this release (revision {wanted}) does not "
        "know: install the release of weft_tasks that migrated it"
    )


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
