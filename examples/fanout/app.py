"""A stocktaking: one child workflow for each shop, side by side, and a summary once all have ended.

celery -A examples.fanout.app worker
"""

from __future__ import annotations

from datetime import timedelta

from celery import Celery
from celery.utils.log import get_task_logger

from weft_tasks import Turn, TurnEnd, Weft

app = Celery("fanout")
app.config_from_object("celeryconfig")
# Short, so that nobody waits long. The defaults are 5 and 30 seconds.
app.conf.update(weft_renew_interval=1, weft_claim_ttl=4)
weft = Weft(app)
logger = get_task_logger(__name__)

STOCK = {"north": 120, "east": 80, "south": 310, "west": 45}
LONGEST = timedelta(minutes=1)


@app.task
def read_stock(shop: str) -> int:
    logger.info("%s", shop)
    return STOCK[shop]


@weft.workflow("stocktaking")
def stocktaking(turn: Turn) -> TurnEnd | None:
    if turn.number == 0:
        for shop in turn.input["shops"]:
            # They start with this turn's commit, and may run on any engine.
            turn.start_child("count", {"shop": shop}, id=_child_id(turn, shop), reply="counted", timeout=LONGEST)

    counted, failed = turn.state.setdefault("counted", {}), turn.state.setdefault("failed", {})
    for reply in turn.take("counted"):
        if reply.is_failure:
            # It failed, was cancelled or terminated, or took too long: `status` says which, `error` why.
            failed[_shop_of(turn, reply.payload["child"])] = reply.payload["status"]
        else:
            counted[reply.payload["shop"]] = reply.payload["items"]

    if len(counted) + len(failed) == len(turn.input["shops"]):
        return turn.complete({"total": sum(counted.values()), "counted": counted, "failed": failed})
    turn.wait("counted")
    return None


@weft.workflow("count")
def count(turn: Turn) -> TurnEnd | None:
    shop = turn.input["shop"]
    if turn.number == 0:
        turn.call(read_stock.s(shop), reply="read")
    for reply in turn.take("read"):
        if reply.is_failure:
            return turn.fail(f"{shop}: {reply.payload['message']}")
        return turn.complete({"shop": shop, "items": reply.payload})
    turn.wait("read")
    return None


def _child_id(turn: Turn, shop: str) -> str:
    return f"{turn.workflow_id}/{shop}"


def _shop_of(turn: Turn, child_id: str) -> str:
    return child_id.removeprefix(f"{turn.workflow_id}/")
