"""What this process has counted and not yet written: in memory, cheap, and never inherited over a fork."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType

from weft_tasks.metrics.catalogue import Metric
from weft_tasks.per_process import PerProcess
from weft_tasks.store.counters import Series

BUCKET, SUM = "_bucket", "_sum"
BEYOND = "+Inf"
NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Tally:
    """Counts of one process. Safe for its threads."""

    def __init__(self) -> None:
        self._counts = PerProcess(_Counts)

    def count(self, metric: Metric, labels: Mapping[str, str] = NO_LABELS, amount: float = 1) -> None:
        self._counts.get().add({_series(metric.name, labels): amount})

    def observe(self, metric: Metric, seconds: float, labels: Mapping[str, str] = NO_LABELS) -> None:
        """Count `seconds` in its bucket, and add it to the sum. Each is in one bucket; a reader adds them up."""
        bucket = bucket_of(metric, seconds)
        self._counts.get().add(
            {
                _series(metric.name + BUCKET, {**labels, "le": bucket}): 1,
                _series(metric.name + SUM, labels): seconds,
            }
        )

    def has_any(self) -> bool:
        return bool(self._counts.get().counted)

    def take(self) -> Mapping[Series, float]:
        """Everything counted since it was last taken."""
        return self._counts.get().take()

    def put_back(self, counted: Mapping[Series, float]) -> None:
        """What was taken and could not be written."""
        self._counts.get().add(counted)


class _Counts:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counted: defaultdict[Series, float] = defaultdict(float)

    def add(self, counted: Mapping[Series, float]) -> None:
        with self._lock:
            for series, amount in counted.items():
                self.counted[series] += amount

    def take(self) -> Mapping[Series, float]:
        with self._lock:
            taken, self.counted = self.counted, defaultdict(float)
        return taken


def bucket_of(metric: Metric, seconds: float) -> str:
    """The upper bound of the bucket, as Prometheus writes it."""
    place = bisect_left(metric.buckets, seconds)
    return BEYOND if place == len(metric.buckets) else bound_shown(metric.buckets[place])


def bound_shown(bound: float) -> str:
    return repr(float(bound))


def _series(name: str, labels: Mapping[str, str]) -> Series:
    return name, tuple(sorted(labels.items()))
