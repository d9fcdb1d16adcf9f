"""Three requests: one is approved after a reminder, one rejected, one forgotten. Two people get a no for an answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from examples.approval.app import weft
from weft_tasks import UpdateRejected, WorkflowHandle
from weft_tasks.testing.waiting import wait_until

RUN = uuid4().hex[:6]
APPROVERS = ["ann", "ben", "cem"]


def request(subject: str, expires_after_s: int) -> WorkflowHandle:
    of = {"subject": subject, "requester": "dan", "approvers": APPROVERS, "expires_after_s": expires_after_s}
    return weft.start("approval", f"{RUN}-{subject}", of)


def decide(approval: WorkflowHandle, update: str, **decision: Any) -> None:
    try:
        answer = approval.update(update, decision).result(timeout=60)
    except UpdateRejected as refusal:
        answer = f"refused, {refusal.reason}"
    print(f"{approval.id}: {decision['by']} says {update}: {answer}", flush=True)


def main() -> None:
    laptop, chair, yacht = request("laptop", 300), request("chair", 5), request("yacht", 300)
    decide(laptop, "approve", by="ann")
    decide(laptop, "approve", by="ann")
    decide(laptop, "approve", by="dan")
    decide(yacht, "reject", by="cem", reason="too long")
    print("... nobody does anything until the reminders have gone out", flush=True)
    wait_until(lambda: laptop.describe().state.get("reminders"), what="a reminder", timeout=timedelta(seconds=60))
    decide(laptop, "approve", by="ben")
    for approval in (laptop, yacht, chair):
        print(f"{approval.id}: {approval.result(timeout=60)}", flush=True)


if __name__ == "__main__":
    main()
