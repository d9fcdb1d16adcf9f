"""Log lines: a stable key first, then fields, then what else a person wants to know; one line for each event.

    weft.claim.lost workflow='order-1' engine=8b1f… epoch=3 turn=2 attempt=1: the commit was refused

Every line of the suite is written by `write`, under a key that stands in KEYS. The fields are also in the record's
`extra`, as `weft_event`, `weft_workflow`, `weft_epoch` and so on, for formatters that write JSON.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

PREFIX: Final = "weft_"
KEYS: Final[Mapping[str, str]] = {
    # -- claims
    "weft.claim.acquired": "an engine got a workflow that nobody held",
    "weft.claim.taken-over": "a workflow moved from an engine that is silent, stopped or deaf to another",
    "weft.claim.lost-race": "an engine, or a pass for one, tried to get a workflow, and another was first",
    "weft.claim.lost": "a commit was refused: the workflow had got another owner or another attempt",
    # -- turns
    "weft.turn.failed": "a handler raised",
    "weft.commit.unknown": "the database did not answer a commit; it is asked until it does",
    "weft.wake.discarded": "a turn message did not match its row; a few after each takeover are normal",
    "weft.message.discarded": "a message had arguments that none of ours has: somebody else writes to this Redis",
    "weft.workflow.set-aside": "a workflow's turns began too often without a commit; somebody has to retry it",
    "weft.publish.failed": "the broker did not take a message; the row sends it again",
    "weft.call.unknown": "the result backend did not say what became of a called task; a later pass asks again",
    "weft.call.recovered": "the reply of a called task had not come; a pass read its outcome from the result backend",
    "weft.call.resent": "nothing was heard of a called task for long; it was sent again",
    # -- passes
    "weft.pass.completed": "a pass that found something to do ended; a warning if it needs a look",
    "weft.pass.failed": "a pass raised, or the database did not answer it",
    "weft.pass.sink-failed": "a receiver of a pass's result raised",
    "weft.pass.no-thread": "a tick was left out because the process got no further thread",
    "weft.tidying.failed": "what follows a reclaim pass raised; the next one tries again",
    # -- engines
    "weft.engine.started": "a worker is an engine from now on",
    "weft.engine.predecessor": "one under the same node name did not stop; it is waited for, then counts as stopped",
    "weft.engine.draining": "an engine stops, or was told to: it takes nothing new and releases what is idle",
    "weft.engine.told-to-drain": "somebody gave `weft drain`: it takes no new workflows until it is started again",
    "weft.engine.stopped": "an engine has released everything and marked itself stopped",
    "weft.engine.stop-unknown": "the database did not answer an engine that stops; silence tells it after T + G",
    "weft.engine.gone": "an engine found its row gone or stopped, and registers anew",
    "weft.engine.refused": "an engine may not register anew: its node name is taken; the worker stops",
    "weft.heart.missed": "the database did not take a heartbeat; an error from T on",
    "weft.heart.back": "a heartbeat after some that were missed",
    "weft.heart.failed": "a heartbeat raised: a defect",
    "weft.health.failed": "a file for probes could not be written or removed",
    # -- processes
    "weft.broker.not-closed": "a broken connection to the broker could not be closed; the worker connects again",
    "weft.start.refused": "a worker or beat does not start: wrong settings, no schema, a pool that is not supported",
    "weft.lock-server.warning": "the lock server works, and is set up in a way that can lose something",
    "weft.sink.failed": "a receiver of events raised: a defect, or a receiver of yours",
    # -- metrics
    "weft.counters.unknown": "the database did not answer while counts were written; a few may be missing",
    "weft.counters.failed": "writing counts raised: a defect",
    "weft.exporter.store-away": "the exporter gets no answer from the database",
    "weft.exporter.store-back": "the exporter gets answers again",
}
"""Every key there is, and what happened."""

Field: TypeAlias = str | int | float | Mapping[str, int] | None
NO_FIELDS: Final[Mapping[str, Field]] = MappingProxyType({})

REFUSED: Final = {f"{PREFIX}event": "weft.start.refused"}
"""The `extra` of the one line that a worker or beat leaves that does not start; it begins with `weft:`."""

_BARE = re.compile(r"[\w.,:@%+/-]+", re.ASCII)
_QUOTED = frozenset({"workflow", "error", "what"})
"""What users and others wrote: in quotes even where it needs none, so that a search finds it."""


def write(
    logger: logging.Logger,
    level: int,
    key: str,
    fields: Mapping[str, Field] = NO_FIELDS,
    *,
    note: str = "",
    exc_info: bool = False,
) -> None:
    """Write the line of one event. A field that is None is left out; one that is a mapping shows its own fields.

    Texts that could break the line, or look like another field, are shown as Python writes them: control characters,
    line breaks and whatever is not printable escaped.
    """
    if not logger.isEnabledFor(level):
        return
    given = {name: value for name, value in fields.items() if value is not None}
    shown = [f"{name}={_shown(name, value)}" for name, value in _flat(given)]
    extra = {f"{PREFIX}event": key, **{PREFIX + name: value for name, value in given.items()}}
    # The key is the message and the rest its argument: what collects errors groups them by the message.
    rest = "".join(f" {field}" for field in shown) + (f": {note}" if note else "")
    logger.log(level, f"{key}%s", rest, exc_info=exc_info, extra=extra, stacklevel=2)


def _flat(fields: Mapping[str, Field]) -> list[tuple[str, str | int | float | None]]:
    flat: list[tuple[str, str | int | float | None]] = []
    for name, value in fields.items():
        flat.extend(value.items() if isinstance(value, Mapping) else [(name, value)])
    return flat


def _shown(name: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return text if name not in _QUOTED and _BARE.fullmatch(text) else repr(text)
