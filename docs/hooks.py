"""What `make docs` does beside MkDocs: pages from outside docs/, links between them, folders in the navigation."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}
"""Pages that are read in the repository first, and where they are on the site."""

_PLACE_IN_THE_REPOSITORY = {site: repository for repository, site in OUTSIDE.items()}
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s:#]+)(?P<anchor>#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> None:
    """A folder in the navigation stands for its pages."""
    config.nav = _unfolded(config.nav)


def on_files(files: Files, config: MkDocsConfig) -> None:
    for repository, site in OUTSIDE.items():
        text = (ROOT / repository).read_text(encoding="utf-8")
        files.append(File.generated(config, site, content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links are written for a reader of the repository. One to a file that is no page becomes its text alone."""
    here = page.file.src_uri
    folder = posixpath.dirname(_PLACE_IN_THE_REPOSITORY.get(here, f"docs/{here}"))

    def on_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link["target"]))
        place = OUTSIDE.get(target, target.removeprefix("docs/"))
        if files.get_file_from_path(place) is None:
            if not (ROOT / target).exists():
                return link[0]
            return link["text"]
        relative = posixpath.relpath(place, posixpath.dirname(here) or ".")
        return f"[{link['text']}]({relative}{link['anchor'] or ''})"

    return _LINK.sub(on_site, markdown)


def _unfolded(nav: Any) -> Any:
    if isinstance(nav, list):
        return [_unfolded(entry) for entry in nav]
    if isinstance(nav, dict):
        return {title: _unfolded(entry) for title, entry in nav.items()}
    if isinstance(nav, str) and nav.endswith("/"):
        return [path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs" / nav).glob("*.md"))]
    return nav
