"""What deploy/ runs: every command of the systemd units, the Kubernetes manifests and compose, as lists of words."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from checkout import ROOT

DEPLOY = ROOT / "deploy"
SYSTEMD, KUBERNETES, COMPOSE = DEPLOY / "systemd", DEPLOY / "kubernetes", DEPLOY / "compose.yaml"
PROGRAM = "/opt/weft/venv/bin/celery"
INSTANCE = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`celery` with these words, what the environment gets besides the addresses, and its probes as words."""

    source: str
    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    probes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def units() -> Iterator[Command]:
    for unit in sorted(SYSTEMD.glob("*.service")):
        lines = [line for line in unit.read_text().splitlines() if not line.startswith("#")]
        settings = [tuple(line.split("=", 1)) for line in lines if "=" in line]
        (line,) = (value for name, value in settings if name == "ExecStart")
        program, *words = shlex.split(_specified(line))
        assert program == PROGRAM
        environment = dict(_specified(value).split("=", 1) for name, value in settings if name == "Environment")
        yield Command(source="systemd", name=unit.stem.rstrip("@"), words=tuple(words), environment=environment)


def resources() -> Iterator[dict[str, Any]]:
    """Every object of the Kubernetes manifests."""
    for file in sorted(KUBERNETES.glob("*.yaml")):
        if file.name != "kustomization.yaml":
            yield from yaml.safe_load_all(file.read_text())


def pods() -> Iterator[Command]:
    for resource in resources():
        for container in resource["spec"].get("template", {}).get("spec", {}).get("containers", ()):
            probes = {
                name: tuple(container[name]["exec"]["command"])
                for name in ("startupProbe", "livenessProbe", "readinessProbe")
                if "exec" in container.get(name, {})
            }
            yield Command(
                source="kubernetes",
                name=container["name"],
                words=tuple(container["args"]),
                environment={each["name"]: each["value"] for each in container.get("env", ())},
                probes=probes,
            )


def services() -> Iterator[Command]:
    """Of compose, those that run our image."""
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        if service["image"].startswith("weft-tasks"):
            probe = service.get("healthcheck", {}).get("test")
            yield Command(
                source="compose",
                name=name,
                words=tuple(word.split("${")[0] for word in service["command"]),
                environment={key: value for key, value in service["environment"].items() if key.startswith("WEFT_")},
                probes={"healthcheck": ("sh", "-c", probe[1].replace("$$", "$"))} if probe else {},
            )


def _specified(text: str) -> str:
    """The specifiers of systemd that are used."""
    return text.replace("%i", INSTANCE).replace("%%", "%")


def all_commands() -> dict[str, list[Command]]:
    """By source."""
    return {"systemd": list(units()), "kubernetes": list(pods()), "compose": list(services())}


def files_of_deploy() -> Iterator[Path]:
    yield from (path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc")
