"""The tables. Columns named `…_at` are milliseconds of the database's clock; `…_witnessed` of the witnessed clock.

`weft_workflows` carries the fence: engine, epoch, turn and attempt stand in one row, so one conditional statement
decides (O1). `weft_claims` is the lease record beside it, written in the same transactions; it is a narrow table of its
own because renewal rewrites all of it every interval.

`bucket` follows from the workflow's id. It stands in every table that a pass lists from, so that the pass of a shard
reads its own rows without a join. No index has it: whoever leaves `weft_shards` at one would pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Double,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    and_,
    literal_column,
)
from sqlalchemy.engine.default import DefaultExecutionContext

from weft_tasks.shards import Shard, bucket_of

metadata = MetaData()

Id = String(255)
Trace = String(64)
"""A W3C `traceparent`: the span in which something was sent, if one was being recorded then."""


def _bucket(*, by: str) -> Column[int]:
    """The bucket of the workflow whose id is in the column `by`. Nobody who inserts a row needs to think of it."""

    def of_new_row(context: DefaultExecutionContext) -> int:
        parameters: Mapping[str, str] = context.get_current_parameters()  # type: ignore[no-untyped-call]
        return bucket_of(parameters[by])

    return Column("bucket", SmallInteger, nullable=False, default=of_new_row)


def in_shard(bucket: Column[int], shard: Shard) -> tuple[ColumnElement[bool], ...]:
    """The conditions on a row of the shard; none for the whole store."""
    return () if shard.is_whole else (bucket >= shard.buckets.start, bucket < shard.buckets.stop)


store = Table(
    "weft_store",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    # Names this store in lock keys, so that two deployments on one Redis never share a lock.
    Column("store_id", String(32), nullable=False),
    # The highest epoch ever purged: new rows start here, so an id used again never sees an old epoch (O7).
    Column("epoch_floor", BigInteger, nullable=False),
)

clock = Table(
    "weft_clock",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("witnessed", BigInteger, nullable=False),
    Column("advanced_at", BigInteger, nullable=False),
)

engines = Table(
    "weft_engines",
    metadata,
    Column("id", Id, primary_key=True),
    Column("node", Id, nullable=False),
    Column("status", String(16), nullable=False),
    Column("host", Id, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
    Column("heartbeat_witnessed", BigInteger, nullable=False),
    # Counts heartbeats: an attempt begun at beat n is judged by beats n + 1 and n + 2 (O9).
    Column("beat", BigInteger, nullable=False),
    Column("free_slots", Integer, nullable=False),
    # JSON lists of the Celery task ids of the turns that the latest heartbeat, and the one before it, named.
    Column("in_hand", Text, nullable=False),
    Column("in_hand_before", Text, nullable=False),
    Column("deaf", Boolean(create_constraint=False), nullable=False),
)
# One live engine per node name (O12). A draining one may overlap with its successor.
Index(
    "uq_weft_engines_live_node",
    engines.c.node,
    unique=True,
    postgresql_where=engines.c.status == "live",
    sqlite_where=engines.c.status == "live",
)

engine_types = Table(
    "weft_engine_types",
    metadata,
    Column("engine_id", Id, primary_key=True),
    Column("type", Id, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
)

workflows = Table(
    "weft_workflows",
    metadata,
    Column("id", Id, primary_key=True),
    Column("type", Id, nullable=False),
    Column("version", Integer, nullable=False),
    _bucket(by="id"),
    Column("run_id", String(32), nullable=False),
    Column("status", String(16), nullable=False),
    # -- the fence
    Column("engine_id", Id),
    Column("epoch", BigInteger, nullable=False),
    Column("turn", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    # -- due and its messages
    Column("due", Boolean(create_constraint=False), nullable=False),
    Column("not_before_at", BigInteger),
    Column("dispatched_witnessed", BigInteger),
    # Dispatches since the last begin: all of them (for backing off), and those that count towards deafness (O12).
    Column("dispatches", Integer, nullable=False),
    Column("unanswered", Integer, nullable=False),
    # -- the open attempt, and what the turn was given at its first begin
    Column("attempt_open", Boolean(create_constraint=False), nullable=False),
    Column("attempt_task", String(255)),
    Column("attempt_beat", BigInteger),
    Column("begun", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("turn_inbox", BigInteger),
    Column("turn_began_at", BigInteger),
    # -- what it waits for
    # Counts everything ever addressed to this run; a signal's number is the count at its arrival.
    Column("inbox", BigInteger, nullable=False),
    Column("waits", Text, nullable=False),
    Column("waiting_since_at", BigInteger),
    Column("next_deadline_at", BigInteger),
    # -- how it ends by itself: the bound of a cancel's last turn, or else the workflow's own timeout
    Column("end_by_at", BigInteger),
    Column("cancelling", Boolean(create_constraint=False), nullable=False),
    # -- the workflow that started it, where its result goes, and what becomes of it when that one ends
    Column("parent_id", Id),
    Column("parent_run_id", String(32)),
    Column("parent_reply", Id),
    Column("close_policy", String(16)),
    # Who started it.
    Column("trace", Trace),
    # -- the last takeover, for the cooldown of O11
    Column("deposed_engine_id", Id),
    Column("deposed_witnessed", BigInteger),
    # -- the user's
    Column("input", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("result", Text),
    Column("error", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
)
# A constant in the statement's text, not a parameter: only then does either planner use the partial index below.
is_running = workflows.c.status == literal_column("'running'")
_is_unowned = and_(is_running, workflows.c.engine_id.is_(None))
_has_deadline = workflows.c.next_deadline_at.is_not(None)
# SQLite compares conditions as they are written, and SQLAlchemy writes `due = 1` in its queries.
Index("ix_weft_workflows_due", workflows.c.id, postgresql_where=workflows.c.due, sqlite_where=literal_column("due = 1"))
Index("ix_weft_workflows_unowned", workflows.c.id, postgresql_where=_is_unowned, sqlite_where=_is_unowned)
Index(
    "ix_weft_workflows_deadline",
    workflows.c.next_deadline_at,
    postgresql_where=_has_deadline,
    sqlite_where=_has_deadline,
)
_ends_by_itself = workflows.c.end_by_at.is_not(None)
Index("ix_weft_workflows_end", workflows.c.end_by_at, postgresql_where=_ends_by_itself, sqlite_where=_ends_by_itself)
_is_child = workflows.c.parent_run_id.is_not(None)
Index("ix_weft_workflows_parent", workflows.c.parent_run_id, postgresql_where=_is_child, sqlite_where=_is_child)
# No plain index on the status: SQLite would rather read all that run through it than the few that are due.
is_not_running = workflows.c.status != literal_column("'running'")
Index(
    "ix_weft_workflows_not_running",
    workflows.c.status,
    workflows.c.id,
    postgresql_where=is_not_running,
    sqlite_where=is_not_running,
)
Index("ix_weft_workflows_type", workflows.c.type, workflows.c.id)

claims = Table(
    "weft_claims",
    metadata,
    Column("workflow_id", Id, primary_key=True),
    Column("engine_id", Id, nullable=False),
    _bucket(by="workflow_id"),
    Column("epoch", BigInteger, nullable=False),
    Column("claimed_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    # Half of each page stays free and no index covers expires_at: then a set-based renewal rewrites rows in place. The
    # first migration has what that is worth.
    postgresql_with={"fillfactor": 50},
)
Index("ix_weft_claims_engine", claims.c.engine_id)

signals = Table(
    "weft_signals",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("workflow_id", Id, nullable=False),
    _bucket(by="workflow_id"),
    Column("name", Id, nullable=False),
    Column("payload", Text, nullable=False),
    # A reply that tells of a failure: of a called task or of a child.
    Column("is_failure", Boolean(create_constraint=False), nullable=False),
    Column("key", Id),
    Column("sent_at", BigInteger, nullable=False),
    Column("trace", Trace),
    # The turn whose commit consumed it: a mark on the row, never a cursor.
    Column("consumed_turn", BigInteger),
)
_is_pending = signals.c.consumed_turn.is_(None)
Index(
    "ix_weft_signals_pending",
    signals.c.run_id,
    signals.c.number,
    postgresql_where=_is_pending,
    sqlite_where=_is_pending,
)
Index("uq_weft_signals_key", signals.c.run_id, signals.c.key, unique=True)

updates = Table(
    "weft_updates",
    metadata,
    Column("run_id", String(32), primary_key=True),
    # Drawn from the run's inbox, like a signal's.
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("workflow_id", Id, nullable=False),
    _bucket(by="workflow_id"),
    Column("key", Id, nullable=False),
    Column("name", Id, nullable=False),
    Column("payload", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("answer", Text),
    # Turns that began with it and did not commit: one that kills every turn must not block those behind it.
    Column("begun", Integer, nullable=False),
    Column("sent_at", BigInteger, nullable=False),
    Column("trace", Trace),
    Column("answered_at", BigInteger),
)
is_unanswered = updates.c.status == literal_column("'pending'")
Index(
    "ix_weft_updates_pending",
    updates.c.run_id,
    updates.c.number,
    postgresql_where=is_unanswered,
    sqlite_where=is_unanswered,
)
Index("uq_weft_updates_key", updates.c.run_id, updates.c.key, unique=True)

# What a commit owes to others: tasks to send, and replies to parents. A row goes when its debt is paid; that of a task
# whose reply is wanted, when the reply has come.
outbox = Table(
    "weft_outbox",
    metadata,
    Column("id", Id, primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("workflow_id", Id, nullable=False),
    Column("run_id", String(32), nullable=False),
    Column("body", Text, nullable=False),
    # The one who commits it sends it at once. When a pass looks at it next, and the pause that follows this look.
    Column("next_look_witnessed", BigInteger, nullable=False),
    Column("pause", BigInteger, nullable=False),
    # When the broker took it, of a call that awaits its reply.
    Column("sent_witnessed", BigInteger),
    Column("created_at", BigInteger, nullable=False),
)
Index("ix_weft_outbox_next_look", outbox.c.next_look_witnessed)

# Turns that were fenced off while they ran, until their engine has ended them.
aborts = Table(
    "weft_aborts",
    metadata,
    Column("engine_id", Id, primary_key=True),
    Column("task_id", Id, primary_key=True),
)

turns = Table(
    "weft_turns",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("turn", BigInteger, primary_key=True, autoincrement=False),
    Column("workflow_id", Id, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("engine_id", Id, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("began_at", BigInteger, nullable=False),
    Column("committed_at", BigInteger, nullable=False),
    Column("outcome", String(16), nullable=False),
)

history = Table(
    "weft_history",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("workflow_id", Id, nullable=False),
    Column("run_id", String(32), nullable=False),
    Column("event", String(32), nullable=False),
    Column("engine_id", Id),
    Column("epoch", BigInteger, nullable=False),
    Column("detail", Text, nullable=False),
)
Index("ix_weft_history_workflow", history.c.workflow_id, history.c.id)
Index("ix_weft_history_at", history.c.at)

passes = Table(
    "weft_passes",
    metadata,
    # The pass, or a shard's: `renewal[2/4]`.
    Column("kind", String(32), primary_key=True),
    Column("began_at", BigInteger),
    Column("finished_at", BigInteger),
    # Raised by whoever wants a pass at once (O6): the pass that runs now is followed by another.
    Column("requested", BigInteger, nullable=False),
    Column("skipped", BigInteger, nullable=False),
    # Of all passes that ended: how many, and how long they took together.
    Column("runs", BigInteger, nullable=False),
    Column("ran_ms", BigInteger, nullable=False),
    # Of the latest pass: who ran it (its lock token) and what came of it, as JSON.
    Column("token", String(255)),
    Column("result", Text),
)

# What the processes of the fleet have counted, one row for each series. Each process adds what it counted since it last
# did, so the rows are right however processes come and go.
counters = Table(
    "weft_counters",
    metadata,
    Column("name", String(64), primary_key=True),
    # A JSON object, its keys sorted.
    Column("labels", Text, primary_key=True),
    Column("value", Double, nullable=False),
)
