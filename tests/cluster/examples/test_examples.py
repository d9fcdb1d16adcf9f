"""Each example as its README says it is run: one command, on SQLite and on PostgreSQL, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TIME_LIMIT_S = 400
SERVERS = ("BROKER_URL", "DATABASE_URL")

SAID = {
    "order": (
        "-anna: {'status': 'shipped'",
        "-bela: {'status': 'refused', 'reason': 'card declined'}",
        "-cleo: {'status': 'cancelled', 'reason': 'not paid in time'}",
        "-dora: cancelled",
        "-emil: cancelled",
        "ship: A-7 as parcel-77",
    ),
    "approval": (
        "ann says approve: {'missing': 1}",
        "ann says approve: refused, ValueError: ann has approved already",
        "dan says approve: refused, PermissionError: dan is no approver",
        "-laptop: {'decision': 'approved', 'by': ['ann', 'ben']}",
        "-yacht: {'decision': 'rejected', 'by': ['cem'], 'reason': 'too long'}",
        "-chair: {'decision': 'expired', 'by': []}",
        "mail: to ben: a reminder of laptop",
    ),
    "fanout": (
        "'total': 555",
        "'failed': {'atlantis': 'failed'}",
        "/atlantis: failed, atlantis: 'atlantis'",
        "/west: completed, {'shop': 'west', 'items': 45}",
    ),
    "webshop": (
        "POST /orders -> 201",
        'POST /orders -> 409 {"detail":"not in stock"}',
        "workflows that the refused orders left: 0",
        '/payments -> 202 {"is_duplicate":false}',
        '/payments -> 202 {"is_duplicate":true}',
        '-> 200 {"delivery":"3 x mug on the way"',
    ),
}


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("name", SAID)
def test_the_example_runs_and_says_what_happened(name: str, database: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "examples.run", name, "--database", database],
        cwd=ROOT,
        env={variable: value for variable, value in os.environ.items() if variable not in SERVERS},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert [words for words in SAID[name] if words not in run.stdout] == []
