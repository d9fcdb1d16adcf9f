"""`list` and `show`: workflows, and one of them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from weft_tasks.celery_host.cli.parameters import DURATION
from weft_tasks.celery_host.cli.suite import Failure, with_suite

if TYPE_CHECKING:
    from weft_tasks.celery_host.cli.output import Output, Part
    from weft_tasks.model import WorkflowInfo
    from weft_tasks.store.inspection import Inspection
    from weft_tasks.weft import Weft

STATUSES = ("running", "suspended", "completed", "failed", "cancelled", "terminated", "timed-out", "set-aside")


@click.command("list")
@click.option("--type", "type_name", metavar="TYPE", help="Only workflows of this type.")
@click.option("--status", type=click.Choice(STATUSES), help="Only those in this status.")
@click.option("--engine", metavar="NODE", help="Only those that this engine holds: its node name or its id.")
@click.option(
    "--older-than", type=DURATION, metavar="DURATION", help="Only those started longer ago, such as 2h or 3d."
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="ID", help="Begin behind this id: the next page.")
@with_suite
def list_(
    suite: Weft,
    output: Output,
    type_name: str | None,
    status: str | None,
    engine: str | None,
    older_than: timedelta | None,
    limit: int,
    after: str | None,
) -> None:
    """List workflows in the order of their ids, one page at a time.

    \b
    celery -A APP weft list --status set-aside
    celery -A APP weft list --type order --older-than 3d --limit 200
    """
    from weft_tasks.celery_host.cli.output import Table
    from weft_tasks.celery_host.cli.rows import moment, status_words, waits_words

    nodes = {known.id: known.node for known in suite.store.engines.list()}
    found = suite.list(
        type=type_name,
        status=status,
        engine_id=None if engine is None else _engine_id(engine, nodes),
        older_than=older_than,
        after=after,
        limit=limit,
    )
    next_after = found[-1].id if len(found) == limit else None
    rows = [
        (
            info.id,
            info.type,
            status_words(info),
            None if info.engine_id is None else nodes.get(info.engine_id, info.engine_id),
            info.turn,
            waits_words(info),
            info.pending_signals + info.pending_updates,
            info.created_at,
        )
        for info in found
    ]
    columns = ("id", "type", "status", "engine", "turn", "waits for", "pending", "started")
    document = {
        "workflows": [
            {
                **_summary(info),
                "node": nodes.get(info.engine_id or ""),
                "created_at": moment(info.created_at),
            }
            for info in found
        ],
        "next_after": next_after,
    }
    output.show(document, Table(title="Workflows", columns=columns, rows=rows))
    if next_after is not None and not output.as_json:
        output.note(f"There may be more: --after {next_after!r}")


def _engine_id(wanted: str, nodes: dict[str, str]) -> str:
    """The id of the newest engine under a node name; an id is itself, also of an engine long gone."""
    if "@" not in wanted:
        return wanted
    ids = [engine_id for engine_id, node in nodes.items() if node == wanted]
    if not ids:
        known = ", ".join(sorted(set(nodes.values()))) or "none"
        raise Failure(f"no engine is known under the node name {wanted!r} (known: {known})")
    return ids[-1]


def _summary(info: WorkflowInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "type": info.type,
        "version": info.version,
        "status": info.status.value,
        "cancelling": info.is_cancelling,
        "engine": info.engine_id,
        "epoch": info.epoch,
        "turn": info.turn,
        "due": info.is_due,
        "waits": [wait.name for wait in info.waits],
        "pending_signals": info.pending_signals,
        "pending_updates": info.pending_updates,
    }


@click.command()
@click.argument("id")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="How many turns, entries of the history, and waiting items at most.",
)
@with_suite
def show(suite: Weft, output: Output, id: str, limit: int) -> None:
    """Show one workflow, and why it is where it is.

    Its state, owner, epoch and waits; the signals and updates that no turn has taken yet; its latest turns (which
    engine ran them, under which epoch, for how long); and its history: who took it over or gave it up and for what
    reason, commits that were refused, handlers that raised, and what was done from outside. The history of an id goes
    back over its earlier runs. Turns and history are kept for `weft_history_retention`.
    """
    found = suite.inspect(id, limit=limit)
    output.show(_document(found), *_parts(found))


# -- parts of `show`


def _parts(found: Inspection) -> list[Part]:
    from weft_tasks.celery_host.cli.history import change_row
    from weft_tasks.celery_host.cli.output import Facts, Table
    from weft_tasks.celery_host.cli.printable import printable_json
    from weft_tasks.celery_host.cli.rows import status_words
    from weft_tasks.results import reason_in

    info = found.info
    facts: list[tuple[str, object]] = [
        ("type", f"{info.type} version {info.version}"),
        ("status", status_words(info)),
        ("error", None if info.error is None else reason_in(info.error)),
        ("result", printable_json(info.result) if info.status.value == "completed" else None),
        ("owner", _owner_words(found)),
        ("epoch", info.epoch),
        ("turn", _turn_words(found)),
        ("run id", info.run_id),
        ("parent", info.parent_id),
        ("started", info.created_at),
        ("changed", info.updated_at),
        ("ended", info.ended_at),
        ("ends by itself", found.ends_by),
        ("input", printable_json(info.input)),
        ("state", printable_json(info.state)),
    ]
    waits = [
        (wait.name or "(a time)", wait.deadline, None if wait.deadline is None else wait.deadline - found.now)
        for wait in info.waits
    ]
    pending = [(item.number, item.kind, item.name, item.sent_at, item.key) for item in found.pending]
    turns = [
        (
            turn.turn,
            turn.began_at,
            turn.committed_at - turn.began_at,
            turn.node or turn.engine_id,
            turn.epoch,
            turn.outcome,
        )
        for turn in found.turns
    ]
    history = [change_row(entry, info.run_id) for entry in found.history]
    parts: list[Part] = [Facts(title=info.id, facts=facts)]
    if not info.status.is_ended:
        parts.append(Table(title="Waits for", columns=("signal", "until", "in"), rows=waits, empty="nothing"))
        columns = ("number", "what", "name", "sent", "key")
        total = info.pending_signals + info.pending_updates
        parts.append(
            Table(title=f"Not taken yet: {total}" if total else "Not taken yet", columns=columns, rows=pending)
        )
    parts.append(
        Table(title="Latest turns", columns=("turn", "began", "took", "engine", "epoch", "outcome"), rows=turns)
    )
    parts.append(Table(title="History", columns=("at", "event", "engine", "epoch", "why"), rows=history))
    return parts


def _owner_words(found: Inspection) -> object:
    from weft_tasks.celery_host.cli.output import Marked, Mood, duration_of

    owner = found.owner
    if owner is None:
        return None if found.info.status.is_ended else Marked("nobody", Mood.ODD)
    if owner.node is None or owner.silence_ms is None:
        return Marked(f"{owner.engine_id}, of which nothing is left; the reclaim pass moves the workflow", Mood.BAD)
    since = "" if owner.claimed_at is None else f", since {_time(owner.claimed_at)}"
    silence = duration_of(timedelta(milliseconds=owner.silence_ms))
    return f"{owner.node} ({owner.engine_id}), {owner.status}, last heartbeat {silence} ago{since}"


def _turn_words(found: Inspection) -> str:
    from weft_tasks.celery_host.words import counted

    attempt, turn = found.attempt, found.info.turn
    words = [str(turn)]
    if attempt.is_open and attempt.began_at is not None:
        words.append(f"began {_time(attempt.began_at)}, attempt {attempt.begun} without a commit")
    if attempt.tries:
        words.append(f"its handler has raised {counted(attempt.tries, 'time')}")
    if attempt.not_before is not None and attempt.not_before > found.now:
        words.append(f"not before {_time(attempt.not_before)}")
    if found.info.is_due and attempt.dispatches:
        words.append(f"sent again {counted(attempt.dispatches, 'time')}, not begun")
    return ", ".join(words)


def _time(time: Any) -> str:
    from weft_tasks.celery_host.cli.output import text_of

    return text_of(time)


def _document(found: Inspection) -> dict[str, Any]:
    from weft_tasks.celery_host.cli.history import change_json
    from weft_tasks.celery_host.cli.rows import moment, seconds

    info, owner, attempt = found.info, found.owner, found.attempt
    return {
        **_summary(info),
        "run_id": info.run_id,
        "waits": [{"name": wait.name, "deadline": moment(wait.deadline)} for wait in info.waits],
        "state": info.state,
        "input": info.input,
        "result": info.result,
        "error": info.error,
        "parent": info.parent_id,
        "created_at": moment(info.created_at),
        "updated_at": moment(info.updated_at),
        "ended_at": moment(info.ended_at),
        "ends_by": moment(found.ends_by),
        "now": moment(found.now),
        "owner": None
        if owner is None
        else {
            "engine": owner.engine_id,
            "node": owner.node,
            "status": owner.status,
            "silence_s": seconds(owner.silence_ms),
            "claimed_at": moment(owner.claimed_at),
            "expires_at": moment(owner.expires_at),
        },
        "attempt": {
            "open": attempt.is_open,
            "began_at": moment(attempt.began_at),
            "begun": attempt.begun,
            "tries": attempt.tries,
            "not_before": moment(attempt.not_before),
            "dispatches": attempt.dispatches,
        },
        "pending": [
            {
                "number": item.number,
                "kind": item.kind,
                "name": item.name,
                "key": item.key,
                "sent_at": moment(item.sent_at),
            }
            for item in found.pending
        ],
        "turns": [
            {
                "turn": turn.turn,
                "attempt": turn.attempt,
                "engine": turn.engine_id,
                "node": turn.node,
                "epoch": turn.epoch,
                "began_at": moment(turn.began_at),
                "committed_at": moment(turn.committed_at),
                "seconds": (turn.committed_at - turn.began_at).total_seconds(),
                "outcome": turn.outcome,
            }
            for turn in found.turns
        ],
        "history": [change_json(entry, info.run_id) for entry in found.history],
    }
