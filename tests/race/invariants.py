"""What must hold after every race, whatever raced (O1, O6, O9): the rules that can be read off the rows alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

from .rows import Rows


def broken(rows: Rows) -> list[str]:
    """The sentences that are not true of these rows; none if all is well."""
    return [*_ownership(rows), *_turns(rows), *_signals(rows), *_lost_wakes(rows)]


def _ownership(rows: Rows) -> Iterator[str]:
    """One holder, and the lease record beside the fence says the same."""
    held = {(w.id, w.engine_id, w.epoch) for w in rows.all("workflows") if w.engine_id is not None}
    claimed = {(c.workflow_id, c.engine_id, c.epoch) for c in rows.all("claims")}
    if held != claimed:
        yield f"weft_workflows says {sorted(held - claimed)}, weft_claims says {sorted(claimed - held)}"
    for w in rows.all("workflows"):
        if w.status != "running" and (w.engine_id is not None or w.attempt_open):
            yield f"{w.id} is {w.status}, but has engine {w.engine_id}, attempt_open {w.attempt_open}"
        if w.status not in ("running", "suspended") and w.due:
            yield f"{w.id} is {w.status}, but due"
        if w.attempt_open and w.engine_id is None:
            yield f"{w.id} has an open attempt and no engine"
        if w.attempt_open and not w.due:
            yield f"{w.id} has an open attempt but is not due: if it fails, nobody runs it again (O9)"


def _turns(rows: Rows) -> Iterator[str]:
    """Each turn committed once, and the row counts exactly those."""
    for w in rows.all("workflows"):
        committed = sorted(t.turn for t in rows.all("turns") if t.run_id == w.run_id)
        if committed != list(range(w.turn)):
            yield f"{w.id} is at turn {w.turn}, but weft_turns has {committed}"


def _signals(rows: Rows) -> Iterator[str]:
    """Numbers from the inbox, none twice; consumed by a turn that committed, or by nobody."""
    for w in rows.all("workflows"):
        of_run = [s for s in rows.all("signals") if s.run_id == w.run_id]
        for s in of_run:
            if s.number > w.inbox:
                yield f"{w.id}: signal {s.number} is not counted in the inbox {w.inbox}"
            if s.consumed_turn is not None and s.consumed_turn >= w.turn:
                yield f"{w.id}: signal {s.number} was consumed by turn {s.consumed_turn}, which has not committed"
        keys = [s.key for s in of_run if s.key is not None]
        if len(keys) != len(set(keys)):
            yield f"{w.id}: a key was taken twice: {keys}"


def _lost_wakes(rows: Rows) -> Iterator[str]:
    """O9: whoever is parked has nothing to run for."""
    for w in rows.all("workflows"):
        if w.status != "running" or w.due:
            continue
        awaited = {name for name, _ in json.loads(w.waits)}
        pending = {s.name for s in rows.all("signals") if s.run_id == w.run_id and s.consumed_turn is None}
        if awaited & pending:
            yield f"{w.id} is parked on {sorted(awaited)} with {sorted(awaited & pending)} unconsumed"
        if any(u.run_id == w.run_id and u.answered_at is None for u in rows.all("updates")):
            yield f"{w.id} is parked with an update that nobody answers"
