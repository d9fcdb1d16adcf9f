"""The documentation as a site: it builds without a warning, has every page, and needs nobody else's server."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"
"""A proxy that does not answer: what the build would fetch fails."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    assert "WARNING" not in built.stdout, built.stdout
    return folder


def test_every_page_of_the_repository_is_on_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in ROOT.glob("docs/**/*.md")]
    assert [page for page in pages if not (site / page).exists()] == []


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = {address for page in site.rglob("*.html") for address in _loaded(page.read_text(encoding="utf-8"))}
    assert sorted(address for address in loaded if re.match(r"(https?:)?//", address)) == []


def test_the_reference_has_every_public_name(site: Path) -> None:
    from weft_tasks import __all__ as public
    from weft_tasks.testing import __all__ as for_tests

    names = [name for name in public if not name.startswith("_")]
    anchors = {
        anchor.rpartition(".")[2]
        for page in (site / "reference").glob("*.html")
        for anchor in re.findall(r'id="(weft_tasks[\w.]*)"', page.read_text(encoding="utf-8"))
    }
    assert sorted({*names, *for_tests} - anchors) == []


def test_the_page_of_settings_is_what_the_code_says() -> None:
    written = _module("docs/settings_page.py")
    assert written.PAGE.read_text(encoding="utf-8") == written.page(), "write it: python docs/settings_page.py"


def test_the_page_of_faults_is_what_the_bench_says() -> None:
    written = _module("docs/faults_page.py")
    assert written.PAGE.read_text(encoding="utf-8") == written.page(), "write it: python docs/faults_page.py"


def _loaded(html: str) -> list[str]:
    """Addresses that a browser fetches by itself."""
    found: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            attributes = dict(attrs)
            if tag in ("script", "img", "iframe"):
                found.append(attributes.get("src") or "")
            if tag == "link" and attributes.get("rel") != "canonical":
                found.append(attributes.get("href") or "")

    Parser().feed(html)
    return found


def _module(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
