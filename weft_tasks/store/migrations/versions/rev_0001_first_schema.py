"""The first schema

Revision ID: 0001
Revises: nothing
"""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    # On PostgreSQL, as `python -m benchmarks.renewal_writes` measures it, 10,000 claims in 20 passes:
    # - Half of each page is free, for the new version of every row on it: 84 bytes of WAL a renewal, 99.8 % heap-only
    #   updates. With fillfactor 100 it is 310 bytes and 19 %, with 70 it is 89 bytes, 97 %, and a larger table.
    # - No index has expires_at, which every renewal changes: with one, 322 bytes, and no update is heap-only.
    # - Autovacuum is as PostgreSQL has it, for claims that end: 5 % new ones before each of 40 more passes leave
    #   a table of about 3 MB, without autovacuum 6 MB, with a scale factor of 0.01 and no cost delay about 3 MB.
    # - The bucket costs a renewal nothing: 84 bytes with it and without it.
    op.create_table(
        "weft_claims",
        sa.Column("workflow_id", sa.String(length=255), nullable=False),
        sa.Column("engine_id", sa.String(length=255), nullable=False),
        sa.Column("bucket", sa.SmallInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workflow_id"),
        postgresql_with={"fillfactor": 50},
    )
    op.create_index("ix_weft_claims_engine", "weft_claims", ["engine_id"], unique=False)

    op.create_table(
        "weft_clock",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("witnessed", sa.BigInteger(), nullable=False),
        sa.Column("advanced_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "weft_counters",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", "labels"),
    )
    op.create_table(
        "weft_engine_types",
        sa.Column("engine_id", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=255), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("engine_id", "type", "version"),
    )
    op.create_table(
        "weft_engines",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_witnessed", sa.BigInteger(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("free_slots", sa.Integer(), nullable=False),
        sa.Column("in_hand", sa.Text(), nullable=False),
        sa.Column("in_hand_before", sa.Text(), nullable=False),
        sa.Column("deaf", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "uq_weft_engines_live_node",
        "weft_engines",
        ["node"],
        unique=True,
        postgresql_where=sa.text("status = 'live'"),
        sqlite_where=sa.text("status = 'live'"),
    )

    op.create_table(
        "weft_history",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("workflow_id", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("event", sa.String(length=32), nullable=False),
        sa.Column("engine_id", sa.String(length=255), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_weft_history_at", "weft_history", ["at"], unique=False)
    op.create_index("ix_weft_history_workflow", "weft_history", ["workflow_id", "id"], unique=False)

    op.create_table(
        "weft_passes",
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("requested", sa.BigInteger(), nullable=False),
        sa.Column("skipped", sa.BigInteger(), nullable=False),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("ran_ms", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.String(length=255), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("kind"),
    )
    op.create_table(
        "weft_signals",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("workflow_id", sa.String(length=255), nullable=False),
        sa.Column("bucket", sa.SmallInteger(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("is_failure", sa.Boolean(), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=True),
        sa.Column("sent_at", sa.BigInteger(), nullable=False),
        sa.Column("trace", sa.String(length=64), nullable=True),
        sa.Column("consumed_turn", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "number"),
    )
    op.create_index(
        "ix_weft_signals_pending",
        "weft_signals",
        ["run_id", "number"],
        unique=False,
        postgresql_where=sa.text("consumed_turn IS NULL"),
        sqlite_where=sa.text("consumed_turn IS NULL"),
    )
    op.create_index("uq_weft_signals_key", "weft_signals", ["run_id", "key"], unique=True)

    op.create_table(
        "weft_store",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("store_id", sa.String(length=32), nullable=False),
        sa.Column("epoch_floor", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "weft_updates",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("workflow_id", sa.String(length=255), nullable=False),
        sa.Column("bucket", sa.SmallInteger(), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("begun", sa.Integer(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=False),
        sa.Column("trace", sa.String(length=64), nullable=True),
        sa.Column("answered_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "number"),
    )
    op.create_index(
        "ix_weft_updates_pending",
        "weft_updates",
        ["run_id", "number"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
        sqlite_where=sa.text("status = 'pending'"),
    )
    op.create_index("uq_weft_updates_key", "weft_updates", ["run_id", "key"], unique=True)
    op.create_table(
        "weft_outbox",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("workflow_id", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("next_look_witnessed", sa.BigInteger(), nullable=False),
        sa.Column("pause", sa.BigInteger(), nullable=False),
        sa.Column("sent_witnessed", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_weft_outbox_next_look", "weft_outbox", ["next_look_witnessed"], unique=False)

    op.create_table(
        "weft_aborts",
        sa.Column("engine_id", sa.String(length=255), nullable=False),
        sa.Column("task_id", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("engine_id", "task_id"),
    )
    op.create_table(
        "weft_turns",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("turn", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("workflow_id", sa.String(length=255), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("engine_id", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("committed_at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "turn"),
    )
    op.create_table(
        "weft_workflows",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("bucket", sa.SmallInteger(), nullable=False),
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("engine_id", sa.String(length=255), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("due", sa.Boolean(), nullable=False),
        sa.Column("not_before_at", sa.BigInteger(), nullable=True),
        sa.Column("dispatched_witnessed", sa.BigInteger(), nullable=True),
        sa.Column("dispatches", sa.Integer(), nullable=False),
        sa.Column("unanswered", sa.Integer(), nullable=False),
        sa.Column("attempt_open", sa.Boolean(), nullable=False),
        sa.Column("attempt_task", sa.String(length=255), nullable=True),
        sa.Column("attempt_beat", sa.BigInteger(), nullable=True),
        sa.Column("begun", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("turn_inbox", sa.BigInteger(), nullable=True),
        sa.Column("turn_began_at", sa.BigInteger(), nullable=True),
        sa.Column("inbox", sa.BigInteger(), nullable=False),
        sa.Column("waits", sa.Text(), nullable=False),
        sa.Column("waiting_since_at", sa.BigInteger(), nullable=True),
        sa.Column("next_deadline_at", sa.BigInteger(), nullable=True),
        sa.Column("end_by_at", sa.BigInteger(), nullable=True),
        sa.Column("cancelling", sa.Boolean(), nullable=False),
        sa.Column("parent_id", sa.String(length=255), nullable=True),
        sa.Column("parent_run_id", sa.String(length=32), nullable=True),
        sa.Column("parent_reply", sa.String(length=255), nullable=True),
        sa.Column("close_policy", sa.String(length=16), nullable=True),
        sa.Column("trace", sa.String(length=64), nullable=True),
        sa.Column("deposed_engine_id", sa.String(length=255), nullable=True),
        sa.Column("deposed_witnessed", sa.BigInteger(), nullable=True),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "ix_weft_workflows_deadline",
        "weft_workflows",
        ["next_deadline_at"],
        unique=False,
        postgresql_where=sa.text("next_deadline_at IS NOT NULL"),
        sqlite_where=sa.text("next_deadline_at IS NOT NULL"),
    )
    op.create_index(
        "ix_weft_workflows_end",
        "weft_workflows",
        ["end_by_at"],
        unique=False,
        postgresql_where=sa.text("end_by_at IS NOT NULL"),
        sqlite_where=sa.text("end_by_at IS NOT NULL"),
    )
    op.create_index(
        "ix_weft_workflows_parent",
        "weft_workflows",
        ["parent_run_id"],
        unique=False,
        postgresql_where=sa.text("parent_run_id IS NOT NULL"),
        sqlite_where=sa.text("parent_run_id IS NOT NULL"),
    )
    op.create_index(
        "ix_weft_workflows_due",
        "weft_workflows",
        ["id"],
        unique=False,
        postgresql_where=sa.text("due"),
        sqlite_where=sa.text("due = 1"),
    )
    op.create_index(
        "ix_weft_workflows_not_running",
        "weft_workflows",
        ["status", "id"],
        unique=False,
        postgresql_where=sa.text("status != 'running'"),
        sqlite_where=sa.text("status != 'running'"),
    )
    op.create_index("ix_weft_workflows_type", "weft_workflows", ["type", "id"], unique=False)
    op.create_index(
        "ix_weft_workflows_unowned",
        "weft_workflows",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status = 'running' AND engine_id IS NULL"),
        sqlite_where=sa.text("status = 'running' AND engine_id IS NULL"),
    )
    _insert_first_rows()


def downgrade() -> None:

    op.drop_table("weft_workflows")
    op.drop_table("weft_turns")
    op.drop_table("weft_aborts")
    op.drop_table("weft_outbox")
    op.drop_table("weft_updates")
    op.drop_table("weft_store")

    op.drop_table("weft_signals")
    op.drop_table("weft_passes")

    op.drop_table("weft_history")

    op.drop_table("weft_engines")
    op.drop_table("weft_engine_types")
    op.drop_table("weft_counters")
    op.drop_table("weft_clock")

    op.drop_table("weft_claims")


def _insert_first_rows() -> None:
    store = sa.table("weft_store", sa.column("id"), sa.column("store_id"), sa.column("epoch_floor"))
    clock = sa.table("weft_clock", sa.column("id"), sa.column("witnessed"), sa.column("advanced_at", sa.BigInteger))
    counts = ("requested", "skipped", "runs", "ran_ms")
    passes = sa.table("weft_passes", sa.column("kind"), *map(sa.column, counts))
    op.bulk_insert(store, [{"id": 1, "store_id": uuid.uuid4().hex, "epoch_floor": 0}])
    # The witnessed clock counts from its first heartbeat on, so where it starts is of no matter.
    op.bulk_insert(clock, [{"id": 1, "witnessed": 0, "advanced_at": 0}])
    kinds = ("renewal", "reclaim", "signal-poll", "update-poll", "run-once")
    op.bulk_insert(passes, [{"kind": kind, **dict.fromkeys(counts, 0)} for kind in kinds])
