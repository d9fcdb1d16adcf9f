"""Keeps the schema of a release, with data in it, for all releases to come: `make released-schema VERSION=0.1.0`.

Run on the commit that is released. What it writes is never changed again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from dumps import dump
from life import live

from weft_tasks.store.database import Database
from weft_tasks.store.schema import migrate
from weft_tasks.testing.local_postgres import LocalPostgres

RELEASED = Path(__file__).parent / "released"
FILES = {"sqlite": "sqlite.sql", "postgresql": "postgresql.sql"}


def lived(url: str) -> str:
    """The dump of an empty database, migrated and with data."""
    database = Database(url)
    migrate(database)
    database.dispose()
    live(url)
    return dump(url)


def main() -> int:
    parser = argparse.ArgumentParser(description="Keep the schema of this commit as that of a release.")
    parser.add_argument("version")
    folder = RELEASED / parser.parse_args().version
    if folder.exists():
        sys.stderr.write(f"{folder} is there already, and a release does not change\n")
        return 1
    with tempfile.TemporaryDirectory() as scratch, LocalPostgres(durable=False) as postgres:
        urls = {"sqlite": f"sqlite:///{scratch}/weft.sqlite3", "postgresql": postgres.create_database()}
        dumps = {backend: lived(url) for backend, url in urls.items()}
    folder.mkdir(parents=True)
    for backend, sql in dumps.items():
        (folder / FILES[backend]).write_text(sql, encoding="utf-8")
        sys.stdout.write(f"{folder / FILES[backend]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
