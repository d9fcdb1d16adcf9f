"""The schema of every release, with data: up to the present, down again, up again, and nothing is lost.

`released/` has the dump of each release. The present schema is treated as one that was released, and as one that the
next release adds to: what a worker of this release may then rely on is in docs/deployment.md.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import ROOT
from dumps import load, rows_of
from life import live
from next_release import add_migration
from release import FILES, RELEASED, lived

from weft_tasks.errors import SchemaError
from weft_tasks.store import schema
from weft_tasks.store.database import Database
from weft_tasks.store.schema import check, current_revision, migrate

PRESENT = "present"
RELEASES = sorted(folder.name for folder in RELEASED.glob("*") if folder.is_dir())


@pytest.fixture(params=[*RELEASES, PRESENT])
def dump_of_release(request: pytest.FixtureRequest, backend: str, tmp_path: Path, another: Callable[[], str]) -> str:
    if request.param == PRESENT:
        return lived(another())
    return (RELEASED / request.param / FILES[backend]).read_text(encoding="utf-8")


@pytest.fixture
def another(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes empty databases."""
    made: list[str] = []

    def make() -> str:
        if backend == "sqlite":
            made.append(f"sqlite:///{tmp_path / f'another-{len(made)}.sqlite3'}")
        else:
            made.append(request.getfixturevalue("postgres_server").create_database())
        return made[-1]

    return make


@pytest.fixture
def next_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The migrations of a release to come, which adds to the schema."""
    migrations = tmp_path / "next" / "migrations"
    shutil.copytree(ROOT / "weft_tasks" / "store" / "migrations", migrations)
    add_migration(migrations)
    monkeypatch.setattr(schema, "__file__", str(migrations.parent / "schema.py"))


def values(rows: dict[str, list[dict[str, object]]], of: dict[str, list[dict[str, object]]]) -> dict[str, list[str]]:
    """The rows of the tables and columns that `of` has."""
    return {
        table: sorted(repr({column: row[column] for column in (found[0] if found else {})}) for row in rows[table])
        for table, found in of.items()
    }


def test_the_data_of_every_release_survives_up_down_and_up(dump_of_release: str, another: Callable[[], str]) -> None:
    url = another()
    load(url, dump_of_release)
    database, before = Database(url), rows_of(url)
    released_at = current_revision(database)
    assert released_at is not None
    migrate(database)
    check(database)
    assert values(rows_of(url), before) == values(before, before)
    migrate(database, released_at)
    assert rows_of(url) == before
    migrate(database)
    assert values(rows_of(url), before) == values(before, before)
    database.dispose()


def test_the_data_has_something_in_every_table(dump_of_release: str, another: Callable[[], str]) -> None:
    url = another()
    load(url, dump_of_release)
    assert [table for table, rows in rows_of(url).items() if not rows] == []


def test_a_migration_that_adds_keeps_the_data_both_ways(next_release: None, another: Callable[[], str]) -> None:
    url = another()
    database, head = Database(url), schema.revisions()[-2]
    migrate(database, head)
    live(url)
    before = rows_of(url)
    migrate(database)
    after = rows_of(url)
    assert values(after, before) == values(before, before)
    assert {row["added"] for row in after["weft_workflows"]} == {7}
    migrate(database, head)
    assert rows_of(url) == before
    database.dispose()


def test_the_code_of_this_release_lives_on_a_schema_that_the_next_has_added_to(
    next_release: None, another: Callable[[], str]
) -> None:
    """Whoever was connected when it was migrated goes on; whoever starts then is refused."""
    url = another()
    database = Database(url)
    migrate(database)
    live(url)
    assert {row["id"]: row["status"] for row in rows_of(url)["weft_workflows"]} == {
        "parked": "running",
        "completed": "completed",
        "owes": "running",
        "suspended": "suspended",
        "cancelled": "running",
        "failed": "failed",
    }
    database.dispose()


def test_a_worker_of_this_release_does_not_start_on_the_schema_of_the_next(
    next_release: None, another: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(another())
    migrate(database)
    monkeypatch.undo()
    with pytest.raises(SchemaError, match=r"revision next, which this release \(revision \w+\) does not know"):
        check(database)
    database.dispose()


def test_every_release_of_the_changelog_has_its_dump() -> None:
    headings = re.findall(r"^## (\d+\.\d+\.\d+), (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings
    released = [version for version, date in headings if date != "unreleased"]
    assert [version for version in released if version not in RELEASES] == []
