"""Data for migrations: a piece of the life of a store, with something in every table, made through the public verbs."""

from __future__ import annotations

from datetime import timedelta

from celery import Celery
from sqlalchemy import insert

from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.store.tables import aborts
from weft_tasks.testing.bed import WorkflowBed
from weft_tasks.workflows.turn import Turn, TurnEnd

app = Celery("life", set_as_current=False)


@app.task(name="life.charge")
def charge(amount: int) -> str:
    return f"receipt for {amount}"


def order(turn: Turn) -> TurnEnd | None:
    """Pays, waits for parcels, and completes with the last."""
    if turn.number == 0:
        turn.call(charge.s(turn.input), reply="charged")
    for reply in turn.take("charged"):
        turn.state["receipt"] = reply.payload
    for parcel in turn.take("parcel", limit=1):
        turn.state.setdefault("parcels", []).append(parcel.payload)
        if parcel.payload == "last":
            return turn.complete(turn.state)
    turn.wait("charged", "parcel", timeout=timedelta(days=3))
    return None


def refuse(turn: Turn) -> TurnEnd:
    return turn.fail("not today")


def live(url: str) -> None:
    """Fill the migrated, empty database at `url`."""
    clock = ManualClock()
    store = Store.open(Settings(database_url=url), clock=clock)
    with WorkflowBed(store=(store, clock)) as bed:
        orders = bed.workflow("order")(order)
        orders.update("note")(lambda turn, payload: turn.state.update(note=payload))
        bed.workflow("refuse")(refuse)
        for id in ("parked", "completed", "owes", "suspended", "cancelled"):
            bed.start("order", id, 20)
        bed.start("refuse", "failed")
        bed.run_due()
        for call in bed.calls:
            if call.workflow_id != "owes":
                bed.reply(call, "receipt")
        bed.update("parked", "note", "fragile")
        bed.signal("completed", "parcel", "first", key="once")
        bed.signal("completed", "parcel", "last")
        bed.run_due()
        bed.signal("parked", "parcel", "nobody has taken it yet")
        bed.weft.suspend("suspended")
        bed.weft.cancel("cancelled")
        store.counters.add({("weft_turns_total", (("outcome", "committed"),)): 6})
        with store.database.transaction() as connection:
            # A turn that was fenced off while it ran: beds run none beside the caller.
            connection.execute(insert(aborts).values(engine_id="gone", task_id="t" * 32))
    store.database.dispose()
