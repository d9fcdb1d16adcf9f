"""The next release, as far as one knows it: this one, and a migration that adds to the schema."""

from __future__ import annotations

from pathlib import Path

from weft_tasks.store.schema import head_revision

REVISION = "next"
_MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = "next"
down_revision = "{head}"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table("weft_new", sa.Column("id", sa.BigInteger(), primary_key=True))
    for table in ("weft_workflows", "weft_claims", "weft_signals", "weft_engines", "weft_history"):
        op.add_column(table, sa.Column("added", sa.BigInteger(), nullable=False, server_default="7"))
    op.add_column("weft_turns", sa.Column("added", sa.Text()))
    op.create_index("ix_weft_new", "weft_workflows", ["added"])


def downgrade():
    op.drop_index("ix_weft_new", "weft_workflows")
    for table in ("weft_workflows", "weft_claims", "weft_signals", "weft_engines", "weft_history", "weft_turns"):
        with op.batch_alter_table(table) as batch:
            batch.drop_column("added")
    op.drop_table("weft_new")
"""
"""What an additive migration may do."""


def add_migration(migrations: Path) -> None:
    """Add it to a copy of the folder `store/migrations`."""
    (migrations / "versions" / "rev_next.py").write_text(_MIGRATION.format(head=head_revision()), encoding="utf-8")
