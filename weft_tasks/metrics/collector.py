"""The metrics of the fleet for Prometheus, read from the store at each scrape.

    from prometheus_client import REGISTRY
    from weft_tasks.metrics.collector import WeftCollector

    REGISTRY.register(WeftCollector(weft))

Any process will do, and one is enough: every one shows the whole fleet. `celery -A APP weft exporter` is one that does
nothing else. Needs prometheus_client (`pip install 'weft-tasks[metrics]'`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import accumulate, product
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from weft_tasks.lines import write
from weft_tasks.metrics import catalogue
from weft_tasks.metrics.catalogue import Kind, Metric
from weft_tasks.metrics.reading import FleetReader, FleetReading
from weft_tasks.metrics.tally import BEYOND, BUCKET, SUM, bound_shown
from weft_tasks.settings import Settings
from weft_tasks.store.counters import Series
from weft_tasks.store.gauges import FleetGauges
from weft_tasks.store.pass_marks import RUN_ONCE, PassMark

if TYPE_CHECKING:
    from weft_tasks.weft import Weft

logger = logging.getLogger("weft_tasks.metrics")

LONGEST_PATIENCE = timedelta(seconds=8)
"""Prometheus gives a scrape 10 s."""

_FAMILIES: Mapping[Kind, type[Family]] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
    Kind.SUMMARY: SummaryMetricFamily,
}

Samples = Mapping[tuple[str, ...], float]
"""Values by those of the labels, in their order."""


class WeftCollector(Collector):
    """Every metric of `weft_tasks.metrics.catalogue`. While the store does not answer, `weft_up 0` alone."""

    def __init__(self, weft: Weft) -> None:
        self._settings = weft.settings
        patience = min(self._settings.connect_timeout + 2 * self._settings.statement_timeout, LONGEST_PATIENCE)
        self._reader = FleetReader(weft.store, patience.total_seconds())
        self._was_up = True

    def describe(self) -> Iterable[Family]:
        """The families without their samples: registering reads nothing from the store."""
        return [_family(metric) for metric in catalogue.METRICS]

    def collect(self) -> Iterator[Family]:
        reading = self._reader.read()
        self._note(reading)
        yield _gauge(catalogue.UP, {(): float(isinstance(reading, FleetReading))})
        if isinstance(reading, FleetReading):
            yield from _of_settings(self._settings)
            yield from _of_gauges(reading.gauges)
            yield _gauge(catalogue.HOMELESS, _by_label(_homeless(reading)))
            yield _gauge(catalogue.DEBTS_OVERDUE, {(): reading.overdue_debts})
            yield from _of_passes(reading.passes, self._settings)
            yield from _of_counters(reading.counters, reading.gauges.types)

    def _note(self, reading: FleetReading | str) -> None:
        """A line when the store goes and one when it comes back, not one for each scrape."""
        is_up = not isinstance(reading, str)
        if self._was_up and isinstance(reading, str):
            write(logger, logging.WARNING, "weft.exporter.store-away", {"error": reading})
        elif is_up and not self._was_up:
            write(logger, logging.INFO, "weft.exporter.store-back")
        self._was_up = is_up


def _of_settings(settings: Settings) -> Iterator[Family]:
    names = catalogue.SETTING.known["setting"]
    yield _gauge(catalogue.SETTING, {(name,): getattr(settings, name).total_seconds() for name in names})


def _of_gauges(gauges: FleetGauges) -> Iterator[Family]:
    yield _gauge(catalogue.ENGINES, {(state.value,): count for state, count in gauges.engines.items()})
    yield _gauge(catalogue.FREE_SLOTS, {(): gauges.free_slots})
    yield _gauge(catalogue.HEARTBEAT_AGE, {(node,): age for node, age in gauges.heartbeat_ages.items()})
    # A node that holds nothing shows 0, and so does a fleet without any.
    nodes = gauges.heartbeat_ages or ("",)
    yield _gauge(catalogue.CLAIMS_ACTIVE, _by_label({**dict.fromkeys(nodes, 0), **gauges.claims}))
    yield _gauge(catalogue.CLAIMS_STRANDED, {(): gauges.stranded})
    yield _gauge(catalogue.DUE, {(): gauges.due})
    yield _gauge(catalogue.UNOWNED, {(): gauges.unowned})
    types = dict.fromkeys(gauges.types, 0)
    yield _gauge(catalogue.SET_ASIDE, _by_label({**types, **gauges.set_aside}))
    yield _gauge(catalogue.SUSPENDED, _by_label({**types, **gauges.suspended}))
    yield _gauge(catalogue.SIGNALS_PENDING, {(): gauges.signals_pending})
    yield _gauge(catalogue.UPDATES_PENDING, {(): gauges.updates_pending})


def _homeless(reading: FleetReading) -> Mapping[str, int]:
    """By type, whatever the version."""
    counts = dict.fromkeys(reading.gauges.types, 0)
    for some in reading.homeless:
        counts[some.type] = counts.get(some.type, 0) + some.count
    return counts


def _of_passes(marks: Mapping[str, PassMark], settings: Settings) -> Iterator[Family]:
    seconds = SummaryMetricFamily(catalogue.PASS_SECONDS.name, catalogue.PASS_SECONDS.help, labels=["pass"])
    for mark in marks.values():
        seconds.add_metric([mark.kind], count_value=mark.runs, sum_value=mark.ran_ms / 1000)
    yield seconds
    yield _gauge(
        catalogue.PASS_LAST_SECONDS,
        {(mark.kind,): mark.took.total_seconds() for mark in marks.values() if mark.took is not None},
    )
    # Nobody fires run_once regularly, so it is never late.
    lags: Samples = {(mark.kind,): _lag(mark, settings) for mark in marks.values() if mark.kind != RUN_ONCE}
    yield _gauge(catalogue.PASS_LAG, lags)
    skipped = {_series(catalogue.PASS_SKIPPED, (mark.kind,)): float(mark.skipped) for mark in marks.values()}
    yield _counter(catalogue.PASS_SKIPPED, skipped, ())


def _lag(mark: PassMark, settings: Settings) -> float:
    lag = mark.lag(settings.renew_interval)
    return math.inf if lag is None else lag.total_seconds()


def _of_counters(counted: Mapping[Series, float], types: tuple[str, ...]) -> Iterator[Family]:
    for metric in catalogue.COUNTED:
        yield _counter(metric, counted, types)
    for metric in catalogue.TIMED:
        yield _histogram(metric, counted)


def _counter(metric: Metric, counted: Mapping[Series, float], types: tuple[str, ...]) -> Family:
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    shown = dict.fromkeys(_known(metric, types), 0.0)
    for (name, labels), value in counted.items():
        if name == metric.name:
            shown[_values(metric, dict(labels))] = value
    for values, value in sorted(shown.items()):
        family.add_metric(values, value)
    return family


def _known(metric: Metric, types: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The label values that are shown even if nothing was counted; none for a label whose values cannot be known."""
    choices = [types if label == "type" else metric.known.get(label, ()) for label in metric.labels]
    return product(*choices)


def _histogram(metric: Metric, counted: Mapping[Series, float]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*map(bound_shown, metric.buckets), BEYOND]
    sums: dict[tuple[str, ...], float] = {} if metric.labels else {(): 0.0}
    buckets: dict[tuple[str, ...], dict[str, float]] = {}
    for (name, labels), value in counted.items():
        own = dict(labels)
        if name == metric.name + SUM:
            sums[_values(metric, own)] = value
        elif name == metric.name + BUCKET:
            buckets.setdefault(_values(metric, own), {})[own["le"]] = value
    for values, total in sorted(sums.items()):
        counts = accumulate(buckets.get(values, {}).get(bound, 0.0) for bound in bounds)
        family.add_metric(values, buckets=list(zip(bounds, counts, strict=True)), sum_value=total)
    return family


def _values(metric: Metric, labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(label, "") for label in metric.labels)


def _series(metric: Metric, values: tuple[str, ...]) -> Series:
    return metric.name, tuple(sorted(zip(metric.labels, values, strict=True)))


def _gauge(metric: Metric, samples: Samples) -> Family:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for values, value in sorted(samples.items()):
        family.add_metric(values, value)
    return family


def _by_label(counts: Mapping[str, int]) -> Samples:
    return {(value,): count for value, count in counts.items()}


def _family(metric: Metric) -> Family:
    return _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)  # type: ignore[call-arg]
