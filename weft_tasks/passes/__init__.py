"""The four passes: pure functions over small protocols, for Celery tasks and for any other host."""

from weft_tasks.passes.clock import Clock, SystemClock
from weft_tasks.passes.in_process import ClaimRenewalTask
from weft_tasks.passes.pool import OrderedPool
from weft_tasks.passes.reclaim import reclaim_claims
from weft_tasks.passes.renewal import renew_claims
from weft_tasks.passes.run_once import run_once
from weft_tasks.passes.scheduler import Scheduler, ThreadScheduler, Ticks
from weft_tasks.passes.signal_poll import poll_signals
from weft_tasks.passes.sink import PassSink, log_pass
from weft_tasks.passes.sweep import PassContext
from weft_tasks.passes.targets import SignalWait, Targets
from weft_tasks.passes.update_poll import poll_updates

__all__ = [
    "ClaimRenewalTask",
    "Clock",
    "OrderedPool",
    "PassContext",
    "PassSink",
    "Scheduler",
    "SignalWait",
    "SystemClock",
    "Targets",
    "ThreadScheduler",
    "Ticks",
    "log_pass",
    "poll_signals",
    "poll_updates",
    "reclaim_claims",
    "renew_claims",
    "run_once",
]
