"""The application under load: a workflow that notes, in its state, every signal and update it is given."""

from __future__ import annotations

from typing import Any

from celery import Celery

from weft_tasks import Turn, TurnEnd, Weft

NAMES = ("a", "b")

app = Celery("exactly_once")
app.config_from_object("celeryconfig")
app.conf.weft_claim_ttl = 4
app.conf.weft_renew_interval = 1

weft = Weft(app)


@weft.workflow("collector")
def collector(turn: Turn) -> TurnEnd | None:
    """Keeps payloads by signal name in the order in which turns were given them."""
    for name in NAMES:
        turn.state.setdefault(name, []).extend(signal.payload for signal in turn.take(name))
    if turn.take("finish"):
        return turn.complete(None)
    turn.wait(*NAMES, "finish")
    return None


@collector.update("add")
def add(turn: Turn, key: str) -> int:
    """Notes the update and answers with how many there are now."""
    added: list[Any] = turn.state.setdefault("added", [])
    added.append(key)
    return len(added)
