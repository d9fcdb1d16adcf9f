"""The commands on an application of a test, with click's runner: a real store, and turns that run in the test."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from celery import Celery
from click.testing import CliRunner, Result

from weft_tasks.celery_host.cli import weft as commands
from weft_tasks.locks import AlwaysYes
from weft_tasks.model import TurnMessage
from weft_tasks.testing.bed_calls import Mailbox
from weft_tasks.weft import Weft
from weft_tasks.workflows.turn import Turn, TurnEnd

ENGINE = "engine-of-the-test"
NODE = "e1@host"


def build(database_url: str, **settings: Any) -> Weft:
    """An application with a few workflows, on a broker that lives in this process."""
    app = Celery("shop", broker="memory://", set_as_current=False)
    app.conf.update(weft_database_url=database_url, **settings)
    weft = Weft(app, locks=AlwaysYes())
    weft.workflow("order")(order)
    weft.workflow("broken")(broken)
    return weft


def order(turn: Turn) -> TurnEnd | None:
    """Waits for `paid`, and completes with its payload. Answers the update `add`."""
    for paid in turn.take("paid"):
        return turn.complete(paid.payload)
    turn.state["seen"] = turn.number
    turn.wait("paid", timeout=timedelta(days=3))
    return None


def broken(turn: Turn) -> TurnEnd:
    raise RuntimeError("no bank today")


def order_types(weft: Weft) -> None:
    """The updates of `order`."""

    def add(turn: Turn, payload: Any) -> Any:
        turn.state["total"] = turn.state.get("total", 0) + payload
        return turn.state["total"]

    weft.registry.get("order").update("add")(add)


class InlineMailbox(Mailbox):
    """Runs a turn as soon as its message is sent, as an engine beside the command would."""

    def __init__(self, weft: Weft) -> None:
        super().__init__()
        self._weft = weft

    def send_turn(self, message: TurnMessage) -> bool:
        self._weft.runner.run(message, task_id=uuid.uuid4().hex, engine_id=ENGINE)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """The application, and its commands."""

    weft: Weft

    def run(self, *words: str, status: int = 0, input: str | None = None) -> Result:
        """`celery -A shop weft WORDS`, which must end with this exit status and without a traceback."""
        result = CliRunner().invoke(commands, list(words), obj=SimpleNamespace(app=self.weft.app), input=input)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        assert result.exit_code == status, result.output
        return result

    def json(self, *words: str, status: int = 0) -> Any:
        """The one document that a command prints with --json."""
        return json.loads(self.run(*words, "--json", status=status).stdout)

    def refused(self, *words: str, status: int = 1) -> str:
        """The one line of a command that fails."""
        result = self.run(*words, status=status)
        assert result.stdout == ""
        lines = result.stderr.splitlines()
        assert len(lines) == 1 or status == 2, lines
        return lines[-1]

    def add_engine(self, engine_id: str = ENGINE, node: str = NODE) -> None:
        versions = self.weft.registry.versions
        self.weft.store.engines.register(
            engine_id, node=node, host="host", pid=7, types=versions, versions=versions, slots=2
        )
