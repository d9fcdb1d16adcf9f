"""An engine that stood still and was deposed commits nothing when it moves again, and goes on as the same engine."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from deployment import GRACE, INTERVAL, SLACK, TTL, Deployment, Gate
from pytest_celery import CeleryTestSetup

from weft_tasks.model import EngineStatus
from weft_tasks.testing.celery_commands import WorkerProcess
from weft_tasks.testing.waiting import wait_until

NODES = ("e1", "e2")
LONGEST_MOVE = TTL + GRACE + INTERVAL + SLACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An engine with a long turn in hand."""

    id: str
    gate: Gate
    process: WorkerProcess
    node: str
    engine_id: str
    epoch: int


@pytest.fixture
def scene(setup: CeleryTestSetup, deployment: Deployment, request: pytest.FixtureRequest) -> Scene:
    id = str(request.node.name)
    gate = deployment.gate(id)
    deployment.weft.start("gate", id, str(gate.path))
    gate.wait_for()
    long = deployment.weft.describe(id)
    node = next(node for node in NODES if deployment.engine(node).id == long.engine_id)
    return Scene(
        id=id,
        gate=gate,
        process=setup.worker_cluster[NODES.index(node)].process,
        node=node,
        engine_id=deployment.engine(node).id,
        epoch=long.epoch,
    )


def assert_that_one_commit_won_and_one_was_refused(scene: Scene, deployment: Deployment) -> None:
    ended = deployment.wait_for(scene.id, timeout=SLACK)
    assert ended.result == scene.gate.comings[1]
    assert deployment.committed_turns(scene.id) == [(0, scene.epoch + 1)]
    wait_until(lambda: deployment.events("commit-refused", scene.id), what="the refusal in the history")
    assert deployment.events("commit-refused", scene.id) == [(scene.id, scene.epoch)]
    assert deployment.events("taken-over", scene.id) == [(scene.id, scene.epoch + 1)]
    line = f"weft.claim.lost workflow={scene.id!r} engine={scene.engine_id} epoch={scene.epoch}"
    assert line in scene.process.log_text()


def assert_that_it_goes_on_as_the_same_engine(scene: Scene, deployment: Deployment) -> None:
    deployment.wait_for_beats(scene.node, beats=1)
    now = deployment.engine(scene.node)
    assert (now.id, now.status) == (scene.engine_id, EngineStatus.LIVE)
    deployment.wait_for_new_work_on(scene.node, f"{scene.id}-new")


def test_a_frozen_engine_commits_nothing_after_it_thaws_and_takes_new_work_as_the_same_engine(
    scene: Scene, deployment: Deployment
) -> None:
    scene.process.freeze()
    scene.gate.wait_for(2, timeout=LONGEST_MOVE)
    wait_until(lambda: not deployment.held_by(scene.engine_id), what="all its claims to move")
    silent = deployment.engine(scene.node)
    assert silent.status is EngineStatus.LIVE
    assert silent.silence_ms > (TTL + GRACE).total_seconds() * 1000
    scene.process.thaw()
    deployment.wait_for_beats(scene.node, beats=1)
    scene.gate.open()
    assert_that_one_commit_won_and_one_was_refused(scene, deployment)
    assert_that_it_goes_on_as_the_same_engine(scene, deployment)


def test_the_pool_of_a_frozen_main_process_commits_nothing(scene: Scene, deployment: Deployment) -> None:
    scene.process.freeze_main_only()
    try:
        scene.gate.wait_for(2, timeout=LONGEST_MOVE)
        scene.gate.open()
        assert_that_one_commit_won_and_one_was_refused(scene, deployment)
    finally:
        scene.process.thaw_main_only()
    assert_that_it_goes_on_as_the_same_engine(scene, deployment)
