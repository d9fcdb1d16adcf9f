"""What a pass does when the lock server gives no answer."""

from __future__ import annotations

from datetime import timedelta

from weft_tasks.results import PassKind


def may_run_unlocked(kind: PassKind, *, since_last_begin: timedelta | None, claim_ttl: timedelta) -> bool:
    """Whether a pass may begin although its lock is unknown: renewal always, another after one claim TTL of silence.

    `since_last_begin` is the age, by the store's clock, of the last begin of this kind anywhere; None if none is on
    record. While the lock server is away, each of the other passes thus begins about once per TTL, on whichever worker
    comes first: claims live on, the rest goes slowly. Pure. A doubled pass is harmless by the store's own conditions.
    """
    if kind is PassKind.RENEWAL or since_last_begin is None:
        return True
    # A begin in the future means that the database's clock was set back. Waiting for it could take hours.
    return not timedelta(0) <= since_last_begin < claim_ttl
