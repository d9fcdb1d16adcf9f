"""An application whose workflows write down which release of the suite ran each of their turns."""

from __future__ import annotations

import os
from datetime import timedelta
from importlib.metadata import version

from celery import Celery

from weft_tasks import Turn, TurnEnd, Weft

app = Celery("releases", broker=os.environ["BROKER_URL"])
app.conf.update(
    weft_database_url=os.environ["DATABASE_URL"],
    weft_claim_ttl=3,
    weft_renew_interval=1,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)
weft = Weft(app)


@weft.workflow("permit")
def permit(turn: Turn) -> TurnEnd | None:
    turn.state.setdefault("ran on", []).append(version("weft-tasks"))
    if any(event.payload == "closed" for event in turn.take("event")):
        return turn.complete(turn.state["ran on"])
    turn.wait("event", timeout=timedelta(days=30))
    return None
