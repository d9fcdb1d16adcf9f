"""Writes docs/reference/settings.md from the fields of Settings and their docstrings: `python docs/settings_page.py`.

The page is kept in the repository, where it is read too; a test fails while it is not as this writes it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from weft_tasks import settings
from weft_tasks.settings import NEVER, PREFIX, Settings

PAGE = Path(__file__).parent / "reference" / "settings.md"

INTRODUCTION = """\
# Settings

<!-- Written by docs/settings_page.py from weft_tasks/settings.py. -->

Celery settings, in any place where Celery reads them. With `config_from_object(…, namespace="CELERY")` they are
`CELERY_WEFT_DATABASE_URL` and so on. Durations are seconds (a number) or `timedelta`. T, R and G are the claim TTL, the
renew interval and the grace.

A name that nobody knows is refused, and so is a set that cannot work: worker, beat and every verb then say which
settings, and their values. All processes of a deployment need the same durations.

| setting | default | meaning, and what it must be |
|---|---|---|
"""

END = """
Besides: heartbeat interval + connect timeout + statement timeout must be less than T + G, or one unanswered heartbeat
would lose every claim.

**Change R alone** and whatever is said to be a multiple of R moves along; change T with it to move the
[bounds](../ownership.md#bounds). With T = 12 s and R = 2 s a killed engine's workflows move within 12 + 4 + 2 = 18 s
and a pass.
"""


def page() -> str:
    return INTRODUCTION + "".join(_rows()) + END


def _rows() -> Iterator[str]:
    meanings = dict(_docstrings())
    defaults = Settings()
    for setting in fields(Settings):
        shown = _shown(getattr(defaults, setting.name))
        yield f"| `{PREFIX}{setting.name}` | {shown} | {meanings[setting.name]} |\n"


def _docstrings() -> Iterator[tuple[str, str]]:
    """Each field of Settings with the string that stands below it."""
    module = ast.parse(inspect.getsource(settings))
    [body] = [node.body for node in module.body if isinstance(node, ast.ClassDef) and node.name == "Settings"]
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            if not (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)):
                raise SystemExit(f"weft_tasks/settings.py: the setting {field.target.id} has no docstring")
            yield field.target.id, " ".join(str(below.value.value).split())


def _shown(default: Any) -> str:
    if default is None:
        return "none"
    if default == NEVER:
        return "never"
    if not isinstance(default, timedelta):
        return f"`{default}`"
    for unit, length in (("days", timedelta(days=1)), ("min", timedelta(minutes=1))):
        if default >= length:
            return f"{default / length:g} {unit}"
    return f"{default.total_seconds():g} s"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
