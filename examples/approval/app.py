"""An expense needs two approvers. They are reminded until they decide, and it expires if they do not.

celery -A examples.approval.app worker
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from celery import Celery
from celery.utils.log import get_task_logger

from weft_tasks import Turn, TurnEnd, Weft

app = Celery("approval")
app.config_from_object("celeryconfig")
# Short, so that nobody waits long. The defaults are 5 and 30 seconds.
app.conf.update(weft_renew_interval=1, weft_claim_ttl=4)
weft = Weft(app)
logger = get_task_logger(__name__)

NEEDED = 2
REMIND_AFTER = timedelta(seconds=2)


@app.task
def mail(to: str, text: str) -> None:
    logger.info("to %s: %s", to, text)


@weft.workflow("approval")
def approval(turn: Turn) -> TurnEnd | None:
    """Input: what it is about, who asks for it, who may approve it, and for how long. Updates are applied before this
    runs: it sees what they changed."""
    if len(_approved_by(turn)) >= NEEDED:
        turn.call(mail.s(turn.input["requester"], f"{turn.input['subject']} is approved"))
        return turn.complete({"decision": "approved", "by": _approved_by(turn)})

    if turn.number == 0:
        _mail_the_undecided(turn, "please decide on")
        turn.wait("remind", timeout=REMIND_AFTER)
        turn.wait("expire", timeout=turn.input["expires_after_s"])
        return None

    # Nobody sends these two signals: they are timers, which go on over turns that come in between.
    remind_at, expire_at = turn.deadlines["remind"], turn.deadlines["expire"]
    if turn.began_at >= expire_at:
        return turn.complete({"decision": "expired", "by": _approved_by(turn)})
    if turn.began_at >= remind_at:
        _mail_the_undecided(turn, "a reminder of")
        turn.state["reminders"] = turn.state.get("reminders", 0) + 1
        remind_at = turn.began_at + REMIND_AFTER
    turn.wait("remind", until=remind_at)
    turn.wait("expire", until=expire_at)
    return None


def may_decide(turn: Turn, decision: dict[str, Any]) -> None:
    """Whoever asked gets this error's text, and nothing has changed."""
    person = decision["by"]
    if person not in turn.input["approvers"]:
        raise PermissionError(f"{person} is no approver")
    if person in _approved_by(turn):
        raise ValueError(f"{person} has approved already")


@approval.update("approve", validator=may_decide)
def approve(turn: Turn, decision: dict[str, Any]) -> dict[str, int]:
    """The answer: how many approvals are missing. It commits together with the approval."""
    turn.state["approved_by"] = [*_approved_by(turn), decision["by"]]
    return {"missing": NEEDED - len(turn.state["approved_by"])}


@approval.update("reject", validator=may_decide)
def reject(turn: Turn, decision: dict[str, Any]) -> str:
    turn.call(mail.s(turn.input["requester"], f"{turn.input['subject']} is rejected: {decision['reason']}"))
    turn.complete({"decision": "rejected", "by": [decision["by"]], "reason": decision["reason"]})
    return "rejected"


def _mail_the_undecided(turn: Turn, text: str) -> None:
    for person in turn.input["approvers"]:
        if person not in _approved_by(turn):
            turn.call(mail.s(person, f"{text} {turn.input['subject']}"))


def _approved_by(turn: Turn) -> list[str]:
    """An update may come before the first turn, when the state is empty."""
    return list(turn.state.get("approved_by", ()))
