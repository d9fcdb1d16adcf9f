"""A beat that is told to stop stops, also while it waits for the broker's answer.

Celery's handler of SIGTERM closes the connection and raises SystemExit. In the middle of a read redis-py then fails on
the closed connection, its error takes the place of SystemExit, beat counts it as a tick that failed, and goes on.
"""

from __future__ import annotations

import signal
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
CELERYS_HANDLER = "celery.apps.beat"


def stop_at_signals(service: Any) -> None:
    """Replace the handlers of a `celery beat` process. The service closes the connection and saves its schedule on its
    way out anyway. Where Celery has installed none, as for the beat inside a worker, nothing is changed."""

    def stop(_number: int, _frame: object) -> None:
        service.stop()
        raise SystemExit

    for number in STOP_SIGNALS:
        if getattr(signal.getsignal(number), "__module__", None) == CELERYS_HANDLER:
            signal.signal(number, stop)
