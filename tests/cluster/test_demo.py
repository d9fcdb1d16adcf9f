"""The demo itself, on a log of twenty cases: it ends well, and leaves nothing behind when it is stopped half way."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from weft_tasks.testing.waiting import wait_until

ROOT = Path(__file__).parents[2]
CASES, EVENTS_PER_CASE = 20, 6
TIME_LIMIT_S = 240


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Every case gets its next event in turn."""
    path = tmp_path / "log.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("case_id", "activity", "timestamp"))
        for step in range(EVENTS_PER_CASE):
            rows.writerows((f"case-{case}", f"step {step // 2}", f"2025-01-0{step + 1}") for case in range(CASES))
    return path


@contextmanager
def demo(log: Path, output: Path, printed: Path) -> Iterator[subprocess.Popen[bytes]]:
    servers = ("BROKER_URL", "DATABASE_URL")
    with printed.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "examples.eventlog.demo", "--log", str(log), "--output", str(output)],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name not in servers},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(TIME_LIMIT_S)


def started_for(output: Path) -> list[psutil.Process]:
    """The living processes whose database is in that folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(output) in process.environ().get("DATABASE_URL", ""):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_it_ends_well_with_everything_in_its_report(log: Path, tmp_path: Path) -> None:
    output, printed = tmp_path / "output", tmp_path / "printed"
    with demo(log, output, printed) as process:
        assert process.wait(TIME_LIMIT_S) == 0, printed.read_text()
    report = json.loads((output / "report.json").read_text())
    assert report["workflows"] == report["completed"] == CASES
    assert report["events"] == CASES * EVENTS_PER_CASE
    assert report["mismatched"] == report["lost_signals"] == report["duplicate_commits"] == 0
    assert report["engines_killed"] == report["engines_drained"] == report["engines_frozen"] == 1
    assert report["takeovers"] >= 2
    assert report["stale_commits_refused"] >= 1
    assert 0 < report["recovery_ms_p50"] <= report["recovery_ms_max"]
    assert report["renew_interval_ms"] == 1000
    assert {"drain_handover_ms_max", "wall_s"} <= report.keys()
    assert not started_for(output)


def test_it_stops_everything_when_it_is_interrupted(log: Path, tmp_path: Path) -> None:
    output, printed = tmp_path / "output", tmp_path / "printed"
    with demo(log, output, printed) as process:
        wait_until(lambda: "the client sends" in printed.read_text(), what="the replay")
        assert len(started_for(output)) > 6
        process.send_signal(signal.SIGINT)
        assert process.wait(TIME_LIMIT_S) == 128 + signal.SIGINT, printed.read_text()
    assert not started_for(output)
