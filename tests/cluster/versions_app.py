"""The application of a rolling deploy: `suite_app` and one workflow type, in the release that RELEASE names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import suite_app

from weft_tasks.weft import Weft
from weft_tasks.workflows.turn import Turn, TurnEnd

RELEASES: Mapping[str, tuple[int, tuple[int, ...]]] = {"old": (1, ()), "new": (2, ()), "both": (2, (1,))}
"""By its name, the version that a release starts workflows with, and the older ones that it can run."""


def build(environ: Mapping[str, str]) -> Weft:
    weft = suite_app.build(environ)
    release = environ["RELEASE"]
    version, runs = RELEASES[release]

    @weft.workflow("case", version=version, runs=runs)
    def case(turn: Turn) -> TurnEnd | None:
        """Notes which release runs each of its turns."""
        turn.state.setdefault("ran on", []).append(release)
        if turn.take("close"):
            return turn.complete(turn.state["ran on"])
        turn.wait("close")
        return None

    return weft


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    return globals().setdefault("app", build(os.environ).app)
