"""The schema: migrated as often and by as many as like, and refused when it is missing, older or newer."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text

from weft_tasks.errors import InvalidInput, SchemaError
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.database import Database
from weft_tasks.store.schema import VERSION_TABLE, check, current_revision, goes_back, head_revision, migrate, revisions
from weft_tasks.store.tables import metadata


@pytest.fixture
def database(empty_url: str) -> Iterator[Database]:
    opened = Database(empty_url)
    yield opened
    opened.dispose()


def execute(database: Database, sql: str) -> list[Any]:
    with database.transaction() as connection:
        result = connection.execute(text(sql))
        return list(result) if result.returns_rows else []


def test_a_database_without_a_schema_is_refused_with_the_command_that_makes_one(database: Database) -> None:
    assert current_revision(database) is None
    with pytest.raises(SchemaError, match=r"has no weft_tasks schema.*weft migrate"):
        check(database)


def test_a_migrated_database_is_accepted(database: Database) -> None:
    migrate(database)
    assert current_revision(database) == head_revision()
    check(database)


def test_migrating_again_changes_nothing(database: Database) -> None:
    migrate(database)
    store_id = execute(database, "SELECT store_id FROM weft_store")
    execute(database, "UPDATE weft_store SET epoch_floor = 17")
    migrate(database)
    assert execute(database, "SELECT store_id FROM weft_store") == store_id
    assert execute(database, "SELECT epoch_floor FROM weft_store") == [(17,)]


def test_every_database_gets_an_id_of_its_own(database: Database, tmp_path: Path) -> None:
    migrate(database)
    other = Database(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    migrate(other)
    ids = {Store.open(Settings(database_url=url_of(each))).id() for each in (database, other)}
    assert len(ids) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", store_id) for store_id in ids)
    other.dispose()


def url_of(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=False)


def test_down_to_nothing_leaves_no_table_of_ours_and_back_up_works(database: Database) -> None:
    migrate(database)
    migrate(database, "base")
    with database.reading() as connection:
        names = set(MigrationContext.configure(connection).dialect.get_table_names(connection))
    assert names <= {VERSION_TABLE}
    with pytest.raises(SchemaError, match="has no weft_tasks schema"):
        check(database)
    migrate(database)
    check(database)


def test_a_migration_that_fails_half_way_leaves_nothing(database: Database) -> None:
    execute(database, "CREATE TABLE weft_turns (somebody TEXT)")
    with pytest.raises(Exception, match="weft_turns"):
        migrate(database)
    with database.reading() as connection:
        names = set(MigrationContext.configure(connection).dialect.get_table_names(connection))
    assert names == {"weft_turns"}


def test_a_schema_of_an_older_release_is_refused_with_both_revisions(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(database)
    monkeypatch.setattr("weft_tasks.store.schema.head_revision", lambda: "9999")
    with pytest.raises(SchemaError, match=rf"revision {head_revision()}, this release needs 9999.*weft migrate"):
        check(database)


def test_a_schema_of_a_newer_release_is_refused_with_both_revisions(database: Database) -> None:
    migrate(database)
    execute(database, f"UPDATE {VERSION_TABLE} SET version_num = 'from-the-future'")
    with pytest.raises(SchemaError, match=rf"from-the-future, which this release \(revision {head_revision()}\)"):
        check(database)


def test_a_refusal_shows_no_password(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'x.sqlite3'}")
    with pytest.raises(SchemaError) as refused:
        check(database)
    assert str(tmp_path) in str(refused.value)
    shown = Database("postgresql://me:secret@nowhere/db").shown_url
    assert "secret" not in shown
    database.dispose()


# -- the migrations make what the tables say ----------------------------------------------------------------------


def test_alembic_finds_no_difference_between_the_migrated_schema_and_the_tables(database: Database) -> None:
    migrate(database)
    with database.reading() as connection:
        context = MigrationContext.configure(
            connection,
            opts={"compare_type": True, "compare_server_default": True, "version_table": VERSION_TABLE},
        )
        assert compare_metadata(context, metadata) == []


def test_every_table_and_index_is_defined_alike_by_the_migrations_and_by_the_tables(
    database: Database, backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Alembic does not compare the conditions of partial indexes, nor storage parameters."""
    migrate(database)
    if backend == "sqlite":
        url = f"sqlite:///{tmp_path / 'direct.sqlite3'}"
    else:
        url = request.getfixturevalue("postgres_server").create_database()
    direct = create_engine(url)
    metadata.create_all(direct)
    with direct.connect() as connection, database.reading() as migrated:
        assert definitions(migrated, backend) == definitions(connection, backend)
    direct.dispose()


def definitions(connection: Any, backend: str) -> dict[str, str]:
    """By name, what each of our tables and indexes is, as words in no order."""
    query = {
        "sqlite": """
            SELECT name, sql FROM sqlite_master WHERE name LIKE '%weft%' AND sql IS NOT NULL AND name != :version
        """,
        "postgresql": """
            SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename != :version
            UNION ALL
            SELECT c.relname || '.' || a.attname,
                   concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, c.reloptions::text)
            FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
            WHERE c.relkind = 'r' AND c.relname LIKE 'weft%' AND a.attnum > 0 AND c.relname != :version
        """,
    }[backend]
    rows = connection.execute(text(query), {"version": VERSION_TABLE}).all()
    return {name: " ".join(sorted(re.sub(r'[",()]', " ", sql).split())) for name, sql in rows}


# -- several at once ---------------------------------------------------------------------------------------------------


def _migrate_in_a_process(url: str, start: Any, outcomes: Any) -> None:
    database = Database(url)
    start.wait()
    try:
        migrate(database)
        outcomes.put(current_revision(database))
    except Exception as error:
        outcomes.put(repr(error))


def test_four_processes_that_migrate_at_once_all_succeed_and_one_does_the_work(empty_url: str) -> None:
    spawn = multiprocessing.get_context("fork")
    start, outcomes = spawn.Barrier(4), spawn.Queue()
    processes = [spawn.Process(target=_migrate_in_a_process, args=(empty_url, start, outcomes)) for _ in range(4)]
    for process in processes:
        process.start()
    results = [outcomes.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    assert results == [head_revision()] * 4
    database = Database(empty_url)
    assert execute(database, "SELECT count(*) FROM weft_store") == [(1,)]
    check(database)
    database.dispose()


def test_a_revision_that_nobody_knows_is_refused_before_anything_is_changed(database: Database) -> None:
    with pytest.raises(InvalidInput, match=r"revision 'nonsense' is none of base, 0001.*, head"):
        migrate(database, "nonsense")
    assert current_revision(database) is None


def test_a_schema_of_a_newer_release_is_not_migrated_by_an_older_one(database: Database) -> None:
    migrate(database)
    execute(database, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    for revision in ("head", "base"):
        with pytest.raises(SchemaError, match=r"9999.*install the release"):
            migrate(database, revision)
    assert current_revision(database) == "9999"


def test_a_revision_of_before_goes_back_and_the_one_it_is_at_does_not(database: Database) -> None:
    first = revisions()[0]
    assert not goes_back(database, "base")
    assert not goes_back(database, "head")
    migrate(database)
    assert goes_back(database, "base")
    assert not goes_back(database, "head")
    assert goes_back(database, first) == (first != head_revision())
    migrate(database, first)
    assert current_revision(database) == first
