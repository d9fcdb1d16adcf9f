"""A client that cancels, terminates or suspends a workflow, and is killed right after the commit: before it has told
anybody. Its arguments: the verb, and the workflow's id."""

from __future__ import annotations

import os
import signal
import sys

import moments_app


def die(*_message: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(verb: str, id: str) -> None:
    weft = moments_app.build(os.environ)
    weft.app.finalize()
    for message in ("abort", "request_reclaim"):
        setattr(weft.dispatcher, message, die)
    getattr(weft, verb)(id)
    die()


main(*sys.argv[1:])
