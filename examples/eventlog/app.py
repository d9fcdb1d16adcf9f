"""The application of the demo: each case of an event log is a workflow, each event of it a signal.

celery -A examples.eventlog.app worker -n engine-1@%h -Q weft.turns
"""

from __future__ import annotations

import time

from celery import Celery

from weft_tasks import Turn, Weft
from weft_tasks.workflows.turn import TurnEnd

app = Celery("eventlog")
app.config_from_object("celeryconfig")
# Small, so that nobody waits long: T + G + R is 4 + 2 + 1 seconds here, and a dead engine's workflows move within that
# and one reclaim pass.
app.conf.weft_claim_ttl = 4
app.conf.weft_renew_interval = 1

weft = Weft(app)


@weft.workflow("case")
def case(turn: Turn) -> TurnEnd | None:
    """Note the events of a case in the order of their signals, and complete once all have come.

    The input says how many there are, and how many milliseconds the work on one takes.
    """
    steps = turn.state.setdefault("steps", [])
    for event in turn.take("event"):
        time.sleep(turn.input["work_ms"] / 1000)
        steps.append([event.number, event.payload])
    if len(steps) >= turn.input["events"]:
        return turn.complete(steps)
    turn.wait("event")
    return None
