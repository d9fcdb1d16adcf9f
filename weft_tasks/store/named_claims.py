"""A slice of claims, named within one statement that changes them, and the order in which it does."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, func, select, true, tuple_

from weft_tasks.model import HeldClaim
from weft_tasks.store.json_rows import NUMBER, TEXT, Columns, rows_of, selection_of
from weft_tasks.store.tables import claims

_COLUMNS: Columns = {"workflow_id": TEXT, "engine_id": TEXT, "epoch": NUMBER}


def are_named(connection: Connection, wanted: Sequence[HeldClaim]) -> tuple[ColumnElement[bool], ...]:
    """The conditions under which a claim is one of `wanted`, by id, holder and epoch together.

    On PostgreSQL they are no join: the planner would join a small table the other way round, and lock its claims in
    another order than that of their ids (see `go_by_ids`).
    """
    if connection.dialect.name == "sqlite":
        joined = selection_of(connection, wanted, _COLUMNS).subquery("named")
        return tuple(claims.c[name] == joined.c[name] for name in _COLUMNS)
    named = rows_of(connection, wanted, _COLUMNS, name="named")
    ids = select(named.c.workflow_id).scalar_subquery()
    whole = tuple_(claims.c.workflow_id, claims.c.engine_id, claims.c.epoch)
    return claims.c.workflow_id == func.any(func.array(ids)), whole.in_(select(named)).is_(true())


def go_by_ids(connection: Connection) -> None:
    """Have the rest of the transaction look up the claims that a statement names along the index on their ids.

    So they are locked in the one order in which everybody locks claims. A scan would go by the table instead, and a
    renewal and a release that meet could each wait for what the other one has. To lock them beforehand would cost a
    second record in the write-ahead log for each claim.
    """
    if connection.dialect.name != "sqlite":
        ways = ("enable_seqscan", "enable_bitmapscan")
        connection.execute(select(*(func.set_config(way, "off", True) for way in ways)))
