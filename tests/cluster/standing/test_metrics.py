"""The metrics of a whole fleet, scraped from an exporter that belongs to none of its processes."""

from __future__ import annotations

from deployment import BEATS_PER_TTL, GRACE, INTERVAL, SLACK, TTL, Deployment
from pytest_celery import CeleryTestSetup
from scraping import exporter_of

from weft_tasks.metrics import catalogue
from weft_tasks.testing.local_postgres import LocalPostgres
from weft_tasks.testing.waiting import wait_until

TAKEOVERS = {"outcome": "takeover"}


def test_the_takeovers_of_a_killed_engine_and_its_recovery_are_counted_once(
    setup: CeleryTestSetup, deployment: Deployment
) -> None:
    with exporter_of(deployment, "exporter-takeovers") as exporter:
        deployment.park_on("e1", "counted", 8)
        killed = deployment.engine("e1").id
        held = deployment.held_by(killed)
        moves = len(deployment.events("taken-over", *held))
        before = exporter.scrape()
        assert before("weft_engines", state="alive") == 2
        assert before("weft_workflow_claims_active", node="e1@local") == len(held)

        setup.worker_cluster[0].kill()
        wait_until(lambda: not deployment.held_by(killed), what="the claims to move")
        goal = before("weft_workflow_claim_attempts_total", **TAKEOVERS) + len(held)
        wait_until(
            lambda: exporter.scrape()("weft_workflow_claim_attempts_total", **TAKEOVERS) >= goal,
            what="the takeovers in the scrape",
        )
        # Whoever counted something now has written it by then.
        deployment.wait_for_beats("e2", beats=BEATS_PER_TTL)
        after = exporter.scrape()
        assert after("weft_workflow_claim_attempts_total", **TAKEOVERS) == goal
        assert len(deployment.events("taken-over", *held)) == moves + len(held)
        recovered = after("weft_workflow_recovery_seconds_count") - before("weft_workflow_recovery_seconds_count")
        took = after("weft_workflow_recovery_seconds_sum") - before("weft_workflow_recovery_seconds_sum")
        assert recovered == len(held)
        assert TTL + GRACE <= (took / recovered) * INTERVAL <= TTL + GRACE + 2 * INTERVAL + SLACK
        assert after("weft_engines", state="alive") == 1
        assert after("weft_workflow_claims_active", node="e1@local") == 0
        assert after("weft_workflow_claims_stranded") == 0

        setup.worker_cluster[0].process.restart()
        wait_until(lambda: exporter.scrape()("weft_engines", state="alive") == 2, what="the engine in the scrape")


def test_turns_wakes_and_passes_are_counted_once_in_whatever_process_they_ran(
    setup: CeleryTestSetup, deployment: Deployment
) -> None:
    ids = [f"woken-{n}" for n in range(12)]
    committed = {"type": "permit", "outcome": "committed"}
    with exporter_of(deployment, "exporter-turns") as exporter:
        before = exporter.scrape()
        deployment.park(*ids)
        for id in ids:
            deployment.weft.signal(id, "event", "closed")
        deployment.wait_for_all(ids)
        goal = before("weft_workflow_turns_total", **committed) + 2 * len(ids)
        wait_until(
            lambda: exporter.scrape()("weft_workflow_turns_total", **committed) >= goal, what="the turns in the scrape"
        )
        deployment.wait_for_beats("e1", "e2", beats=BEATS_PER_TTL)
        after = exporter.scrape()

    assert after("weft_workflow_turns_total", **committed) == goal
    for sample, count in (("turn", 2 * len(ids)), ("signal_wake", len(ids))):
        name = f"weft_workflow_{sample}_seconds_count"
        assert after(name, type="permit") - before(name, type="permit") == count
    acquired = {"outcome": "acquired"}
    attempts = "weft_workflow_claim_attempts_total"
    assert after(attempts, **acquired) - before(attempts, **acquired) == len(ids)
    for kind in ("renewal", "reclaim", "signal-poll", "update-poll"):
        assert after("weft_pass_seconds_count", **{"pass": kind}) > before("weft_pass_seconds_count", **{"pass": kind})
        assert after("weft_pass_seconds_sum", **{"pass": kind}) > before("weft_pass_seconds_sum", **{"pass": kind})
        assert 0 <= after("weft_pass_lag_seconds", **{"pass": kind}) < (INTERVAL + SLACK).total_seconds()
    # The parser takes the end of a counter's name for its kind.
    assert set(after.families) == {metric.name.removesuffix("_total") for metric in catalogue.METRICS}


def test_an_exporter_whose_store_is_away_says_so_and_recovers(
    setup: CeleryTestSetup, deployment: Deployment, local_postgres: LocalPostgres
) -> None:
    with exporter_of(deployment, "exporter-away") as exporter:
        for go_away, come_back in (
            (local_postgres.process.stop, local_postgres.start),
            (local_postgres.pause, local_postgres.resume),
        ):
            assert exporter.scrape()("weft_up") == 1
            go_away()
            try:
                away = exporter.scrape()
            finally:
                come_back()
            assert away("weft_up") == 0
            assert set(away.families) == {"weft_up"}
            wait_until(lambda: exporter.scrape()("weft_engines", state="alive") == 2, what="both engines in the scrape")
