"""A client that writes a row of its own and starts, signals and updates in the same transaction, and is killed right
after the commit: before the first message is sent. What it does is its argument: commit, or rollback."""

from __future__ import annotations

import os
import signal
import sys

import moments_app
from sqlalchemy import text
from sqlalchemy.orm import Session


def die(_message: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(ending: str, started: str, known: str) -> None:
    weft = moments_app.build(os.environ)
    weft.app.finalize()
    setattr(weft.dispatcher, "send_turn", die)  # noqa: B010
    with Session(weft.store.database.engine) as session:
        session.execute(text("INSERT INTO client_rows VALUES (:id)"), {"id": started})
        weft.start("permit", started, session=session)
        weft.signal(started, "event", "closed", key="client", session=session)
        weft.signal(known, "go", key="client", session=session)
        weft.update(known, "approve", "client", key="client", session=session)
        if ending == "rollback":
            session.rollback()
            die(None)
        session.commit()


main(*sys.argv[1:])
