"""Rows that go over to the database within one statement, or come back in a row of it, as one JSON value.

So the statement's text, and with it its plan, is the same however many rows there are. An array for each column would
do the same on PostgreSQL alone, and takes the driver twice as long to write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import CTE, JSON, BigInteger, ColumnElement, Connection, Select, Text, cast, func, literal, select
from sqlalchemy.types import TypeEngine

Columns = Mapping[str, TypeEngine[Any]]
TEXT: Final[TypeEngine[str]] = Text()
NUMBER: Final[TypeEngine[int]] = BigInteger()


def rows_of(connection: Connection, rows: Sequence[Sequence[object]], columns: Columns, *, name: str) -> CTE:
    """The rows as a table of these columns, in no order."""
    return selection_of(connection, rows, columns).cte(name)


def selection_of(connection: Connection, rows: Sequence[Sequence[object]], columns: Columns) -> Select[Any]:
    """The rows as a subquery. SQLite's driver does not count what a statement has changed that begins with WITH."""
    part = _part_of_sqlite if connection.dialect.name == "sqlite" else _part_of_postgresql
    row = _row_of(connection, json.dumps(rows))
    parts = [cast(part(row, place), column).label(key) for place, (key, column) in enumerate(columns.items())]
    return select(*parts)


def listed(connection: Connection, column: ColumnElement[str]) -> ColumnElement[list[str]]:
    """The column's values within a group, in no order."""
    aggregate = func.json_group_array if connection.dialect.name == "sqlite" else func.json_agg
    return aggregate(column, type_=JSON)


def _row_of(connection: Connection, encoded: str) -> ColumnElement[Any]:
    if connection.dialect.name == "sqlite":
        value: ColumnElement[Any] = func.json_each(encoded).table_valued("value", name="given").c.value
        return value
    # Encoded before: SQLAlchemy would encode the text of a JSON parameter once more.
    return func.json_array_elements(cast(literal(encoded), JSON)).column_valued("given")


def _part_of_postgresql(row: ColumnElement[Any], place: int) -> ColumnElement[Any]:
    return row.op("->>")(place)


def _part_of_sqlite(row: ColumnElement[Any], place: int) -> ColumnElement[Any]:
    return func.json_extract(row, f"$[{place}]")
