"""The values within the package are those of the celeryconfig.py that people copy."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import weft_tasks.celery_host.default_config as packaged

SHIPPED = Path(__file__).parents[2] / "celeryconfig.py"


@pytest.mark.parametrize("url", [None, "redis://elsewhere/3"])
def test_both_say_the_same(url: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROKER_URL", "RESULT_BACKEND", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
        if url:
            monkeypatch.setenv(name, url)
    assert settings_of(SHIPPED) == settings_of(Path(packaged.__file__))


def settings_of(file: Path) -> dict[str, Any]:
    return {name: value for name, value in runpy.run_path(str(file)).items() if name[0] != "_" and name != "os"}
