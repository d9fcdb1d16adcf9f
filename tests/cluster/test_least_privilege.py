"""A deployment on PostgreSQL with the two roles of docs/operating.md: one migrates, the other runs everything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from deployment import Deployment
from psycopg import sql
from sqlalchemy import make_url

from weft_tasks.model import WorkflowStatus
from weft_tasks.store.database import Database
from weft_tasks.store.schema import migrate
from weft_tasks.store.tables import metadata
from weft_tasks.testing.databases import Databases, libpq_url
from weft_tasks.testing.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
BLOCK = rf"^<!-- run by tests/cluster/{Path(__file__).name} -->\n```sql\n(.*?)^```$"
ROLES = ("weft_owner", "weft_app")


@pytest.fixture
def role_urls(postgres_server: Databases) -> Iterator[dict[str, str]]:
    """An empty database after the script of the page, and its URL for each role."""
    [script] = re.findall(BLOCK, PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    url = make_url(postgres_server.create_database())
    superuser = libpq_url(url.render_as_string(hide_password=False))
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute(script)
    passwords = dict(re.findall(r"CREATE ROLE (\w+) LOGIN PASSWORD '([^']+)'", script))
    yield {
        role: url.set(username=role, password=passwords[role]).render_as_string(hide_password=False) for role in ROLES
    }
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("DROP SCHEMA weft CASCADE")
        for role in ROLES:
            connection.execute(sql.SQL("DROP OWNED BY {0}").format(sql.Identifier(role)))
            connection.execute(sql.SQL("DROP ROLE {0}").format(sql.Identifier(role)))
    postgres_server.drop_database(str(url.database))


@pytest.fixture
def database_url(role_urls: dict[str, str]) -> str:
    """Migrated by its owner; the deployment gets it as the other role."""
    database = Database(role_urls["weft_owner"])
    migrate(database)
    database.dispose()
    return role_urls["weft_app"]


def test_everything_works_with_the_rights_that_the_page_gives(
    deployment: Deployment, start: Callable[..., None]
) -> None:
    weft = deployment.weft
    worker, killed = deployment.worker("e1", concurrency=2), deployment.worker("e2", concurrency=1)
    start(worker, killed, deployment.beat())

    deployment.park("signalled", "cancelled", "suspended", "terminated")
    weft.signal("signalled", "event", "closed", key="k")
    deployment.wait_for("signalled")
    weft.suspend("suspended")
    weft.resume("suspended")
    weft.cancel("cancelled")
    weft.terminate("terminated")
    deployment.wait_for("cancelled", WorkflowStatus.CANCELLED)

    held = deployment.park_on("e2", "held", 1)
    killed.kill()
    survivor = deployment.engine("e1").id
    wait_until(lambda: set(held) <= deployment.held_by(survivor), what="a takeover", timeout=timedelta(seconds=15))
    assert weft.purge(older_than=timedelta(0)) == 3
    status = deployment.command("weft", "status")
    assert status.start().wait() == 0
    assert "permission denied" not in worker.log_text() + status.log_text()


def test_the_role_of_workers_can_change_no_table(database_url: str) -> None:
    with psycopg.connect(libpq_url(database_url), autocommit=True) as connection:
        for statement in ("CREATE TABLE mine (x integer)", "DROP TABLE weft_claims", "TRUNCATE weft_claims"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
        for table in metadata.tables:
            connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(table)))
