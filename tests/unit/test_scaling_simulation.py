"""The simulation of a large fleet, on fleets so small that the right answer is known."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scaling import __main__ as command
from benchmarks.scaling import fleet as fleets
from benchmarks.scaling.cores import Cores
from benchmarks.scaling.costs import Costs, Work, read_costs
from benchmarks.scaling.fleet import Life
from benchmarks.scaling.page import MARKS, between
from benchmarks.scaling.scenarios import deploy, report_of
from benchmarks.scaling.simulation import Outcome, Plan, renewal_seconds, simulate
from weft_tasks.results import PassKind, PassStatus
from weft_tasks.settings import Settings
from weft_tasks.store import workflows

FREE = Work(client_s=0.0, server_s=0.0)
COSTS = Costs(
    renewal=Work(client_s=0.001, server_s=0.001),
    waiting=FREE,
    listed=FREE,
    counted=FREE,
    move=Work(client_s=0.001, server_s=0.002, log_bytes=100.0),
    release=Work(client_s=0.001, server_s=0.001),
    heartbeat=FREE,
    idle=FREE,
)
SETTINGS = Settings()
T, G, R = (value.total_seconds() for value in (SETTINGS.claim_ttl, SETTINGS.grace, SETTINGS.renew_interval))
BEAT = SETTINGS.heartbeat_interval.total_seconds()
A_PASS = 1.0
"""More than any of these fleets needs for one."""


def engines(count: int) -> list[Life]:
    return [Life(engine_id=f"e{number}", born_at=-0.1 * number) for number in range(count)]


def ran(
    lives: Sequence[Life], *, workflows: int = 120, lasts: float = 120, costs: Costs = COSTS, shards: int = 1
) -> Outcome:
    settings = Settings(shards=shards)
    return simulate(Plan(workflows=workflows, lives=lives, lasts=lasts, settings=settings), costs)


def holders(outcome: Outcome) -> Counter[str | None]:
    return Counter(outcome.fleet.holders)


# -- cores


def test_work_is_done_no_faster_than_it_is_asked_for_nor_than_there_are_cores() -> None:
    assert Cores(2).serve(1.0, work=4.0, quickest=8.0) == pytest.approx(9.0)
    assert Cores(2).serve(1.0, work=4.0, quickest=0.5) == pytest.approx(3.0)
    assert Cores(2, reserved=1).serve(1.0, work=4.0, quickest=0.5) == pytest.approx(5.0)


def test_two_that_ask_one_core_are_done_when_it_has_done_both() -> None:
    core = Cores(1)
    assert core.serve(0.0, work=1.0, quickest=1.0) == pytest.approx(1.0)
    assert core.serve(0.0, work=1.0, quickest=1.0) == pytest.approx(2.0)
    assert [core.busy(second) for second in range(3)] == pytest.approx([1, 1, 0])


def test_cores_that_are_all_busy_already_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        Cores(1, reserved=1.5)


# -- recovery


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("moment", [10.0, 11.3, 14.9])
def test_a_killed_engines_workflows_have_an_owner_within_T_G_R_and_a_pass(moment: float, shards: int) -> None:
    first, *others = engines(4)
    outcome = ran([replace(first, ends_at=moment, is_clean=False), *others], shards=shards)
    assert len(outcome.fleet.recovered_s) == 30
    assert min(outcome.fleet.recovered_s) >= T + G - BEAT
    assert max(outcome.fleet.recovered_s) <= T + G + R + A_PASS
    # No claim is lost, and none moves that need not. Each shard spreads its own evenly.
    assert holders(outcome).keys() == {"e1", "e2", "e3"}
    assert holders(outcome).total() == 120
    assert all(abs(load - 40) < shards for load in holders(outcome).values())
    assert Counter(outcome.fleet.epochs) == {1: 90, 2: 30}


def test_a_clean_stop_is_over_at_once() -> None:
    first, *others = engines(4)
    outcome = ran([replace(first, ends_at=12.0), *others])
    assert holders(outcome) == {"e1": 40, "e2": 40, "e3": 40}
    assert max(outcome.fleet.recovered_s) < A_PASS


def test_a_killed_engine_whose_successor_has_its_name_need_not_be_waited_for() -> None:
    first, *others = engines(4)
    outcome = ran([replace(first, ends_at=12.0, is_clean=False, noticed_at=19.0), *others])
    assert len(outcome.fleet.recovered_s) == 30
    assert max(outcome.fleet.recovered_s) <= 7 + R + A_PASS


def test_when_all_stop_at_once_everything_waits_for_the_first_that_comes_back() -> None:
    outcome = ran(deploy(4, 1, every=0, back_after=20))
    # They stop within a second of each other, so the last of them still takes what the first one held.
    assert sum(wait >= 19 for wait in outcome.fleet.recovered_s) == 120
    assert max(outcome.fleet.recovered_s) <= 20 + 1 + R + A_PASS
    assert all(str(holder).endswith("+") for holder in outcome.fleet.holders)


def test_nothing_recovers_while_nobody_lives() -> None:
    outcome = ran([replace(life, ends_at=10.0) for life in engines(2)])
    assert (outcome.fleet.recovered_s, len(outcome.fleet.orphaned_at)) == ([], 120)


def test_what_was_given_to_an_engine_that_has_just_died_waits_on() -> None:
    first, second, third = engines(3)
    lives = [replace(first, ends_at=60.0), replace(second, ends_at=59.9, is_clean=False), third]
    outcome = ran(lives, lasts=130)
    assert holders(outcome) == {"e2": 120}
    assert min(outcome.fleet.recovered_s) < A_PASS
    assert max(outcome.fleet.recovered_s) <= T + G + R + A_PASS
    assert sum(outcome.fleet.moved.values()) > 80, "some moved twice"


# -- passes


def test_a_list_that_takes_longer_than_a_statement_may_moves_nothing() -> None:
    slow = replace(COSTS, waiting=Work(client_s=0.0, server_s=SETTINGS.statement_timeout.total_seconds()))
    first, *others = engines(4)
    outcome = ran([replace(first, ends_at=12.0), *others], costs=slow, lasts=60)
    assert outcome.fleet.recovered_s == []
    assert PassStatus.DISCOVERY_FAILED in {each.status for each in outcome.passes}


def test_a_pass_lists_as_many_as_the_product_does_and_another_one_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fleets, workflows):
        monkeypatch.setattr(module, "MOST_CANDIDATES", 10)
    first, *others = engines(4)
    outcome = ran([replace(first, ends_at=12.0), *others])
    assert [each.moved for each in outcome.passes if each.moved] == [10, 10, 10]
    assert max(outcome.fleet.recovered_s) < A_PASS
    assert holders(outcome) == {"e1": 40, "e2": 40, "e3": 40}


def test_a_pass_that_is_not_done_in_time_is_cut_and_the_rest_is_moved_later() -> None:
    dear = replace(COSTS, move=Work(client_s=0.02, server_s=0.0))
    outcome = ran([*engines(1), Life(engine_id="gone", ends_at=2.0)], workflows=4_000, costs=dear, lasts=200)
    reclaims = [each for each in outcome.passes if each.kind is PassKind.RECLAIM and each.moved]
    # Whatever slice has begun at the deadline is finished.
    assert [each.moved for each in reclaims] == [1_000, 1_000]
    assert reclaims[0].status is PassStatus.DEADLINE_REACHED
    assert holders(outcome) == {"e0": 4_000}


def test_a_renewal_pass_that_is_longer_than_the_interval_keeps_the_next_tick_out() -> None:
    outcome = ran(engines(1), workflows=8_000, lasts=39)
    renewals = [each for each in outcome.passes if each.kind is PassKind.RENEWAL]
    assert [(each.begun, round(each.took, 3)) for each in renewals] == [(0, 8), (10, 8), (20, 8), (30, 8)]
    assert outcome.skipped == 4


def test_shards_divide_a_pass_as_far_as_the_store_has_cores() -> None:
    plan = Plan(workflows=8_000, lives=engines(1), lasts=0)
    four = replace(plan, settings=Settings(shards=4))
    assert renewal_seconds(plan, COSTS) == pytest.approx(8)
    assert renewal_seconds(four, COSTS) == pytest.approx(2)
    assert renewal_seconds(replace(four, store_cores=1), COSTS) == pytest.approx(8)
    assert renewal_seconds(replace(four, maintenance_cores=2), COSTS) == pytest.approx(4)


# -- the report


def test_the_same_seed_gives_the_same_report_and_another_one_another() -> None:
    def report(seed: int) -> str:
        return json.dumps(report_of(400, 10, 2, 8, seed, COSTS)["runs"])

    assert report(1) == report(1)
    assert report(1) != report(2)


def test_a_deploy_lays_out_each_engine_and_its_successor() -> None:
    lives = {life.engine_id: life for life in deploy(3, 1, every=6, back_after=10)}
    assert [lives[f"engine-{n:03}"].ends_at for n in range(3)] == [30, 36, 42]
    assert [lives[f"engine-{n:03}+"].born_at for n in range(3)] == [40, 46, 52]


def test_the_command_writes_a_report_of_a_small_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["scaling", "--claims", "1000", "--engines", "10", "--shards", "2"])
    command.main()
    report = json.loads((tmp_path / "var/benchmarks/scaling.json").read_text())
    assert [(run["name"], run["shards"], run["waiting"]) for run in report["runs"]] == [
        (name, shards, 0) for shards in (1, 2) for name in ("one engine", "one in ten", "rolling", "all at once")
    ]
    assert "rolling, 2 shards" in capsys.readouterr().out


def test_every_cost_was_measured() -> None:
    costs = read_costs()
    assert min(costs.renewal.server_s, costs.move.server_s, costs.waiting.server_s, costs.listed.client_s) > 0


def test_a_table_takes_the_place_of_the_one_between_its_marks() -> None:
    page = f"before\n{MARKS.format(name='x')}\n\nold\n\n<!-- end -->\nafter"
    written = between(page, "x", ["new"])
    assert written == page.replace("old", "new")
    assert between(written, "x", ["new"]) == written
    with pytest.raises(ValueError, match="no marks for y"):
        between(page, "y", [])


def test_the_loads_that_the_plan_starts_from_are_those_of_the_shard() -> None:
    """Else a shard would take an engine that has nothing of it for the fullest."""
    lives = [*engines(4), Life(engine_id="new", born_at=5.0), Life(engine_id="gone", born_at=-1.0, ends_at=10.0)]
    outcome = ran(lives, workflows=1_000, shards=4)
    shares = holders(outcome)
    assert sum(shares.values()) == 1_000
    assert shares["new"] == 200
