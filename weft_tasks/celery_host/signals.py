"""Signals in Celery's style, for the host application. A receiver that raises is logged by Celery and changes nothing.

    from weft_tasks.celery_host.signals import claim_lost

    @claim_lost.connect
    def note(sender, event, **kwargs): ...

The sender is the name of the Celery application; `event` is the dataclass from `weft_tasks.events`.
"""

from __future__ import annotations

from celery.utils.dispatch import Signal

from weft_tasks.events import ClaimLost, Event, PassCompleted, WakeDiscarded

pass_completed = Signal(name="weft_pass_completed", providing_args={"event"})
claim_lost = Signal(name="weft_claim_lost", providing_args={"event"})
wake_discarded = Signal(name="weft_wake_discarded", providing_args={"event"})

_SIGNAL_OF = {PassCompleted: pass_completed, ClaimLost: claim_lost, WakeDiscarded: wake_discarded}


class SignalSink:
    """Sends the events that have a signal."""

    def __init__(self, sender: str) -> None:
        self._sender = sender

    def __call__(self, event: Event) -> None:
        signal = _SIGNAL_OF.get(type(event))
        if signal is not None:
            signal.send(sender=self._sender, event=event)
