"""`run_once`: the order, a part for each target, no part at the mercy of another, and a sink that hears of each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pass_fakes import (
    Heard,
    ManualClock,
    ReclaimFake,
    RenewalFake,
    SignalFake,
    UpdateFake,
    context,
    unreadable,
    waits,
)

from weft_tasks.passes import Targets, log_pass, run_once
from weft_tasks.passes.run_once import run_part
from weft_tasks.results import PassFailed, PassKind, PassResult, PassStatus, RunOnceResult

FIELD_OF = {
    PassKind.RENEWAL: "renewal",
    PassKind.RECLAIM: "reclaim",
    PassKind.SIGNAL_POLL: "signals",
    PassKind.UPDATE_POLL: "updates",
}
each_kind = pytest.mark.parametrize("kind", list(PassKind))


def one() -> Sequence[str]:
    return ["wf-0"]


def working() -> Targets:
    return Targets(
        renewal=RenewalFake(one),
        reclaim=ReclaimFake(one),
        signals=SignalFake(lambda: waits("wf-0")),
        updates=UpdateFake(one),
    )


def without(kind: PassKind) -> Targets:
    return replace(working(), **{FIELD_OF[kind]: None})


def with_unreadable(kind: PassKind) -> Targets:
    targets = working()
    targets.of(kind).listing = unreadable  # type: ignore[union-attr]
    return targets


def part_of(result: RunOnceResult, kind: PassKind) -> Any:
    return {
        PassKind.RENEWAL: result.renewal,
        PassKind.RECLAIM: result.reclaim,
        PassKind.SIGNAL_POLL: result.signal_poll,
        PassKind.UPDATE_POLL: result.update_poll,
    }[kind]


def test_the_four_passes_run_in_their_order_into_one_result() -> None:
    heard = Heard()

    result = run_once(working(), context(), on_pass_complete=heard)

    assert heard.kinds == [PassKind.RENEWAL, PassKind.RECLAIM, PassKind.SIGNAL_POLL, PassKind.UPDATE_POLL]
    assert list(result.parts) == heard.reports
    assert [dict(part.counts) for part in heard.reports] == [
        {"renewed": 1},
        {"reclaimed": 1},
        {"woken": 1},
        {"drained": 1},
    ]
    assert result.failed == ()


def test_the_combined_result_covers_the_time_of_all_parts() -> None:
    clock = ManualClock()
    start = clock.now()

    result = run_once(working(), context(clock), on_pass_complete=lambda _: clock.advance(timedelta(seconds=1)))

    assert (result.started_at, result.finished_at) == (start, start + timedelta(seconds=4))


def test_each_part_has_the_deadline_to_itself() -> None:
    clock = ManualClock()

    result = run_once(working(), context(clock), on_pass_complete=lambda _: clock.advance())

    assert {part.status for part in result.parts if isinstance(part, PassResult)} == {PassStatus.COMPLETED}


@each_kind
def test_a_target_left_out_leaves_its_part_none_and_the_sink_silent(kind: PassKind) -> None:
    heard = Heard()

    result = run_once(without(kind), context(), on_pass_complete=heard)

    assert part_of(result, kind) is None
    assert heard.kinds == [other for other in PassKind if other is not kind]


@each_kind
def test_a_part_that_fails_for_ever_stops_none_of_the_others_and_is_named(kind: PassKind) -> None:
    targets, ctx = with_unreadable(kind), context()

    for _ in range(3):
        result = run_once(targets, ctx)

        assert result.failed == (kind,)
        assert [part.counts for part in result.parts if part.kind is not kind and isinstance(part, PassResult)] == [
            {done: 1}
            for other, done in zip(PassKind, ("renewed", "reclaimed", "woken", "drained"), strict=True)
            if other is not kind
        ]


def test_a_part_that_raises_is_a_result_and_the_sink_hears_of_it() -> None:
    heard, clock = Heard(), ManualClock()

    result = run_once(with_unreadable(PassKind.RENEWAL), context(clock), on_pass_complete=heard)

    assert result.renewal == PassFailed(
        kind=PassKind.RENEWAL, error="OSError: the store is away", started_at=clock.now(), finished_at=clock.now()
    )
    assert heard.reports[0] is result.renewal


@each_kind
def test_any_part_may_raise_and_still_be_a_result(kind: PassKind) -> None:
    ctx = context()
    without_a_pool = replace(ctx, pools={other: pool for other, pool in ctx.pools.items() if other is not kind})

    result = run_once(working(), without_a_pool)

    assert isinstance(part_of(result, kind), PassFailed)
    assert result.failed == (kind,)


def test_an_interrupt_is_not_made_into_a_result() -> None:
    def interrupted() -> Sequence[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_once(Targets(renewal=RenewalFake(interrupted)), context())


def test_one_part_may_be_run_by_its_kind() -> None:
    heard = Heard()

    report = run_part(PassKind.RECLAIM, working(), context(), heard)

    assert heard.reports == [report]
    assert run_part(PassKind.RECLAIM, Targets(), context(), heard) is None


# -- the sink --------------------------------------------------------------------------------------------------------


def test_a_sink_that_raises_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Any) -> None:
        raise ValueError("the sink is broken")

    result = run_once(working(), context(), on_pass_complete=broken)

    assert result == run_once(working(), context(), on_pass_complete=Heard())
    assert [record.getMessage() for record in caplog.records] == [
        f"weft.pass.sink-failed pass={kind.value}" for kind in PassKind
    ]
    assert {record.name for record in caplog.records} == {"weft_tasks.passes"}
    assert "the sink is broken" in caplog.text


def test_without_a_sink_each_pass_that_did_something_is_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "weft_tasks.passes")

    run_once(with_unreadable(PassKind.RENEWAL), context())

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "weft.pass.failed pass=renewal error='OSError: the store is away'"),
        ("INFO", "weft.pass.completed pass=reclaim status=completed seconds=0.000 reclaimed=1"),
        ("INFO", "weft.pass.completed pass=signal-poll status=completed seconds=0.000 woken=1"),
        ("INFO", "weft.pass.completed pass=update-poll status=completed seconds=0.000 drained=1"),
    ]


def test_a_pass_that_found_nothing_to_do_is_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "weft_tasks.passes")

    run_once(Targets(renewal=RenewalFake(), signals=SignalFake()), context())

    assert caplog.records == []


def test_a_pass_that_was_cut_or_could_not_read_is_a_warning_with_all_counts(caplog: pytest.LogCaptureFixture) -> None:
    now = ManualClock().now()
    times: Any = {"started_at": now, "finished_at": now + timedelta(seconds=15)}

    log_pass(PassResult(kind=PassKind.RENEWAL, status=PassStatus.DEADLINE_REACHED, unreached=3, **times))
    log_pass(PassResult(kind=PassKind.RECLAIM, status=PassStatus.DISCOVERY_FAILED, error="OSError: away", **times))

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "weft.pass.completed pass=renewal status=deadline-reached seconds=15.000 unreached=3"),
        (
            "WARNING",
            "weft.pass.completed pass=reclaim status=discovery-failed seconds=15.000 error='OSError: away'",
        ),
    ]
