"""The token of a held lock, `node|pid|since|uuid`: it proves ownership to the server and names the holder to people."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from weft_tasks.errors import InvalidInput

_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lock, as its token tells. A foreign token gives its text as `node`, and nothing else."""

    node: str
    pid: int | None = None
    since: datetime | None = None
    """Aware UTC, by the holder's clock: for people only, nothing is decided by it (O2)."""

    def __str__(self) -> str:
        if self.pid is None or self.since is None:
            return self.node
        return f"{self.node} (pid {self.pid}, since {self.since.isoformat(timespec='seconds')})"


def mint_token(node: str, since: datetime) -> str:
    """A token that nobody used before, for this process. `since` must be aware; raises InvalidInput if it is naive."""
    if since.tzinfo is None:
        raise InvalidInput("since", "must carry a time zone")
    return f"{node}|{os.getpid()}|{since.astimezone(UTC).isoformat()}|{uuid.uuid4().hex}"


def read_token(token: str | bytes) -> Holder:
    """The holder that a token names. Never fails: a key may carry anything, and an operator still wants to see it."""
    text = token.decode(errors="replace") if isinstance(token, bytes) else token
    try:
        # From the right: a node's name may contain the separator, the other three cannot.
        node, pid, since, _ = text.rsplit("|", 3)
        return Holder(node=_printable(node), pid=int(pid), since=_aware(since))
    except ValueError:
        return Holder(node=_printable(text))


def _aware(text: str) -> datetime:
    since = datetime.fromisoformat(text)
    if since.tzinfo is None:
        raise ValueError(text)
    return since.astimezone(UTC)


def _printable(text: str) -> str:
    """Safe for a terminal and a log line, whoever wrote it."""
    return "".join(character if character.isprintable() else "�" for character in text[:_LONGEST_NAME])
