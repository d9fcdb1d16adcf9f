"""A LocalProcess dies, freezes and comes back as a whole or in part, and never outlives who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from weft_tasks.testing.errors import NotStarted, ProcessDied, WaitTimedOut
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until

SHORT = timedelta(milliseconds=200)

PARENT_AND_CHILD = "sleep 60 & echo started $!; wait"
"""A shell with a child in its own process group, as a prefork pool is."""

PARENT_AND_LEAVER = f"""{sys.executable} -c '
import subprocess, time
subprocess.Popen(["sleep", "60"], start_new_session=True)
print("started", flush=True)
time.sleep(60)'"""
"""A parent whose child leaves the process group, as a PostgreSQL backend does."""

STUBBORN = 'trap "echo ignored" TERM; echo started; while :; do sleep 0.05; done'


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[LocalProcess]:
    with make_shell(PARENT_AND_CHILD, tmp_path) as process:
        yield process


def make_shell(script: str, folder: Path, ready_line: str | None = "started") -> LocalProcess:
    return LocalProcess(["/bin/sh", "-c", script], name="shell", log_path=folder / "log", ready_line=ready_line)


def states(pids: tuple[int, ...]) -> set[str]:
    return {psutil.Process(pid).status() for pid in pids}


def is_gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until_gone(*pids: int) -> None:
    wait_until(lambda: all(map(is_gone, pids)), what=f"the end of {pids}")


def test_a_ready_process_runs_in_a_session_of_its_own(shell: LocalProcess) -> None:
    assert shell.is_running
    assert shell.exit_code is None
    assert os.getsid(shell.pid) == shell.pid != os.getsid(0)
    assert len(shell.member_pids()) == 2
    assert shell.member_pids()[0] == shell.pid


def test_environment_and_folder_reach_the_command(tmp_path: Path) -> None:
    process = LocalProcess(
        ["/bin/sh", "-c", "echo $WORD from $PWD; exit 3"],
        name="shell",
        log_path=tmp_path / "log",
        env={"WORD": "greetings"},
        cwd=tmp_path,
    )
    assert process.start().wait() == 3
    assert process.log_text() == f"greetings from {tmp_path}\n"
    process.stop()


@pytest.mark.parametrize("script", [PARENT_AND_CHILD, PARENT_AND_LEAVER], ids=["child in the group", "child outside"])
def test_kill_ends_the_whole_family(script: str, tmp_path: Path) -> None:
    with make_shell(script, tmp_path) as process:
        family = process.member_pids()
        assert len(family) > 1
        process.kill()
        assert process.exit_code == -signal.SIGKILL
        assert all(map(is_gone, family))
        assert process.member_pids() == ()


def test_kill_main_only_leaves_the_child_which_stop_then_ends(shell: LocalProcess) -> None:
    (child,) = shell.child_pids()
    shell.kill_main_only()
    assert not shell.is_running
    assert shell.child_pids() == (child,)
    shell.stop()
    assert is_gone(child)


def test_terminate_reaches_the_main_process_only(shell: LocalProcess) -> None:
    (child,) = shell.child_pids()
    shell.terminate()
    assert shell.wait() == -signal.SIGTERM
    assert shell.child_pids() == (child,)


@pytest.mark.parametrize("script", [PARENT_AND_CHILD, PARENT_AND_LEAVER], ids=["child in the group", "child outside"])
def test_freeze_and_thaw_reach_the_whole_family(script: str, tmp_path: Path) -> None:
    with make_shell(script, tmp_path) as process:
        family = process.member_pids()
        process.freeze()
        assert states(family) == {psutil.STATUS_STOPPED}
        assert process.is_running
        process.thaw()
        wait_until(lambda: psutil.STATUS_STOPPED not in states(family), what="all running")


def test_freeze_main_only_leaves_the_child_running(shell: LocalProcess) -> None:
    shell.freeze_main_only()
    wait_until(lambda: states((shell.pid,)) == {psutil.STATUS_STOPPED}, what="the main process stopped")
    assert psutil.STATUS_STOPPED not in states(shell.child_pids())
    shell.thaw_main_only()
    wait_until(lambda: psutil.STATUS_STOPPED not in states((shell.pid,)), what="the main process running")


def test_stop_ends_a_frozen_family(shell: LocalProcess) -> None:
    family = shell.member_pids()
    shell.freeze()
    shell.stop()
    assert all(map(is_gone, family))


def test_stop_kills_what_ignores_it(tmp_path: Path) -> None:
    with make_shell(STUBBORN, tmp_path) as process:
        process.stop(patience=SHORT)
        assert process.exit_code == -signal.SIGKILL
        assert "ignored" in process.log_text()


def test_stop_is_harmless_before_a_start_and_when_repeated(tmp_path: Path) -> None:
    process = make_shell(PARENT_AND_CHILD, tmp_path)
    process.stop()
    process.start().stop()
    process.stop()
    assert not process.is_running


def test_a_restarted_process_shows_the_log_of_its_last_run_only(tmp_path: Path) -> None:
    with make_shell("echo run by $$; echo started; sleep 60", tmp_path) as process:
        first = process.pid
        process.restart()
        assert process.pid != first
        assert f"run by {process.pid}" in process.log_text()
        assert f"run by {first}" not in process.log_text()
        assert f"run by {first}" in process.log_path.read_text()


def test_starting_again_ends_what_was_left_of_the_last_run(shell: LocalProcess) -> None:
    (orphan,) = shell.child_pids()
    shell.kill_main_only()
    shell.start().wait_until_ready()
    assert is_gone(orphan)


def test_waiting_for_the_log_of_a_dead_process_fails_at_once_with_its_last_words(tmp_path: Path) -> None:
    process = make_shell("echo the reason; exit 7", tmp_path)
    with pytest.raises(ProcessDied, match=r"(?s)exit code 7.*the reason"):
        process.start().wait_until_ready()
    process.stop()


def test_a_last_word_counts_even_if_the_process_ended_with_it(tmp_path: Path) -> None:
    process = make_shell("echo started", tmp_path).start()
    process.wait_until_ready()
    process.stop()


def test_waits_have_an_end(shell: LocalProcess) -> None:
    with pytest.raises(WaitTimedOut, match=r"0\.2 s in vain for 'never' in the log of shell"):
        shell.wait_for_log("never", SHORT)
    with pytest.raises(WaitTimedOut, match="the end of shell"):
        shell.wait(SHORT)


def test_a_process_that_was_not_started_has_no_pid(tmp_path: Path) -> None:
    process = make_shell(PARENT_AND_CHILD, tmp_path)
    assert not process.is_running
    assert process.log_text() == ""
    with pytest.raises(NotStarted, match="shell was not started"):
        _ = process.pid


# -- the guardian ----------------------------------------------------------------------------------------------------

STARTER = """
import sys
from pathlib import Path
from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess

shell = LocalProcess(["/bin/sh", "-c", sys.argv[2]], name="shell", log_path=Path(sys.argv[1]), ready_line="started")
shell.start().wait_until_ready()
redis = LocalRedis().start()
if len(sys.argv) > 3:
    shell.freeze()
    redis.pause()
print(redis.folder, redis.process.pid, *shell.member_pids(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["exits without stopping them", "is killed"])
@pytest.mark.parametrize("script", [PARENT_AND_CHILD, PARENT_AND_LEAVER], ids=["child in the group", "child outside"])
def test_nothing_outlives_a_starter_that(script: str, is_killed: bool, frozen: bool, tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path / "log"), script, *(["frozen"] if frozen else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    folder, *words = starter.stdout.readline().split()
    pids = tuple(map(int, words))
    assert len(pids) > 2
    assert not any(map(is_gone, pids))
    if is_killed:
        starter.kill()
    starter.communicate()
    wait_until_gone(*pids)
    wait_until(lambda: not Path(folder).exists(), what="the folder removed")
