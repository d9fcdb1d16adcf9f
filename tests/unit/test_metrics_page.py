"""docs/metrics.md lists what there is, and its Python runs in a process that has metrics of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import prometheus_client
import pytest

from weft_tasks.metrics import catalogue
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock

PAGE = Path(__file__).parents[2] / "docs/metrics.md"


def test_docs_metrics_md_lists_every_metric_with_its_kind_its_labels_and_its_meaning() -> None:
    rows = re.findall(r"^\| `(weft_\w+)` \| (\w+) \| (.*?) \| (.+) \|$", PAGE.read_text(), re.M)
    assert rows == [
        (metric.name, metric.kind.value, ", ".join(f"`{label}`" for label in metric.labels), metric.help)
        for metric in catalogue.METRICS
    ]


def test_its_collector_stands_beside_the_metrics_of_the_process(
    fresh_store: Callable[[str], tuple[Store, ManualClock]], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("orders_total", "Of the process itself.", registry=registry).inc()
    monkeypatch.setattr(prometheus_client, "REGISTRY", registry)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    names: dict[str, Any] = {"weft": SimpleNamespace(store=fresh_store("sqlite")[0], settings=Settings())}
    exec(block, names)
    page = prometheus_client.generate_latest(registry).decode()
    assert "orders_total 1.0" in page
    assert "weft_up 1.0" in page
