"""Links between traces: what is sent remembers the span it was sent in, and the turn that it wakes links to that span.

Through OpenTelemetry, if the process uses it; it is never imported on our account. A process in which nobody has
imported it has no span.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

_LIBRARY = "opentelemetry.trace"


def current_trace() -> str | None:
    """The W3C `traceparent` of the span that is being recorded here and now; None if there is none."""
    if _LIBRARY not in sys.modules:
        return None
    from opentelemetry import trace

    span = trace.get_current_span()
    if not span.is_recording():
        return None
    context = span.get_span_context()
    ids = f"{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}"
    return f"00-{ids}-{context.trace_flags:02x}"


def link_current_span(traces: Iterable[str], attributes: Mapping[str, str | int]) -> None:
    """Link the span that is being recorded here and now to each of these, and describe it."""
    if _LIBRARY not in sys.modules:
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    span = trace.get_current_span()
    if not span.is_recording():
        return
    span.set_attributes(dict(attributes))
    propagator = TraceContextTextMapPropagator()
    for traceparent in traces:
        sender = trace.get_current_span(propagator.extract({"traceparent": traceparent})).get_span_context()
        if sender.is_valid:
            span.add_link(sender)
