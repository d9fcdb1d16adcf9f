"""A rolling deploy: no workflow ever runs on code that does not know its version, and `weft status` says what waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import versions_app
from deployment import Deployment

from weft_tasks.model import WorkflowStatus
from weft_tasks.testing.celery_commands import WorkerProcess
from weft_tasks.testing.waiting import wait_until
from weft_tasks.weft import Weft

LONG = timedelta(seconds=60)


class Rolling(Deployment):
    """A deployment whose processes and clients are of one release or another."""

    app = "versions_app"

    def engine_of(self, release: str) -> WorkerProcess:
        return self.worker(release, queues=["celery", "weft.turns"], env={"RELEASE": release})

    def client(self, release: str) -> Weft:
        weft = versions_app.build({**self.env, "RELEASE": release})
        weft.app.finalize()
        return weft

    def waiting(self) -> tuple[set[tuple[str, int]], set[str]]:
        """What `weft status` says of work that nobody can do: types with versions, and the reclaim pass's words."""
        command = self.command("weft", "status", "--json", name="status")
        command.start()
        assert command.wait(LONG) == 0, command.log_text()
        status = json.loads(command.log_text())
        (reclaim,) = [shown["result"] or {} for shown in status["passes"] if shown["pass"] == "reclaim"]
        return {(one["type"], one["version"]) for one in status["homeless"]}, set(reclaim.get("waiting", ()))

    def wait_until_status_says(self, *versions: int) -> None:
        """Wait until these versions wait for an engine, and no others."""
        types, words = {("case", v) for v in versions}, {f"no engine for 'case' version {v} now" for v in versions}
        wait_until(lambda: self.waiting() == (types, words), what=f"{words} in the status", timeout=LONG)


@pytest.fixture(params=("postgresql", "sqlite"))
def deployment(
    request: pytest.FixtureRequest, new_database: Callable[[str], str], process_env: dict[str, str], tmp_path: Path
) -> Rolling:
    env = {**process_env, "DATABASE_URL": new_database(request.param), "RELEASE": "old"}
    return Rolling(env=env, folder=tmp_path)


def test_a_rolling_deploy_runs_each_workflow_on_code_that_knows_its_version(
    deployment: Rolling, start: Callable[..., None]
) -> None:
    rolling, old_client, new_client = deployment, deployment.client("old"), deployment.client("new")
    old_engine = rolling.engine_of("old")
    start(old_engine, rolling.worker("m1", queues=["weft.maintenance"]), rolling.beat())
    old = [f"old-{n}" for n in range(3)]
    for id in old:
        old_client.start("case", id)
    rolling.wait_until_parked(*old, timeout=LONG)

    # A client of the new release is there before any engine of it.
    early = new_client.start("case", "early")
    rolling.wait_until_status_says(2)
    assert (early.describe().version, early.describe().turn) == (2, 0)
    start(rolling.engine_of("new"))
    rolling.wait_until_parked("early", timeout=LONG)

    # Both take from the queue of new workflows now, whichever client sends.
    late = [f"late-{n}" for n in range(6)]
    new = [f"new-{n}" for n in range(6)]
    for late_id, new_id in zip(late, new, strict=True):
        old_client.start("case", late_id)
        new_client.start("case", new_id)
    rolling.wait_until_parked(*late, *new, timeout=LONG)
    for id in (*late, *new, "early"):
        old_client.signal(id, "close")
    for ids, release in ((late, "old"), ([*new, "early"], "new")):
        for id in ids:
            assert rolling.wait_for(id, timeout=LONG).result == [release, release]

    # The last engine of the old release dies; nothing of it runs on the new one.
    old_engine.kill()
    new_client.signal(old[0], "close")
    rolling.wait_until_status_says(1)
    new_client.start("case", "meanwhile")
    new_client.signal("meanwhile", "close")
    assert set(rolling.wait_for("meanwhile", timeout=LONG).result) == {"new"}
    rolling.wait_for_beats("new", beats=6)
    for id in old:
        info = rolling.weft.describe(id)
        assert (info.status, info.turn, info.state) == (WorkflowStatus.RUNNING, 1, {"ran on": ["old"]})

    # A release that can run both takes them.
    start(rolling.engine_of("both"))
    for id in old[1:]:
        new_client.signal(id, "close")
    for id in old:
        assert rolling.wait_for(id, timeout=LONG).result == ["old", "both"]
    rolling.wait_until_status_says()
    assert new_client.list(type="case", status="running") == ()
