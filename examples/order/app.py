"""An order is paid in time or cancelled, packed by the warehouse, and shipped. Cancelling it gives the money back.

celery -A examples.order.app worker
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from celery import Celery
from celery.utils.log import get_task_logger

from examples.order import bank
from weft_tasks import Turn, TurnEnd, Weft

app = Celery("order")
app.config_from_object("celeryconfig")
# Short, so that nobody waits long. The defaults are 5 and 30 seconds.
app.conf.update(weft_renew_interval=1, weft_claim_ttl=4)
weft = Weft(app)
logger = get_task_logger(__name__)

PAYMENT_TIMEOUT = timedelta(seconds=15)
"""Short, to be seen, and long enough for a charge on a machine that has much else to do."""


# The tasks are ordinary ones. They can run twice, so they pass on the key, and the other side does its work once.
@app.task(autoretry_for=(ConnectionError,), retry_backoff=True, max_retries=5, throws=(bank.PaymentRefused,))
def charge(key: str, amount: int, card: str) -> str:
    receipt = bank.charge(key, amount, card)
    logger.info("%s for %s", receipt, amount)
    return receipt


@app.task(autoretry_for=(ConnectionError,), retry_backoff=True, max_retries=5)
def refund(key: str) -> None:
    bank.refund(key)
    logger.info("whatever was charged under %s", key)


@app.task(autoretry_for=(ConnectionError,), retry_backoff=True, max_retries=5)
def ship(key: str, sku: str, parcel: str) -> str:
    logger.info("%s as %s", sku, parcel)
    return f"tracking-{parcel}"


@weft.workflow("order")
def order(turn: Turn) -> TurnEnd | None:
    if turn.number == 0:
        turn.state["payment"] = turn.idempotency_key()
        turn.call(charge.s(turn.state["payment"], turn.input["amount"], turn.input["card"]), reply="charged")
        turn.wait("charged", timeout=PAYMENT_TIMEOUT)
        return None

    if turn.timed_out:
        # The charge may be under way. A refund under its key makes sure that it comes to nothing.
        turn.call(refund.s(turn.state["payment"]))
        return turn.complete(_ended("cancelled", "not paid in time"))

    for reply in turn.take("charged"):
        if reply.is_failure:
            return turn.complete(_ended("refused", reply.payload["message"]))
        turn.state["receipt"] = reply.payload

    for packed in turn.take("packed", limit=1):
        turn.state["parcel"] = packed.payload
        turn.call(ship.s(turn.idempotency_key(), turn.input["sku"], packed.payload), reply="shipped")

    for reply in turn.take("shipped"):
        if reply.is_failure:
            return turn.fail(f"paid and not shipped: {reply.payload['message']}")
        return turn.complete({"status": "shipped", "receipt": turn.state["receipt"], "tracking": reply.payload})

    turn.wait("shipped" if "parcel" in turn.state else "packed")
    return None


@order.on_cancel
def give_the_money_back(turn: Turn) -> None:
    """The last turn of a cancelled order. Without a payment it was cancelled before its first turn."""
    if "payment" in turn.state:
        turn.call(refund.s(turn.state["payment"]))


def _ended(status: str, reason: str) -> dict[str, Any]:
    return {"status": status, "reason": reason}
