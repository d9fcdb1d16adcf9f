"""The names by which Celery knows the suite."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from weft_tasks.results import PassKind

RUN_TURN: Final = "weft.run_turn"
RUN_ONCE: Final = "weft.run_once"
REPLY: Final = "weft.reply"
REPLY_FAILURE: Final = "weft.reply_failure"
TASK_OF_PASS: Final[Mapping[PassKind, str]] = MappingProxyType(
    {
        PassKind.RENEWAL: "weft.renew_claims",
        PassKind.RECLAIM: "weft.reclaim_claims",
        PassKind.SIGNAL_POLL: "weft.poll_signals",
        PassKind.UPDATE_POLL: "weft.poll_updates",
    }
)
MAINTENANCE_QUEUE: Final = "weft.maintenance"
TURNS_QUEUE: Final = "weft.turns"
ENGINE_QUEUE_PREFIX: Final = "weft.engine."
