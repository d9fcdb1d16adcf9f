"""Five customers: one gets a parcel, one has a bad card, one pays too late, and two change their minds."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from examples.order.app import weft
from weft_tasks import WorkflowHandle, WorkflowNotCompleted
from weft_tasks.testing.waiting import wait_until

RUN = uuid4().hex[:6]
PATIENCE = timedelta(seconds=60)


def place(customer: str, card: str) -> WorkflowHandle:
    return weft.start("order", f"{RUN}-{customer}", {"sku": "A-7", "amount": 20, "card": card})


def show(order: WorkflowHandle) -> None:
    try:
        print(f"{order.id}: {order.result(timeout=60)}")
    except WorkflowNotCompleted as ending:
        print(f"{order.id}: {ending.status}")


def main() -> None:
    anna, bela, cleo = place("anna", "good"), place("bela", "declined"), place("cleo", "slow")
    dora, emil = place("dora", "good"), place("emil", "slow")
    # The warehouse packs. A signal that comes too early is kept; the key makes it safe to send again.
    anna.signal("packed", "parcel-77", key="packed")
    anna.signal("packed", "parcel-77", key="packed")
    wait_until(lambda: "receipt" in dora.describe().state, what="dora's payment", timeout=PATIENCE)
    weft.cancel(dora.id)
    weft.cancel(emil.id)
    for order in (anna, bela, cleo, dora, emil):
        show(order)


if __name__ == "__main__":
    main()
