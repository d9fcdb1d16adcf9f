"""A slice of claims, named within one statement that changes them.

The claims go over as one JSON value, so that the statement's text, and with it its plan, is the same for every slice.
An array for each column would do the same on PostgreSQL alone, and takes the driver twice as long to write.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import JSON, BigInteger, ColumnElement, Connection, cast, func, literal, select, true, tuple_

from weft_tasks.model import HeldClaim
from weft_tasks.store.tables import claims


def are_named(connection: Connection, wanted: Sequence[HeldClaim]) -> tuple[ColumnElement[bool], ...]:
    """The conditions under which a claim is one of `wanted`, by id, holder and epoch together.

    On PostgreSQL they are no join: the planner would join a small table the other way round, and lock its claims in
    another order than that of their ids (see `go_by_ids`).
    """
    parts = _parts_sqlite(wanted) if connection.dialect.name == "sqlite" else _parts_postgresql(wanted)
    named = select(*parts).cte("named")
    ids = select(named.c.workflow_id)
    is_listed: ColumnElement[bool] = claims.c.workflow_id.in_(ids)
    if connection.dialect.name != "sqlite":
        is_listed = claims.c.workflow_id == func.any(func.array(ids.scalar_subquery()))
    named_whole = tuple_(claims.c.workflow_id, claims.c.engine_id, claims.c.epoch).in_(select(named))
    return is_listed, named_whole.is_(true())


def go_by_ids(connection: Connection) -> None:
    """Have the rest of the transaction look up the claims that a statement names along the index on their ids.

    So they are locked in the one order in which everybody locks claims. A scan would go by the table instead, and a
    renewal and a release that meet could each wait for what the other one has. To lock them beforehand would cost a
    second record in the write-ahead log for each claim.
    """
    if connection.dialect.name != "sqlite":
        ways = ("enable_seqscan", "enable_bitmapscan")
        connection.execute(select(*(func.set_config(way, "off", True) for way in ways)))


def _parts_postgresql(wanted: Sequence[HeldClaim]) -> list[ColumnElement[Any]]:
    # Encoded here: SQLAlchemy would encode the text of a JSON parameter once more.
    claim = func.json_array_elements(cast(literal(json.dumps(wanted)), JSON)).column_valued("given")
    return _labelled([claim.op("->>")(place) for place in range(3)])


def _parts_sqlite(wanted: Sequence[HeldClaim]) -> list[ColumnElement[Any]]:
    claim = func.json_each(json.dumps(wanted)).table_valued("value", name="given").c.value
    return _labelled([func.json_extract(claim, f"$[{place}]") for place in range(3)])


def _labelled(parts: Sequence[ColumnElement[Any]]) -> list[ColumnElement[Any]]:
    """A claim is written as the array of its three parts."""
    workflow_id, engine_id, epoch = parts
    return [workflow_id.label("workflow_id"), engine_id.label("engine_id"), cast(epoch, BigInteger).label("epoch")]
