"""`make matrix`: the quick tests on every supported Python that is here, with the newest of what we require, and on the
oldest Python with the oldest of it. Interpreters that are not here are skipped, and nox says so.
"""

from __future__ import annotations

import nox

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LOWEST = "tests/package/lowest.txt"
QUICK = ("-n", "2", "--dist", "loadfile", "tests/unit", "tests/contract", "tests/workflows", "tests/race")

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True


@nox.session(python=PYTHONS[0])
def lowest(session: nox.Session) -> None:
    """The lower bounds of pyproject.toml."""
    session.install("--constraint", LOWEST, "--editable", ".[dev]")
    session.run("pytest", *QUICK, *session.posargs)


@nox.session(python=PYTHONS)
def highest(session: nox.Session) -> None:
    """The newest releases."""
    session.install("--upgrade", "--editable", ".[dev]")
    session.run("pytest", *QUICK, *session.posargs)
