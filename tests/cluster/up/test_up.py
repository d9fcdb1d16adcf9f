"""`make up`: one command, a workflow runs through, a process may end, Ctrl-C leaves nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from urllib.request import urlopen

from stack import NAMES, PATIENCE, Stack


def test_a_workflow_of_the_app_runs_through(stack: Stack) -> None:
    assert "tracking-parcel-of-first" in stack.order(first="good")


def test_run_once_is_answered_by_the_maintenance_worker(stack: Stack) -> None:
    assert "'failed': []" in stack.run_once()


def test_flower_answers(stack: Stack) -> None:
    with closing(urlopen(f"http://127.0.0.1:{stack.flower_port}/workers", timeout=10)) as page:
        assert b"Flower" in page.read()


def test_the_exporter_answers(stack: Stack) -> None:
    with closing(urlopen(f"http://127.0.0.1:{stack.exporter_port}/metrics", timeout=10)) as page:
        assert b"weft_up 1" in page.read()


def test_every_line_says_which_process_wrote_it(stack: Stack) -> None:
    prefixes = {line.partition("|")[0].strip() for line in stack.make.log_text().splitlines() if "|" in line}
    assert prefixes >= {"up", "redis", "engine-1", "engine-2", "maintenance", "beat"}


def test_a_second_stack_is_refused_in_one_line(stack: Stack) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "deploy.up", "--redis-port", str(stack.redis_port)],
        cwd=stack.clone,
        env={name: value for name, value in os.environ.items() if name != "BROKER_URL"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines() == [
        f"port {stack.redis_port} of 127.0.0.1 is taken: REDIS_PORT=NUMBER takes another; "
        f"BROKER_URL=redis://127.0.0.1:{stack.redis_port}/0 uses the Redis there"
    ]


def test_the_others_go_on_when_a_process_ends(stack: Stack, killed: str) -> None:
    assert f"{killed} has ended, killed by SIGKILL" in stack.make.log_text()
    assert "tracking-parcel-of-second" in stack.order(second="good")


def test_ctrl_c_stops_workers_before_redis_and_leaves_nothing(stack: Stack) -> None:
    """The last test of the stack."""
    family = stack.family()
    stack.interrupt()
    stack.make.wait(PATIENCE)
    log = stack.make.log_text()
    for name in NAMES:
        assert re.search(rf"^up +\| {name} has ended", log, re.MULTILINE)
    assert log.index("maintenance has ended") < log.index("redis has ended, exit status 0")
    assert "weft.engine.stopped" in log
    assert "killing who is left" not in log
    assert [process for process in family if process.is_running()] == []
