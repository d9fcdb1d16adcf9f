"""Every metric there is: its name, kind, labels and meaning. Base units are seconds; workflow ids are never labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from weft_tasks.results import PassKind
from weft_tasks.store.gauges import EngineState
from weft_tasks.store.pass_marks import RUN_ONCE
from weft_tasks.workflows.runner import TurnStatus


class Kind(StrEnum):
    COUNTER = "counter"
    """Counted by the processes of the fleet, and kept in the store: it does not fall when one of them goes."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    """Counted like a counter, one for each bucket."""
    SUMMARY = "summary"
    """How many, and their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `known` are label values that are always shown, with 0 until something was counted: a series that
    appears with its first event has no increase that a rule could see."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    known: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))


_PASSES = tuple(kind.value for kind in PassKind)
_TURNS = tuple(status.value for status in TurnStatus if status not in (TurnStatus.DISCARDED, TurnStatus.ANSWERED))
_LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_RECOVERIES = (0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 35.0, 40.0, 45.0, 50.0, 60.0, 90.0, 120.0, 300.0)
"""With the default settings a killed engine's workflows have a new owner after 40 to 45 s."""

UP = Metric(
    name="weft_up", kind=Kind.GAUGE, help="Whether the store answered this scrape. While 0, nothing else is shown."
)

# -- claims

CLAIM_ATTEMPTS = Metric(
    name="weft_workflow_claim_attempts_total",
    kind=Kind.COUNTER,
    labels=("outcome",),
    help=(
        "Tries at a claim: acquired (nobody held it), takeover (from a silent or deaf engine), lost_race (somebody was "
        "first), deposed (an owner's commit was refused), backoff_skipped (a host's own reclaim target put it off)."
    ),
    known={"outcome": ("acquired", "takeover", "lost_race", "deposed", "backoff_skipped")},
)
CLAIMS_ACTIVE = Metric(
    name="weft_workflow_claims_active",
    kind=Kind.GAUGE,
    labels=("node",),
    help="Claims held now, by the node of their engine; an empty node for engines that have no row any more.",
)
CLAIMS_STRANDED = Metric(
    name="weft_workflow_claims_stranded",
    kind=Kind.GAUGE,
    help="Claims whose engine is silent, stopped or gone: the next reclaim pass takes them over.",
)
RENEWAL_FAILURES = Metric(
    name="weft_workflow_claim_renewal_failures_total",
    kind=Kind.COUNTER,
    help="Renewals of a claim that failed or were not answered. A workflow that ended or moved meanwhile is none.",
)
RECOVERY = Metric(
    name="weft_workflow_recovery_seconds",
    kind=Kind.HISTOGRAM,
    buckets=_RECOVERIES,
    help="From the last heartbeat of an engine that fell silent to the takeover of a workflow that it held.",
)

# -- turns

TURNS = Metric(
    name="weft_workflow_turns_total",
    kind=Kind.COUNTER,
    labels=("type", "outcome"),
    help=(
        "Turns that ended: committed, nothing-to-do, retrying and failed (the handler raised; tried again, or not), "
        "refused (another owner is in place), unknown (the store did not answer)."
    ),
    known={"outcome": _TURNS},
)
TURN_SECONDS = Metric(
    name="weft_workflow_turn_seconds",
    kind=Kind.HISTOGRAM,
    labels=("type",),
    buckets=_LATENCIES,
    help="From the begin of a turn to its ending in the store.",
)
WAKE_SECONDS = Metric(
    name="weft_workflow_signal_wake_seconds",
    kind=Kind.HISTOGRAM,
    labels=("type",),
    buckets=_LATENCIES,
    help="From the signal that a parked workflow waited for to the begin of the turn that sees it.",
)
WAKES_DISCARDED = Metric(
    name="weft_workflow_wakes_discarded_total",
    kind=Kind.COUNTER,
    labels=("reason",),
    help="Turn messages that did not match their row, so that no turn began.",
)
COMMITS_UNKNOWN = Metric(
    name="weft_workflow_commits_unknown_total",
    kind=Kind.COUNTER,
    help="Endings of turns that the store did not answer at once; each is resolved by asking again.",
)

# -- what waits

DUE = Metric(
    name="weft_workflows_due", kind=Kind.GAUGE, help="The backlog: workflows that may have a turn now and have none."
)
UNOWNED = Metric(name="weft_workflows_unowned", kind=Kind.GAUGE, help="Running workflows that no engine holds.")
HOMELESS = Metric(
    name="weft_workflows_homeless",
    kind=Kind.GAUGE,
    labels=("type",),
    help="Running workflows without a holder, or with a lost one, whose type or version no live engine can run.",
)
SET_ASIDE = Metric(
    name="weft_workflows_set_aside",
    kind=Kind.GAUGE,
    labels=("type",),
    help="Workflows out of the way because their turns began too often without a commit.",
)
SUSPENDED = Metric(name="weft_workflows_suspended", kind=Kind.GAUGE, labels=("type",), help="Suspended workflows.")
SIGNALS_PENDING = Metric(
    name="weft_signals_pending", kind=Kind.GAUGE, help="Signals that no turn has taken, awaited or not."
)
UPDATES_PENDING = Metric(name="weft_updates_pending", kind=Kind.GAUGE, help="Updates without an answer.")
DEBTS_OVERDUE = Metric(
    name="weft_outbox_overdue",
    kind=Kind.GAUGE,
    help="Tasks and replies that commits owe and nobody has sent for longer than two intervals.",
)

# -- engines

ENGINES = Metric(
    name="weft_engines",
    kind=Kind.GAUGE,
    labels=("state",),
    help=(
        "Engines that have not stopped: alive, late (heartbeat older than the grace), silent (dead), deaf (beats, and "
        "takes no turns), draining."
    ),
    known={"state": tuple(state.value for state in EngineState)},
)
FREE_SLOTS = Metric(
    name="weft_engine_free_slots", kind=Kind.GAUGE, help="Free pool slots of the engines that are alive."
)
HEARTBEAT_AGE = Metric(
    name="weft_engine_heartbeat_age_seconds",
    kind=Kind.GAUGE,
    labels=("node",),
    help="Time since the last heartbeat of each node's newest engine that has not stopped.",
)
HEARTBEATS_MISSED = Metric(
    name="weft_engine_heartbeats_missed_total",
    kind=Kind.COUNTER,
    help="Heartbeats that the store did not take. They are counted once it takes one again.",
)
PUBLISH_FAILURES = Metric(
    name="weft_publish_failures_total",
    kind=Kind.COUNTER,
    help="Messages that the broker did not take from a worker; a pass sends them again.",
)

# -- passes

PASS_SECONDS = Metric(
    name="weft_pass_seconds", kind=Kind.SUMMARY, labels=("pass",), help="Passes that ended, and how long they took."
)
PASS_LAST_SECONDS = Metric(
    name="weft_pass_last_seconds", kind=Kind.GAUGE, labels=("pass",), help="How long the latest pass took."
)
PASS_LAG = Metric(
    name="weft_pass_lag_seconds",
    kind=Kind.GAUGE,
    labels=("pass",),
    help="How much longer than the renew interval ago the latest pass began; +Inf if none ever did.",
)
PASS_SKIPPED = Metric(
    name="weft_pass_skipped_ticks_total",
    kind=Kind.COUNTER,
    labels=("pass",),
    help="Ticks that ran no pass: one ran already or had just run, or the lock server did not answer.",
    known={"pass": (*_PASSES, RUN_ONCE)},
)
PASS_FAILURES = Metric(
    name="weft_pass_failures_total",
    kind=Kind.COUNTER,
    labels=("pass",),
    help="Passes that failed, could not read their work list, or ran out of time.",
    known={"pass": _PASSES},
)

# -- what the alert rules compare with

SETTING = Metric(
    name="weft_setting_seconds",
    kind=Kind.GAUGE,
    labels=("setting",),
    help="Settings that bounds follow from.",
    known={"setting": ("claim_ttl", "grace", "renew_interval", "pass_deadline")},
)

METRICS: tuple[Metric, ...] = tuple(metric for metric in tuple(globals().values()) if isinstance(metric, Metric))
COUNTED: tuple[Metric, ...] = (
    CLAIM_ATTEMPTS,
    RENEWAL_FAILURES,
    TURNS,
    WAKES_DISCARDED,
    COMMITS_UNKNOWN,
    HEARTBEATS_MISSED,
    PUBLISH_FAILURES,
    PASS_FAILURES,
)
"""The counters that processes count. The other two kinds of counts are kept with the passes."""
TIMED: tuple[Metric, ...] = (RECOVERY, TURN_SECONDS, WAKE_SECONDS)
