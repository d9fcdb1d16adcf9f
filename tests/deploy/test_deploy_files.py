"""The files of deploy/ are what systemd, Kubernetes, compose and Docker take, and say what docs/deployment.md says.

`tests/cluster/deploy` runs their commands.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from checkout import ROOT
from manifests import COMPOSE, DEPLOY, KUBERNETES, PROGRAM, SYSTEMD, all_commands, files_of_deploy, resources

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DRAIN_S = 10
"""What an engine takes at most for its last words to a slow store: connect timeout + 4 statement timeouts."""


def kind_and_name(resource: dict[str, Any]) -> str:
    return f"{resource['kind']}/{resource['metadata']['name']}"


@pytest.mark.parametrize("resource", list(resources()), ids=kind_and_name)
def test_kubernetes_knows_every_field(resource: dict[str, Any]) -> None:
    kubernetes_validate.validate(resource, "1.37", strict=True)


def test_the_kustomization_names_files_that_are_there() -> None:
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    assert {file.name for file in KUBERNETES.glob("*.yaml")} == {
        *kustomization["resources"],
        "kustomization.yaml",
        "migrate.yaml",
    }


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl on PATH")
def test_kubectl_builds_the_kustomization() -> None:
    built = subprocess.run(["kubectl", "kustomize", str(KUBERNETES)], stdout=subprocess.PIPE, text=True, check=True)
    images = {
        container["image"]
        for resource in yaml.safe_load_all(built.stdout)
        for container in resource["spec"].get("template", {}).get("spec", {}).get("containers", ())
    }
    assert images == {f"registry.example/weft-tasks:{PROJECT['version']}"}


def deployment(name: str) -> dict[str, Any]:
    (found,) = (each for each in resources() if kind_and_name(each) == f"Deployment/{name}")
    spec: dict[str, Any] = found["spec"]
    return spec


def test_beat_is_one_also_while_it_is_replaced() -> None:
    assert (deployment("weft-beat")["replicas"], deployment("weft-beat")["strategy"]) == (1, {"type": "Recreate"})


def test_an_engine_gets_time_for_its_turns_and_is_not_restarted_for_what_is_not_its_fault() -> None:
    pod = deployment("weft-engine")["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > DRAIN_S
    (engine,) = pod["containers"]
    alive = " ".join(engine["livenessProbe"]["exec"]["command"])
    assert "/alive" in alive
    assert "celery" not in alive
    assert "/ready" in " ".join(engine["readinessProbe"]["exec"]["command"])
    # A minute of silence, and two looks: more than T + G, after which its workflows have moved anyway.
    assert int(re.findall(r"-(\d+) seconds", alive)[0]) > 45


def test_compose_knows_every_field() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze on PATH")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """With a program that is there, since systemd looks for it too."""
    for unit in SYSTEMD.iterdir():
        text = unit.read_text().replace(PROGRAM, str(Path(sys.executable).with_name("celery")))
        (tmp_path / unit.name).write_text(text)
    verified = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            "--man=no",
            *sorted(str(unit) for unit in tmp_path.iterdir() if unit.suffix != ".env"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_image_is_built_from_files_and_extras_that_are_there() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, re.MULTILINE):
        *sources, _target = line.split()
        assert [source for source in sources if not (ROOT / source).exists()] == []
    (extras,) = re.findall(r"'\.\[(.*)\]'", dockerfile)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def test_every_file_names_the_present_version() -> None:
    versions = {
        version
        for file in files_of_deploy()
        for version in re.findall(r"weft-(?:tasks:|migrate-)(\d+\.\d+\.\d+)|newTag: (\S+)", file.read_text())
    }
    assert {"".join(found) for found in versions} == {PROJECT["version"]}


@pytest.mark.parametrize("source", ["systemd", "kubernetes", "compose"])
def test_each_has_an_engine_maintenance_beat_an_exporter_and_a_migration(source: str) -> None:
    commands = all_commands()[source]
    does = [" ".join(command.words) for command in commands]
    for words in ("-Q celery,weft.turns", "-Q weft.maintenance", " beat ", "weft exporter", "weft migrate"):
        assert [line for line in does if words in line], words


def test_no_file_has_a_password() -> None:
    addresses = [url for file in files_of_deploy() for url in re.findall(r"://[^@\s]*:([^@\s]+)@", file.read_text())]
    assert set(addresses) <= {"CHANGE-ME", "${WEFT_PASSWORD:?say WEFT_PASSWORD=… before the command}"}
