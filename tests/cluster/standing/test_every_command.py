"""Every command of `celery -A APP weft`, run as a command on a running stack."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deployment import HERE, INTERVAL, Deployment
from pytest_celery import CeleryTestSetup
from stand import Standing

from weft_tasks.celery_host.names import TURNS_QUEUE
from weft_tasks.model import EngineStatus, WorkflowStatus
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until

LONGEST_COMMAND_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """`celery -A suite_app weft …`, as a shell would run it."""

    deployment: Deployment

    @property
    def environment(self) -> dict[str, str]:
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, **self.deployment.env, "PYTHONPATH": os.pathsep.join(paths)}

    def line(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "celery", "--app", "suite_app", "weft", *words]

    def run(self, *words: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            self.line(*words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_COMMAND_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert "Traceback" not in ended.stderr, ended.stderr
        assert status in (None, ended.returncode), (ended.stdout, ended.stderr)
        return ended

    def json(self, *words: str, status: int | None = 0) -> Any:
        return json.loads(self.run(*words, "--json", status=status).stdout)


@pytest.fixture
def weft(setup: CeleryTestSetup, deployment: Deployment) -> Commands:
    return Commands(deployment=deployment)


def _errors(weft: Commands) -> str:
    findings = weft.json("check", status=None)["findings"]
    return "\n".join(f"{found['text']} -> {found['remedy']}" for found in findings if found["level"] == "error")


def test_check_finds_no_error_in_a_stack_that_runs_and_names_who_does_what(weft: Commands) -> None:
    found = weft.json("check")
    told = {finding["topic"]: finding["text"] for finding in found["findings"] if finding["level"] == "ok"}
    assert found["errors"] == 0
    assert told["workers"] == (
        "3 answer: e1@local (engine and maintenance), e2@local (engine and maintenance), m1@local (maintenance)"
    )
    assert told["lock server"] == "it answers; maxmemory-policy is noeviction"
    assert told["passes"] == "all four ran lately"


def test_status_and_one_frame_of_top_show_engines_that_beat_and_passes_that_run(weft: Commands) -> None:
    for command in ("status", "top"):
        shown = weft.json(command)
        beating = [engine for engine in shown["engines"] if engine["status"] == "live"]
        assert {engine["node"] for engine in beating} == {"e1@local", "e2@local"}
        assert all(engine["heartbeat_age_s"] < 2 for engine in beating)
        assert all(mark["began_ago_s"] < 3 for mark in shown["passes"] if mark["pass"] != "run-once")
        text = weft.run(command).stdout
        assert "e1@local" in text
        assert "signal-poll" in text


def test_a_workflow_is_started_watched_asked_signalled_and_ended_by_commands(
    weft: Commands, deployment: Deployment
) -> None:
    weft.run("start", "permit", "by-hand", "--input", '{"case": 7}')
    deployment.wait_until_parked("by-hand")
    shown = weft.json("show", "by-hand")
    assert (shown["input"], shown["waits"][0]["name"], shown["turns"][0]["epoch"]) == ({"case": 7}, "event", 1)
    node = shown["owner"]["node"]
    assert shown["turns"][0]["node"] == node
    listed = weft.json("list", "--engine", node, "--type", "permit", "--status", "running", "--limit", "10000")
    assert "by-hand" in [info["id"] for info in listed["workflows"]]

    weft.run("signal", "by-hand", "event", "--text", "opened")
    wait_until(lambda: weft.json("show", "by-hand")["state"] == {"steps": ["opened"]}, what="the signal to be taken")
    assert weft.run("update", "by-hand", "count", "41", "--timeout", "20s").stdout == "42\n"
    refused = weft.run("update", "by-hand", "count", '"x"', "--timeout", "20s", status=1)
    assert refused.stderr == ("Error: the update 'count' of workflow 'by-hand' failed: TypeError: 'x' is no number\n")

    assert weft.json("suspend", "by-hand")["workflows"][0]["status"] == "suspended"
    weft.run("signal", "by-hand", "event", '"closed"')
    assert weft.json("show", "by-hand")["pending_signals"] == 1
    weft.run("resume", "by-hand")
    deployment.wait_for("by-hand")
    done = weft.json("show", "by-hand")
    assert done["result"] == ["opened", "closed"]
    assert [entry["event"] for entry in done["history"]] == ["suspend", "resume", "placed"]
    waited = weft.run("start", "once", "by-hand-once", "--wait", "20s")
    assert waited.stdout == '"by-hand-once"\n'


def test_workflows_are_cancelled_terminated_retried_and_purged_by_commands(
    weft: Commands, deployment: Deployment
) -> None:
    deployment.park("to-cancel", "to-end", "to-retry")
    weft.run("cancel", "to-cancel")
    weft.run("terminate", "to-end", "--reason", "no longer wanted")
    deployment.wait_for("to-cancel", WorkflowStatus.CANCELLED)
    shown = weft.json("show", "to-end")
    assert (shown["status"], shown["error"]["message"]) == ("terminated", "no longer wanted")
    assert shown["history"][-1]["why"] == "no longer wanted"

    deployment.weft.suspend("to-retry")
    deployment.execute("UPDATE weft_workflows SET status = 'set-aside' WHERE id = 'to-retry'")
    assert "to-retry" in [aside["id"] for aside in weft.json("status")["set_aside"]]
    weft.run("retry", "to-retry")
    deployment.wait_until_parked("to-retry")

    assert "no longer wanted" not in weft.run("retry", "to-end", "nobody", status=1).stdout
    weft.run("purge", "--older-than", "0", "--status", "terminated", "--yes")
    assert weft.run("show", "to-end", status=1).stderr == "Error: no workflow has the id 'to-end'\n"


def test_the_passes_and_the_schema_by_commands(weft: Commands) -> None:
    lines = weft.run("run-once").stdout.splitlines()
    assert [line.split()[:2] for line in lines[2:6]] == [
        [name, "completed"] for name in ("renewal", "reclaim", "signal-poll", "update-poll")
    ]
    assert weft.json("run-once")["failed"] == []
    assert weft.json("migrate")["revision"] == weft.json("migrate", "head")["revision"]
    assert weft.run("migrate", "base", status=2).stdout == ""


def test_drain_is_done_when_it_says_so_and_not_before(
    weft: Commands, deployment: Deployment, standing: Standing
) -> None:
    drained = deployment.engine("e2")
    idle = deployment.park_on("e2", "drained", 3)
    gate = deployment.gate("drained-long")
    deployment.start_on("e2", "gate", "drained-long", str(gate.path))
    gate.wait_for()
    try:
        late = weft.run("drain", "e2@local", "--timeout", "1s", status=1)
        assert "still runs turns of 1 workflow (drained-long)" in late.stderr
        assert deployment.held_by(drained.id) == {"drained-long"}
        wait_until(lambda: set(deployment.claims(*idle)) == set(idle), what="the idle ones to be placed")
        moved = weft.json("show", idle[0])
        assert [(entry["event"], entry["why"]) for entry in moved["history"][-2:]] == [
            ("released", "the engine was draining"),
            ("placed", "nobody had it"),
        ]
        gate.open()
        done = weft.json("drain", "e2@local", "--timeout", "30s")
        assert (done["status"], done["claims"]) == ("draining", 0)
        assert deployment.held_by(drained.id) == set()
        # It leaves the queue of new workflows to the others, which therefore start at once.
        wait_until(lambda: TURNS_QUEUE not in _queues_of(weft, "e2@local"), what="the engine to leave the queue")
        for n in range(10):
            deployment.weft.start("once", f"after-drain-{n}")
        deployment.wait_for_all([f"after-drain-{n}" for n in range(10)], timeout=INTERVAL)
        assert deployment.held_by(drained.id) == set()
    finally:
        gate.open()
        next(node for node in standing.workers if node.process.node == "e2@local").process.restart()
    wait_until(lambda: deployment.engine("e2").status is EngineStatus.LIVE, what="the engine to be back")
    assert "has stopped and holds no workflow" in weft.run("drain", drained.id).stdout


def _queues_of(weft: Commands, node: str) -> list[str]:
    replies = weft.deployment.weft.app.control.inspect(destination=[node], timeout=1).active_queues() or {}
    return [queue["name"] for queue in replies.get(node, [])]


def test_check_finds_out_that_beat_is_away(weft: Commands, beat: LocalProcess) -> None:
    beat.kill()
    try:
        wait_until(
            lambda: "no tick waits, so beat sends none or each fails -> celery -A APP beat" in _errors(weft),
            what="the finding",
        )
        assert all(mark["late_s"] > 0 for mark in weft.json("status")["passes"] if mark["pass"] != "run-once")
    finally:
        beat.start()
    wait_until(lambda: _errors(weft) == "", what="check to be content again")


def test_check_names_a_node_name_that_two_workers_have(weft: Commands, deployment: Deployment, tmp_path: Path) -> None:
    with deployment.worker("m1", queues=["weft.maintenance"], log_folder=tmp_path):
        wait_until(lambda: "2 workers run under the node name 'm1@local'" in _errors(weft), what="the finding")


def test_top_on_a_terminal_shows_frames_until_ctrl_c(weft: Commands) -> None:
    with _on_a_terminal(weft, "top", "--interval", "0.2s") as (process, read_until):
        shown = read_until("Latest changes of ownership")
        assert "e1@local" in shown
        read_until("Latest changes of ownership")
        process.send_signal(signal.SIGINT)
        assert process.wait(LONGEST_COMMAND_S) == 0


def test_on_a_terminal_tables_have_colours_and_what_users_made_has_none(weft: Commands, deployment: Deployment) -> None:
    deployment.weft.start("permit", "[red]odd[/red]")
    with _on_a_terminal(weft, "show", "[red]odd[/red]") as (process, read_until):
        shown = read_until("History")
        assert "[red]odd[/red]" in re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert "\x1b[1m" in shown
        assert process.wait(LONGEST_COMMAND_S) == 0


@contextmanager
def _on_a_terminal(weft: Commands, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[str], str]]]:
    """The command on a terminal of its own, and a function that reads on until a text has come."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        weft.line(*words),
        env={**weft.environment, "TERM": "xterm", "COLUMNS": "160", "LINES": "60"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)

    def read_until(text: str) -> str:
        shown, ends = "", time.monotonic() + LONGEST_COMMAND_S
        while text not in shown and time.monotonic() < ends:
            if select.select([ours], [], [], 1)[0]:
                # A terminal whose last process has gone answers with an error on Linux.
                with suppress(OSError):
                    shown += os.read(ours, 65536).decode(errors="replace")
        assert text in shown, shown
        return shown

    try:
        yield process, read_until
    finally:
        process.kill()
        process.wait()
        os.close(ours)
