"""Statements that are built once, for values that come with each execution.

Building one of the larger statements takes the processor several times as long as executing it, and a turn has several
of them.
"""

from __future__ import annotations

from typing import Any, TypeVar

from sqlalchemy import BindParameter, bindparam
from sqlalchemy.types import TypeEngine

T = TypeVar("T")


def given(name: str, type_: TypeEngine[T], *, is_list: bool = False) -> BindParameter[T]:
    """A value that comes with the execution. SQLAlchemy keeps the names of columns for itself, so it has another."""
    return bindparam(_called(name), type_=type_, expanding=is_list)


def as_given(**values: Any) -> dict[str, Any]:
    """The values, for a statement that has them by these names."""
    return {_called(name): value for name, value in values.items()}


def _called(name: str) -> str:
    return f"given_{name}"
