"""What a scrape shows of a store, in any process that has prometheus_client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from beds import SECOND, R, StoreBed
from breaking import failing_before
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from weft_tasks.metrics import catalogue
from weft_tasks.metrics.collector import WeftCollector
from weft_tasks.metrics.tally import Tally
from weft_tasks.settings import Settings
from weft_tasks.testing.waiting import wait_until
from weft_tasks.weft import Weft


class Page:
    """The collector of a bed's store in a registry."""

    def __init__(self, bed: StoreBed, settings: Settings | None = None) -> None:
        weft = cast("Weft", SimpleNamespace(store=bed.store, settings=settings or Settings()))
        self._registry = CollectorRegistry()
        self._registry.register(WeftCollector(weft))

    def samples(self) -> dict[str, float]:
        """By series, as they are written."""
        families = text_string_to_metric_families(generate_latest(self._registry).decode())
        return {
            sample.name + ("{" + ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items())) + "}"): sample.value
            for family in families
            for sample in family.samples
        }


@pytest.fixture
def page(store_bed: StoreBed) -> Page:
    return Page(store_bed)


def counted(bed: StoreBed, tally: Tally) -> None:
    assert bed.store.counters.add(tally.take())


def test_registering_reads_nothing_and_two_collectors_in_one_registry_are_refused(store_bed: StoreBed) -> None:
    with failing_before(store_bed.store, 1):
        page = Page(store_bed)
    again = WeftCollector(cast("Weft", SimpleNamespace(store=store_bed.store, settings=Settings())))
    with pytest.raises(ValueError, match="Duplicated"):
        page._registry.register(again)


def test_a_fleet_that_never_ran_shows_zeros_for_what_a_rule_asks_and_passes_that_are_endlessly_late(
    page: Page,
) -> None:
    samples = page.samples()
    assert samples["weft_up{}"] == 1
    for outcome in ("acquired", "takeover", "lost_race", "deposed", "backoff_skipped"):
        assert samples[f"weft_workflow_claim_attempts_total{{outcome={outcome}}}"] == 0
    assert samples["weft_workflow_claim_renewal_failures_total{}"] == 0
    assert samples["weft_engines{state=alive}"] == 0
    assert samples["weft_workflow_recovery_seconds_count{}"] == 0
    assert samples["weft_pass_lag_seconds{pass=renewal}"] == float("inf")
    assert "weft_pass_lag_seconds{pass=run-once}" not in samples


def test_settings_are_shown_in_seconds(store_bed: StoreBed) -> None:
    settings = Settings(claim_ttl=timedelta(seconds=12), renew_interval=timedelta(seconds=2))
    samples = Page(store_bed, settings).samples()
    assert samples["weft_setting_seconds{setting=claim_ttl}"] == 12
    assert samples["weft_setting_seconds{setting=grace}"] == 4


def test_turns_of_a_known_type_are_shown_before_the_first_one_and_of_any_type_once_they_are_counted(
    store_bed: StoreBed, page: Page
) -> None:
    store_bed.engine("a", "permit")
    assert page.samples()["weft_workflow_turns_total{outcome=failed,type=permit}"] == 0
    tally = Tally()
    tally.count(catalogue.TURNS, {"type": "order", "outcome": "failed"})
    counted(store_bed, tally)
    assert page.samples()["weft_workflow_turns_total{outcome=failed,type=order}"] == 1


def test_the_buckets_of_a_histogram_add_up(store_bed: StoreBed, page: Page) -> None:
    tally = Tally()
    for seconds in (0.004, 0.004, 0.2, 1000):
        tally.observe(catalogue.TURN_SECONDS, seconds, {"type": "permit"})
    counted(store_bed, tally)
    samples = page.samples()
    name = "weft_workflow_turn_seconds"
    assert samples[f"{name}_bucket{{le=0.005,type=permit}}"] == 2
    assert samples[f"{name}_bucket{{le=0.1,type=permit}}"] == 2
    assert samples[f"{name}_bucket{{le=0.25,type=permit}}"] == 3
    assert samples[f"{name}_bucket{{le=300.0,type=permit}}"] == 3
    assert samples[f"{name}_bucket{{le=+Inf,type=permit}}"] == 4
    assert samples[f"{name}_count{{type=permit}}"] == 4
    assert samples[f"{name}_sum{{type=permit}}"] == pytest.approx(1000.208)


def test_a_type_with_a_hostile_name_stays_a_label(store_bed: StoreBed, page: Page) -> None:
    hostile = 'x",outcome="committed"} 9\nweft_up 0'
    tally = Tally()
    tally.count(catalogue.TURNS, {"type": hostile, "outcome": "failed"})
    counted(store_bed, tally)
    samples = page.samples()
    assert samples[f"weft_workflow_turns_total{{outcome=failed,type={hostile}}}"] == 1
    assert samples["weft_up{}"] == 1


def test_workflows_whose_type_no_live_engine_knows_are_shown_by_type(store_bed: StoreBed, page: Page) -> None:
    store_bed.engine("a", "permit")
    for id, type_name in (("w1", "permit"), ("w2", "order"), ("w3", "order")):
        store_bed.start(id, type_name)
    samples = page.samples()
    assert samples["weft_workflows_homeless{type=order}"] == 2
    assert samples["weft_workflows_homeless{type=permit}"] == 0


def test_a_pass_shows_how_often_it_ran_how_long_it_took_and_how_late_the_next_one_is(
    store_bed: StoreBed, page: Page
) -> None:
    marks = store_bed.store.pass_marks
    for n in range(2):
        marks.begin("reclaim", f"t{n}", even_if_recent=True)
        store_bed.advance(SECOND)
        marks.finish("reclaim", f"t{n}", "{}", took=SECOND / 2)
    marks.count_skip("reclaim")
    samples = page.samples()
    assert samples["weft_pass_seconds_count{pass=reclaim}"] == 2
    assert samples["weft_pass_seconds_sum{pass=reclaim}"] == 1
    assert samples["weft_pass_last_seconds{pass=reclaim}"] == 1
    assert samples["weft_pass_skipped_ticks_total{pass=reclaim}"] == 1
    assert samples["weft_pass_lag_seconds{pass=reclaim}"] == 0
    store_bed.advance(R + SECOND)
    assert page.samples()["weft_pass_lag_seconds{pass=reclaim}"] == 2


def test_while_the_store_is_away_a_scrape_says_so_and_nothing_else(store_bed: StoreBed, page: Page) -> None:
    with failing_before(store_bed.store, 1):
        assert page.samples() == {"weft_up{}": 0}
    assert page.samples()["weft_up{}"] == 1


def test_an_outage_is_one_line_and_its_end_another(
    store_bed: StoreBed, page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="weft_tasks"):
        with failing_before(store_bed.store, 1):
            page.samples()
            page.samples()
        page.samples()
        page.samples()
    keys = [record.getMessage().split()[0] for record in caplog.records]
    assert keys == ["weft.exporter.store-away", "weft.exporter.store-back"]


def test_a_store_that_hangs_makes_a_scrape_late_and_not_endless_and_no_second_reading_begins(
    store_bed: StoreBed,
) -> None:
    soon = timedelta(milliseconds=20)
    page = Page(store_bed, Settings(statement_timeout=soon, connect_timeout=soon))
    with hanging(store_bed) as readings:
        assert page.samples() == {"weft_up{}": 0}
        assert page.samples() == {"weft_up{}": 0}
        assert len(readings) == 1
    wait_until(lambda: page.samples()["weft_up{}"] == 1, what="a reading that does not hang")


@contextmanager
def hanging(bed: StoreBed) -> Iterator[list[int]]:
    """While it lasts, reading gauges does not come back; who has begun to."""
    released = threading.Event()
    readings: list[int] = []
    read = bed.store.gauges.read

    def hang() -> Any:
        readings.append(len(readings))
        assert released.wait(20)
        return read()

    object.__setattr__(bed.store.gauges, "read", hang)
    try:
        yield readings
    finally:
        released.set()
        object.__delattr__(bed.store.gauges, "read")
