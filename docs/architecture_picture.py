"""Draws docs/images/architecture.svg from the code: the layers of pyproject.toml, and the imports that grimp finds.

    python docs/architecture_picture.py

A box is a module or package directly below weft_tasks, with the libraries that it knows. A line says that something in
the upper box imports something in the lower one. Nothing is counted, or every commit would make the picture stale.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
PACKAGE = "weft_tasks"
LIBRARIES = (
    "celery",
    "kombu",
    "sqlalchemy",
    "alembic",
    "redis",
    "prometheus_client",
    "opentelemetry",
    "rich",
    "psutil",
    "pytest",
)
"""Those worth a word: what binds a layer to something outside."""

WIDTH, MARGIN, GAP = 900, 24, 24
BOX_HEIGHT, ROW_HEIGHT = 46, 78


def layers() -> list[list[str]]:
    """From the top; the parts of one layer know each other or not, which makes no difference here."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (ordered,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[part.strip(" ()") for part in layer.replace("|", ":").split(":")] for layer in ordered]


def draw() -> str:
    """The picture, the same for the same code."""
    graph = grimp.build_graph(
        PACKAGE, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )
    rows = layers()
    parts = [part for row in rows for part in row]
    imports: set[tuple[str, str]] = set()
    knows: dict[str, set[str]] = {part: set() for part in parts}
    for module in sorted(graph.modules):
        importer = part_of(module)
        if importer not in knows:
            continue
        for imported in graph.find_modules_directly_imported_by(module):
            target = part_of(imported)
            if target in knows and target != importer:
                imports.add((importer, target))
            elif imported.split(".")[0] in LIBRARIES:
                knows[importer].add(imported.split(".")[0])
    places = placed(rows)
    height = MARGIN * 2 + ROW_HEIGHT * (len(rows) - 1) + BOX_HEIGHT
    lines = [line(places[source], places[target]) for source, target in sorted(imports)]
    boxes = [box(part, places[part], sorted(knows[part])) for part in parts]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
    )
    return head + "\n".join([*lines, *boxes]) + "\n</svg>\n"


def part_of(module: str) -> str:
    """weft_tasks.store.claims -> store; for others what cannot be a part."""
    names = module.split(".")
    return names[1] if names[0] == PACKAGE and len(names) > 1 else ""


def placed(rows: Sequence[Sequence[str]]) -> Mapping[str, tuple[float, float, float]]:
    """Left, top and width of each box. Neighbouring rows are indented differently, so that lines pass between boxes."""
    places = {}
    for n, row in enumerate(rows):
        indent = (n % 3) * 90
        width = (WIDTH - 2 * MARGIN - 180 - GAP * (len(row) - 1)) / len(row)
        for m, part in enumerate(row):
            places[part] = (MARGIN + indent + m * (width + GAP), MARGIN + float(n * ROW_HEIGHT), width)
    return places


def line(source: tuple[float, float, float], target: tuple[float, float, float]) -> str:
    x1, y1 = source[0] + source[2] / 2, source[1] + BOX_HEIGHT
    x2, y2 = target[0] + target[2] / 2, target[1]
    if y2 < y1:
        y1, y2 = source[1] + BOX_HEIGHT / 2, target[1] + BOX_HEIGHT / 2
    return (
        f'<path d="M{x1:.0f} {y1:.0f} C{x1:.0f} {(y1 + y2) / 2:.0f} {x2:.0f} {(y1 + y2) / 2:.0f} {x2:.0f} {y2:.0f}" '
        f'fill="none" stroke="#7a8ba3" stroke-opacity="0.55" stroke-width="1.4"/>'
    )


def box(part: str, place: tuple[float, float, float], knows: Sequence[str]) -> str:
    left, top, width = place
    below = " · ".join(knows) or "no library"
    middle = left + width / 2
    return (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{BOX_HEIGHT}" rx="6" '
        'fill="#eef3fa" stroke="#3f5f8a"/>\n'
        f'<text x="{middle:.0f}" y="{top + 19:.0f}" text-anchor="middle" font-size="15" fill="#14253d">{part}</text>\n'
        f'<text x="{middle:.0f}" y="{top + 36:.0f}" text-anchor="middle" font-size="11" fill="#4a5a70">{below}</text>'
    )


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(draw(), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}\n")
