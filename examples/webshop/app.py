"""The Celery side of the shop: an order waits for its payment, then it is delivered.

celery -A examples.webshop.app worker
"""

from __future__ import annotations

from datetime import timedelta

from celery import Celery
from celery.utils.log import get_task_logger

from weft_tasks import Turn, TurnEnd, Weft

app = Celery("webshop")
app.config_from_object("celeryconfig")
# Short, so that nobody waits long. The defaults are 5 and 30 seconds.
app.conf.update(weft_renew_interval=1, weft_claim_ttl=4)
weft = Weft(app)
logger = get_task_logger(__name__)


@app.task
def deliver(sku: str, quantity: int) -> str:
    logger.info("%s x %s", quantity, sku)
    return f"{quantity} x {sku} on the way"


@weft.workflow("webshop.order")
def order(turn: Turn) -> TurnEnd | None:
    for payment in turn.take("paid", limit=1):
        turn.state["paid_by"] = payment.payload
        turn.call(deliver.s(turn.input["sku"], turn.input["quantity"]), reply="delivered")

    for reply in turn.take("delivered"):
        if reply.is_failure:
            return turn.fail(reply.payload["message"])
        return turn.complete({"delivery": reply.payload, "paid_by": turn.state["paid_by"]})

    if turn.timed_out:
        return turn.complete({"cancelled": "not paid"})

    if "paid_by" in turn.state:
        turn.wait("delivered")
    else:
        turn.wait("paid", timeout=timedelta(days=7))
    return None
