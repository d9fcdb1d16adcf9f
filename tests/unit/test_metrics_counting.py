"""What a process counts: from events to a tally, and from there into the store, once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from weft_tasks.errors import StoreUnavailable
from weft_tasks.events import (
    ClaimAttempted,
    ClaimLost,
    ClaimOutcome,
    CommitUnknown,
    Event,
    PassCompleted,
    PublishFailed,
    TurnEnded,
    WakeDiscarded,
)
from weft_tasks.metrics import catalogue
from weft_tasks.metrics.flusher import Flusher
from weft_tasks.metrics.sink import CountingSink
from weft_tasks.metrics.tally import Tally
from weft_tasks.model import TurnMessage
from weft_tasks.results import (
    ItemOutcome,
    PassFailed,
    PassKind,
    PassResult,
    PassStatus,
    ReclaimStatus,
    RenewalStatus,
)
from weft_tasks.store.counters import Series
from weft_tasks.testing.waiting import wait_until

AT = datetime(2026, 1, 1, tzinfo=UTC)
MESSAGE = TurnMessage(workflow_id="w", run_id="r", engine_id="e", epoch=1, turn=0)
WHO: dict[str, Any] = {"workflow_id": "w", "run_id": "r", "engine_id": "e", "epoch": 1}


def counted(*events: Event) -> dict[str, float]:
    """By series, written as Prometheus would."""
    tally = Tally()
    for event in events:
        CountingSink(tally)(event)
    return shown(tally.take())


def shown(counts: Mapping[Series, float]) -> dict[str, float]:
    return {
        name + ("{" + ",".join(f"{label}={value}" for label, value in labels) + "}" if labels else ""): count
        for (name, labels), count in counts.items()
    }


def attempted(outcome: ClaimOutcome, silent_for: timedelta | None = None) -> ClaimAttempted:
    return ClaimAttempted(**WHO, outcome=outcome, silent_for=silent_for)


def passed(kind: PassKind, *outcomes: ItemOutcome[Any], status: PassStatus = PassStatus.COMPLETED) -> PassCompleted:
    return PassCompleted(result=PassResult(kind=kind, status=status, started_at=AT, finished_at=AT, outcomes=outcomes))


def test_tries_at_claims_are_counted_by_outcome() -> None:
    assert counted(
        attempted(ClaimOutcome.ACQUIRED),
        attempted(ClaimOutcome.ACQUIRED),
        attempted(ClaimOutcome.LOST_RACE),
        ClaimLost(**WHO, turn=1, attempt=1),
    ) == {
        "weft_workflow_claim_attempts_total{outcome=acquired}": 2,
        "weft_workflow_claim_attempts_total{outcome=lost_race}": 1,
        "weft_workflow_claim_attempts_total{outcome=deposed}": 1,
    }


def test_a_takeover_from_a_silent_engine_is_a_recovery_and_one_from_a_deaf_engine_is_none() -> None:
    assert counted(
        attempted(ClaimOutcome.TAKEOVER, timedelta(seconds=41)), attempted(ClaimOutcome.TAKEOVER, silent_for=None)
    ) == {
        "weft_workflow_claim_attempts_total{outcome=takeover}": 2,
        "weft_workflow_recovery_seconds_bucket{le=45.0}": 1,
        "weft_workflow_recovery_seconds_sum": 41,
    }


def test_a_turn_is_counted_by_type_and_outcome_with_its_time_and_the_time_to_its_wake() -> None:
    turn = TurnEnded(
        workflow_id="w",
        type="order",
        engine_id="e",
        epoch=1,
        turn=3,
        status="committed",
        took=timedelta(seconds=0.25),
        woken_after=timedelta(seconds=0.011),
    )
    assert counted(turn) == {
        "weft_workflow_turns_total{outcome=committed,type=order}": 1,
        "weft_workflow_turn_seconds_bucket{le=0.25,type=order}": 1,
        "weft_workflow_turn_seconds_sum{type=order}": 0.25,
        "weft_workflow_signal_wake_seconds_bucket{le=0.025,type=order}": 1,
        "weft_workflow_signal_wake_seconds_sum{type=order}": 0.011,
    }


def test_what_takes_longer_than_every_bucket_is_in_the_last_one() -> None:
    assert (
        counted(attempted(ClaimOutcome.TAKEOVER, timedelta(hours=1)))["weft_workflow_recovery_seconds_bucket{le=+Inf}"]
        == 1
    )


def test_what_went_wrong_is_counted() -> None:
    unknown = CommitUnknown(workflow_id="w", engine_id="e", epoch=1, turn=0, error="no answer")
    assert counted(
        WakeDiscarded(message=MESSAGE, reason="not-due"), unknown, PublishFailed(message="turn 1", error="gone")
    ) == {
        "weft_workflow_wakes_discarded_total{reason=not-due}": 1,
        "weft_workflow_commits_unknown_total": 1,
        "weft_publish_failures_total": 1,
    }


def test_a_renewal_failed_if_it_is_not_known_to_hold_and_not_if_the_workflow_moved() -> None:
    renewed = ItemOutcome("w1", RenewalStatus.RENEWED)
    moved = ItemOutcome("w2", RenewalStatus.FAILED, "lost")
    unknown = ItemOutcome("w3", RenewalStatus.FAILED, "unknown")
    assert counted(passed(PassKind.RENEWAL, renewed, moved)) == {}
    assert counted(passed(PassKind.RENEWAL, renewed, moved, unknown, unknown)) == {
        "weft_workflow_claim_renewal_failures_total": 2
    }


def test_a_reclaim_target_that_puts_off_a_try_is_counted() -> None:
    assert counted(passed(PassKind.RECLAIM, ItemOutcome("w", ReclaimStatus.BACKOFF_SKIPPED))) == {
        "weft_workflow_claim_attempts_total{outcome=backoff_skipped}": 1
    }


def test_a_pass_that_raised_or_ran_out_of_time_or_found_no_list_has_failed() -> None:
    failed = PassFailed(kind=PassKind.RECLAIM, error="no answer", started_at=AT, finished_at=AT)
    assert counted(
        PassCompleted(result=failed),
        passed(PassKind.RECLAIM),
        passed(PassKind.RECLAIM, status=PassStatus.DEADLINE_REACHED),
        passed(PassKind.RENEWAL, status=PassStatus.DISCOVERY_FAILED),
    ) == {"weft_pass_failures_total{pass=reclaim}": 2, "weft_pass_failures_total{pass=renewal}": 1}


def test_a_pass_that_did_what_it_should_counts_nothing() -> None:
    assert (
        counted(passed(PassKind.RENEWAL, ItemOutcome("w", RenewalStatus.RENEWED)), passed(PassKind.SIGNAL_POLL)) == {}
    )


# -- the tally


def test_counts_of_many_threads_add_up() -> None:
    tally = Tally()
    threads = [
        threading.Thread(target=lambda: [tally.count(catalogue.PUBLISH_FAILURES) for _ in range(1000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shown(tally.take()) == {"weft_publish_failures_total": 4000}
    assert not tally.has_any()


def test_a_forked_process_counts_from_nothing_for_its_parent_writes_what_it_has() -> None:
    tally = Tally()
    tally.count(catalogue.PUBLISH_FAILURES)
    child = os.fork()
    if child == 0:
        inherited = tally.has_any()
        tally.count(catalogue.PUBLISH_FAILURES)
        os._exit(10 + int(inherited) + len(tally.take()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
    assert shown(tally.take()) == {"weft_publish_failures_total": 1}


# -- writing


class Rows:
    """A store's counters that can be away."""

    def __init__(self) -> None:
        self.tries = 0
        self.written: list[dict[str, float]] = []
        self.answers: Callable[[], bool] = lambda: True

    def add(self, counts: Mapping[Series, float]) -> bool:
        self.tries += 1
        answer = self.answers()
        self.written.append(shown(counts))
        return answer


@pytest.fixture
def rows() -> Rows:
    return Rows()


def away() -> bool:
    raise StoreUnavailable("the store did not answer")


def test_nothing_counted_is_nothing_written(rows: Rows) -> None:
    Flusher(Tally(), rows.add, timedelta(seconds=1)).flush()
    assert rows.written == []


def test_what_was_counted_is_written_once(rows: Rows) -> None:
    tally = Tally()
    flusher = Flusher(tally, rows.add, timedelta(seconds=1))
    tally.count(catalogue.PUBLISH_FAILURES)
    flusher.flush()
    flusher.flush()
    assert rows.written == [{"weft_publish_failures_total": 1}]


def test_what_a_store_that_was_away_did_not_take_is_written_with_what_came_since(rows: Rows) -> None:
    tally = Tally()
    flusher = Flusher(tally, rows.add, timedelta(seconds=1))
    tally.count(catalogue.PUBLISH_FAILURES)
    rows.answers = away
    flusher.flush()
    rows.answers = lambda: True
    tally.count(catalogue.PUBLISH_FAILURES)
    flusher.flush()
    assert rows.written == [{"weft_publish_failures_total": 2}]


def test_what_the_store_may_have_is_not_written_again(rows: Rows) -> None:
    tally = Tally()
    flusher = Flusher(tally, rows.add, timedelta(seconds=1))
    tally.count(catalogue.PUBLISH_FAILURES)
    rows.answers = lambda: False
    flusher.flush()
    flusher.flush()
    assert len(rows.written) == 1


def test_a_process_that_is_idle_afterwards_writes_too_and_several_counts_at_once(rows: Rows) -> None:
    tally = Tally()
    flusher = Flusher(tally, rows.add, timedelta(milliseconds=50))
    flusher.soon()
    for _ in range(5):
        tally.count(catalogue.PUBLISH_FAILURES)
        flusher.soon()
    wait_until(lambda: rows.written, what="the counts to be written")
    assert rows.written == [{"weft_publish_failures_total": 5}]


def test_a_thread_that_met_an_outage_goes_on_by_itself(rows: Rows) -> None:
    tally = Tally()
    flusher = Flusher(tally, rows.add, timedelta(milliseconds=10))
    rows.answers = away
    tally.count(catalogue.PUBLISH_FAILURES)
    flusher.soon()
    wait_until(lambda: rows.tries >= 2, what="a second try")
    rows.answers = lambda: True
    wait_until(lambda: rows.written, what="the counts to be written")
    assert rows.written == [{"weft_publish_failures_total": 1}]


# -- the catalogue


def test_names_and_labels_are_in_prometheus_style_and_no_label_is_an_id() -> None:
    labels = {label for metric in catalogue.METRICS for label in metric.labels}
    assert labels == {"outcome", "node", "type", "reason", "state", "pass", "setting"}
    for metric in catalogue.METRICS:
        assert metric.name.startswith("weft_")
        assert metric.name.endswith("_total") == (metric.kind is catalogue.Kind.COUNTER)
        if metric.kind in (catalogue.Kind.HISTOGRAM, catalogue.Kind.SUMMARY):
            assert metric.name.endswith("_seconds")
    assert len({metric.name for metric in catalogue.METRICS}) == len(catalogue.METRICS)


def test_every_metric_that_processes_count_fits_its_row() -> None:
    assert max(len(metric.name + "_bucket") for metric in catalogue.METRICS) <= 64
