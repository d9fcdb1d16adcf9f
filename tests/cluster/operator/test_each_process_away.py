"""Each kind of process killed in turn: `check`, `status`, metrics and logs tell which one, as docs/operating.md says.

R is 1 s here, T + G 5 s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from deployment import Deployment, NewLines
from parts import Parts
from scraping import exporter_of

from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until

LONGEST = timedelta(seconds=40)
"""Each look starts a `celery` command, which takes seconds on two busy cores."""


class Operator:
    """Somebody with a terminal, who sees nothing but what the commands print."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._looks = 0

    def look(self, *words: str) -> tuple[int, str]:
        """Exit status and output of a `weft` command."""
        self._looks += 1
        command = self._deployment.command("weft", *words, name=f"operator-{self._looks}")
        with command:
            return command.wait(timeout=LONGEST), command.log_text()

    def findings(self) -> list[str]:
        """What `check` finds wrong: topic and text."""
        status, printed = self.look("check", "--json")
        found: list[dict[str, Any]] = json.loads(printed[printed.index("{") :])["findings"]
        wrong = [f"{finding['topic']}: {finding['text']}" for finding in found if finding["level"] != "ok"]
        assert status == (1 if any(finding["level"] == "error" for finding in found) else 0)
        assert all(finding["remedy"] for finding in found if finding["level"] != "ok")
        return wrong

    def wait_for(self, *texts: str) -> None:
        """Look until `check` says all of this."""
        wait_until(
            lambda: (found := "\n".join(self.findings())) and all(text in found for text in texts),
            what=f"check to say {texts}",
            timeout=LONGEST,
        )


@pytest.fixture
def operator(deployment: Deployment) -> Operator:
    return Operator(deployment)


@contextmanager
def away(process: LocalProcess) -> Iterator[None]:
    """Killed, and started again at the end."""
    process.kill()
    try:
        yield
    finally:
        process.start()
        process.wait_until_ready()


def test_nothing_is_wrong(operator: Operator) -> None:
    wait_until(lambda: not operator.findings(), what="check to find nothing", timeout=LONGEST)


def test_an_engine_was_killed(parts: Parts, deployment: Deployment, operator: Operator) -> None:
    ids = deployment.park_on("e1", "held", 2)
    maintenance = NewLines(parts.maintenance)
    with exporter_of(deployment, "exporter") as exporter, away(parts.engine):
        operator.wait_for("engines: e1@local (pid ", "killed, frozen, or cut off from the store")
        maintenance.wait_for("weft.pass.completed pass=reclaim")
        wait_until(lambda: exporter.scrape()("weft_engines", state="silent") == 1, what="a silent engine in metrics")
        assert "e1@local" in operator.look("status")[1]
    deployment.wait_until_parked(*ids)


def test_the_maintenance_worker_is_away(parts: Parts, deployment: Deployment, operator: Operator) -> None:
    with exporter_of(deployment, "exporter") as exporter, away(parts.maintenance):
        operator.wait_for("workers: no worker consumes weft.maintenance", "there is no maintenance worker")
        wait_until(lambda: exporter.scrape()("weft_pass_lag_seconds", **{"pass": "renewal"}) > 3, what="a late pass")


def test_beat_is_away(parts: Parts, deployment: Deployment, operator: Operator) -> None:
    with exporter_of(deployment, "exporter") as exporter, away(parts.beat):
        operator.wait_for("no tick waits, so beat sends none or each fails")
        wait_until(lambda: exporter.scrape()("weft_pass_lag_seconds", **{"pass": "renewal"}) > 3, what="a late pass")
