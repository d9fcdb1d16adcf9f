"""Time in workflows: waits with deadlines, sleeps, delayed starts, timeouts and retries, by the database's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flows import DAY, HOUR, MINUTE, collect, complete_with_input, fails, statuses, wait_for_ever

from weft_tasks.errors import InvalidInput, WorkflowEnded
from weft_tasks.model import WorkflowStatus
from weft_tasks.settings import Settings
from weft_tasks.testing import WorkflowBed
from weft_tasks.workflows.registry import Retry
from weft_tasks.workflows.turn import Turn, TurnEnd

SECOND = timedelta(seconds=1)
MS = timedelta(milliseconds=1)
R = Settings().renew_interval


def when(moment: datetime) -> str:
    return moment.isoformat()


@pytest.fixture
def parking(bed: WorkflowBed) -> WorkflowBed:
    """With a workflow that waits an hour for `paid` and says what came of it, and when."""

    @bed.workflow("parking")
    def parking(turn: Turn) -> TurnEnd | None:
        if turn.take("paid"):
            return turn.complete(["paid", turn.timed_out, when(turn.began_at)])
        if turn.timed_out:
            return turn.complete(["timed out", True, when(turn.began_at)])
        turn.wait("paid", timeout=HOUR)
        return None

    return bed


# -- waits


def test_a_wait_ends_at_its_timeout_and_not_before(parking: WorkflowBed) -> None:
    parking.start("parking", "p")
    parking.run_due()
    deadline = parking.now + HOUR
    parking.advance(HOUR - MS)
    assert parking.status("p") is WorkflowStatus.RUNNING
    parking.advance(MS)
    assert parking.result("p") == ["timed out", True, when(deadline)]


def test_a_signal_in_time_wins_over_the_timeout(parking: WorkflowBed) -> None:
    parking.start("parking", "p")
    parking.run_due()
    parking.advance(HOUR - MS)
    parking.signal("p", "paid")
    parking.run_due()
    assert parking.result("p") == ["paid", False, when(parking.now)]


def test_a_signal_that_comes_after_the_deadline_but_before_the_turn_began_wins_as_well(parking: WorkflowBed) -> None:
    """What counts is what the turn sees when it begins, and that stays the same in every try."""
    parking.start("parking", "p")
    parking.run_due()
    parking.weft.suspend("p")
    parking.advance(2 * HOUR)
    parking.signal("p", "paid")
    parking.weft.resume("p")
    parking.run_due()
    assert parking.result("p") == ["paid", False, when(parking.now)]


def test_of_several_waits_the_first_wakes_and_the_turn_sees_which_have_passed(bed: WorkflowBed) -> None:
    @bed.workflow("several")
    def several(turn: Turn) -> TurnEnd | None:
        if turn.timed_out:
            passed = sorted(name for name, deadline in turn.deadlines.items() if deadline <= turn.began_at)
            return turn.complete([passed, when(turn.began_at)])
        turn.wait("slow", timeout=2 * HOUR)
        turn.wait("quick", "also", timeout=HOUR)
        turn.wait("whenever")
        return None

    bed.start("several", "s")
    bed.run_due()
    assert {wait.name: wait.deadline for wait in bed.describe("s").waits} == {
        "slow": bed.now + 2 * HOUR,
        "quick": bed.now + HOUR,
        "also": bed.now + HOUR,
        "whenever": None,
    }
    due_at = bed.now + HOUR
    bed.advance(DAY)
    assert bed.result("s") == [["also", "quick"], when(due_at)]


def test_any_of_the_awaited_signals_wakes_and_others_do_not(bed: WorkflowBed) -> None:
    @bed.workflow("either")
    def either(turn: Turn) -> TurnEnd | None:
        came = [signal.name for name in ("a", "b") for signal in turn.take(name)]
        if came:
            return turn.complete(came)
        turn.wait("a", "b")
        return None

    bed.start("either", "e")
    bed.run_due()
    bed.signal("e", "c")
    bed.run_due()
    assert len(bed.turns) == 1
    bed.signal("e", "b")
    bed.run_due()
    assert bed.result("e") == ["b"]


@pytest.mark.parametrize("disturbance", ["none", "retry", "crash", "other signal"])
def test_a_wait_that_goes_on_until_its_deadline_does_not_start_anew(bed: WorkflowBed, disturbance: str) -> None:
    @bed.workflow("patient", retry=Retry(delay=MINUTE))
    def patient(turn: Turn) -> TurnEnd | None:
        turn.state["events"] = turn.state.get("events", 0) + len(turn.take("event"))
        if turn.timed_out:
            return turn.complete([turn.state["events"], when(turn.began_at)])
        if turn.number == 1 and disturbance == "retry" and turn.tries == 0:
            raise RuntimeError("once")
        until = turn.deadlines.get("event", turn.began_at + HOUR)
        turn.wait("event", until=until)
        return None

    bed.start("patient", "p")
    bed.run_due()
    deadline = bed.now + HOUR
    if disturbance == "crash":
        bed.crash_next_turn()
    for _ in range(3):
        bed.advance(10 * MINUTE)
        bed.signal("p", "event" if disturbance != "other signal" else "unheard")
    bed.advance(2 * HOUR)
    assert bed.result("p") == [0 if disturbance == "other signal" else 3, when(deadline)]


@pytest.mark.parametrize("ago", [timedelta(0), MS, DAY])
def test_a_wait_until_a_time_that_has_passed_is_over_at_the_next_poll(bed: WorkflowBed, ago: timedelta) -> None:
    @bed.workflow("past")
    def past(turn: Turn) -> TurnEnd | None:
        if turn.timed_out:
            return turn.complete()
        turn.wait("never", until=turn.began_at - ago)
        return None

    bed.start("past", "p")
    bed.run_due()
    bed.advance(R)
    assert bed.status("p") is WorkflowStatus.COMPLETED


def test_waits_last_until_the_next_commit_only(bed: WorkflowBed) -> None:
    @bed.workflow("forgetful")
    def forgetful(turn: Turn) -> None:
        turn.take("second")
        turn.wait("first" if turn.number == 0 else "second")

    bed.start("forgetful", "f")
    bed.run_due()
    bed.signal("f", "first")
    bed.run_due()
    assert [wait.name for wait in bed.describe("f").waits] == ["second"]
    assert len(bed.turns) == 2


def test_a_deadline_that_passes_while_the_owner_is_dead_is_kept_by_its_successor(parking: WorkflowBed) -> None:
    parking.start("parking", "p")
    parking.run_due()
    parking.advance(HOUR - 20 * SECOND)
    parking.kill_engine()
    parking.advance(HOUR)
    result = parking.result("p")
    assert isinstance(result, list)
    assert result[0] == "timed out"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"timeout": -1}, "timeout must be from 0"),
        ({"timeout": timedelta(days=-1)}, "timeout must be from 0"),
        ({"timeout": "soon"}, "timeout must be a timedelta or seconds"),
        ({"timeout": True}, "timeout must be a timedelta or seconds"),
        ({"timeout": float("nan")}, "timeout cannot be nan"),
        ({"timeout": float("inf")}, "timeout cannot be inf"),
        ({"timeout": 1, "until": datetime(2030, 1, 1, tzinfo=UTC)}, "not both"),
        ({"until": datetime(2030, 1, 1)}, "time zone"),
        ({"until": datetime.max.replace(tzinfo=UTC)}, "until"),
    ],
)
def test_a_wait_that_cannot_be_is_refused(bed: WorkflowBed, arguments: dict[str, Any], problem: str) -> None:
    @bed.workflow("bad")
    def bad(turn: Turn) -> TurnEnd:
        with pytest.raises(InvalidInput, match=problem):
            turn.wait("event", **arguments)
        return turn.complete("refused")

    bed.start("bad", "b")
    bed.run_due()
    assert bed.result("b") == "refused"


# -- sleeps


def test_a_sleep_ends_at_its_time(bed: WorkflowBed) -> None:
    @bed.workflow("sleeper")
    def sleeper(turn: Turn) -> TurnEnd | None:
        if turn.number == 0:
            turn.sleep(90)
            return None
        return turn.complete([turn.timed_out, when(turn.began_at)])

    bed.start("sleeper", "s")
    bed.run_due()
    wakes_at = bed.now + timedelta(seconds=90)
    bed.advance(DAY)
    assert bed.result("s") == [True, when(wakes_at)]


def test_signals_do_not_wake_a_sleeper_and_are_there_when_it_wakes(bed: WorkflowBed) -> None:
    @bed.workflow("sleeper")
    def sleeper(turn: Turn) -> TurnEnd | None:
        if turn.number == 0:
            turn.sleep(HOUR)
            return None
        return turn.complete([signal.payload for signal in turn.take("event")])

    bed.start("sleeper", "s")
    bed.run_due()
    bed.signal("s", "event", 1)
    bed.advance(HOUR - SECOND)
    assert len(bed.turns) == 1
    bed.advance(SECOND)
    assert bed.result("s") == [1]


# -- starts


def test_a_delayed_start_has_its_first_turn_after_the_delay(bed: WorkflowBed) -> None:
    @bed.workflow("when")
    def tell(turn: Turn) -> TurnEnd:
        return turn.complete(when(turn.began_at))

    bed.start("when", "d", delay=HOUR)
    starts_at = bed.now + HOUR
    bed.advance(HOUR - MS)
    assert bed.turns == ()
    bed.advance(DAY)
    assert bed.result("d") == when(starts_at)


def test_a_start_at_a_time_is_by_the_clock_of_the_database(bed: WorkflowBed) -> None:
    """Whatever the clock of the process says that starts it (O2)."""

    @bed.workflow("when")
    def tell(turn: Turn) -> TurnEnd:
        return turn.complete(when(turn.began_at))

    at = bed.now + HOUR
    bed.start("when", "d", at=at)
    bed.advance(DAY)
    assert bed.result("d") == when(at)


@pytest.mark.parametrize("delay", [0, timedelta(0)])
def test_a_start_without_delay_is_told_at_once(bed: WorkflowBed, delay: Any) -> None:
    bed.workflow("input")(complete_with_input)
    bed.start("input", "d", delay=delay)
    bed.run_due()
    assert bed.status("d") is WorkflowStatus.COMPLETED


def test_a_start_at_a_time_that_has_passed_begins_within_an_interval(bed: WorkflowBed) -> None:
    bed.workflow("input")(complete_with_input)
    bed.start("input", "d", at=bed.now - DAY)
    bed.advance(R)
    assert bed.status("d") is WorkflowStatus.COMPLETED


def test_a_signal_or_an_update_does_not_bring_a_delayed_start_forward(bed: WorkflowBed) -> None:
    bed.workflow("collect")(collect)
    bed.start("collect", "d", delay=HOUR)
    bed.signal("d", "event", "closed")
    bed.advance(HOUR - SECOND)
    assert bed.turns == ()
    bed.advance(SECOND)
    assert bed.result("d") == ["closed"]


def test_a_delayed_start_survives_the_death_of_every_engine(bed: WorkflowBed) -> None:
    bed.workflow("input")(complete_with_input)
    bed.start("input", "d", delay=HOUR)
    bed.advance(MINUTE)
    for engine in bed.engines:
        bed.kill_engine(engine)
    bed.add_engine()
    bed.advance(2 * HOUR)
    assert bed.status("d") is WorkflowStatus.COMPLETED


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"delay": -1}, "delay must be from 0"),
        ({"delay": "1"}, "delay must be a timedelta or seconds"),
        ({"at": datetime(2030, 1, 1)}, "time zone"),
        ({"at": "2030-01-01"}, "at"),
        ({"at": datetime.max.replace(tzinfo=UTC)}, "at"),
        ({"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "not both"),
        ({"timeout": -0.1}, "timeout must be from 0"),
        ({"timeout": timedelta.max}, "timeout must be from 0"),
    ],
)
def test_a_start_at_a_time_that_cannot_be_is_refused_and_starts_nothing(
    bed: WorkflowBed, arguments: dict[str, Any], problem: str
) -> None:
    bed.workflow("input")(complete_with_input)
    with pytest.raises(InvalidInput, match=problem):
        bed.start("input", "d", **arguments)
    assert bed.weft.list() == ()


# -- the workflow's own timeout


def test_a_workflow_that_takes_too_long_ends_as_timed_out(bed: WorkflowBed) -> None:
    bed.workflow("waits")(wait_for_ever)
    bed.start("waits", "w", timeout=HOUR)
    bed.advance(HOUR - MS)
    assert bed.status("w") is WorkflowStatus.RUNNING
    bed.advance(MS)
    info = bed.describe("w")
    assert (info.status, info.engine_id, info.ended_at) == (WorkflowStatus.TIMED_OUT, None, bed.now)
    assert info.error is not None
    assert info.error["type"] == "TimedOut"
    with pytest.raises(WorkflowEnded, match="timed-out"):
        bed.signal("w", "never")


def test_a_timeout_counts_from_the_start_and_includes_the_delay(bed: WorkflowBed) -> None:
    bed.workflow("input")(complete_with_input)
    bed.start("input", "w", delay=2 * HOUR, timeout=HOUR)
    bed.advance(DAY)
    assert (bed.status("w"), bed.turns) == (WorkflowStatus.TIMED_OUT, ())


@pytest.mark.parametrize("kept_by", ["suspend", "set aside", "dead engines"])
def test_a_timeout_ends_a_workflow_also_when_no_turn_could_run(bed: WorkflowBed, kept_by: str) -> None:
    bed.workflow("waits")(wait_for_ever)
    bed.start("waits", "w", timeout=HOUR)
    if kept_by == "set aside":
        for _ in range(Settings().begun_turn_limit):
            bed.crash_next_turn()
        bed.advance(10 * MINUTE)
        assert bed.status("w") is WorkflowStatus.SET_ASIDE
    else:
        bed.run_due()
    if kept_by == "suspend":
        bed.weft.suspend("w")
    if kept_by == "dead engines":
        for engine in bed.engines:
            bed.kill_engine(engine)
    bed.advance(HOUR)
    assert bed.status("w") is WorkflowStatus.TIMED_OUT


def test_a_turn_that_runs_when_the_timeout_comes_cannot_commit(bed: WorkflowBed) -> None:
    @bed.workflow("slow")
    def slow(turn: Turn) -> TurnEnd:
        bed.advance(2 * HOUR)
        assert turn.cancelled
        return turn.complete("too late")

    bed.start("slow", "w", timeout=HOUR)
    bed.run_due()
    assert (bed.status("w"), statuses(bed)) == (WorkflowStatus.TIMED_OUT, ["refused"])
    assert len(bed.aborted) == 1


def test_a_workflow_that_ends_in_time_does_not_time_out_later(bed: WorkflowBed) -> None:
    bed.workflow("input")(complete_with_input)
    bed.start("input", "w", 1, timeout=HOUR)
    bed.advance(DAY)
    assert bed.result("w") == 1


# -- retries


def tries_of(bed: WorkflowBed, retry: Retry | None) -> list[timedelta]:
    """When the tries of a turn that always raises began, counted from the start."""
    began, start = [], bed.now

    @bed.workflow("failing", retry=retry)
    def failing(turn: Turn) -> TurnEnd:
        began.append(bed.now - start)
        assert turn.tries == len(began) - 1
        raise RuntimeError(f"try {len(began)}")

    bed.start("failing", "f")
    bed.advance(DAY)
    return began


def test_tries_come_ever_later_and_end_in_a_failure_with_the_error_and_its_traceback(bed: WorkflowBed) -> None:
    assert tries_of(bed, None) == [seconds * SECOND for seconds in (0, 1, 3, 7, 15)]
    info = bed.describe("f")
    assert info.status is WorkflowStatus.FAILED
    assert info.error is not None
    assert (info.error["type"], info.error["message"]) == ("RuntimeError", "try 5")
    assert "in failing" in str(info.error["traceback"])
    assert statuses(bed) == ["retrying"] * 4 + ["failed"]


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (Retry(tries=1), [0]),
        (Retry(tries=3, delay=timedelta(0)), [0, 0, 0]),
        (Retry(tries=4, delay=10 * SECOND), [0, 10, 30, 70]),
        (Retry(tries=5, delay=10 * SECOND, max_delay=15 * SECOND), [0, 10, 25, 40, 55]),
    ],
)
def test_each_type_has_its_own_retry_policy(bed: WorkflowBed, retry: Retry, expected: list[int]) -> None:
    began = tries_of(bed, retry)
    within_a_poll = R if retry.delay == timedelta(0) else timedelta(0)
    for at, wanted in zip(began, expected, strict=True):
        assert wanted * SECOND <= at <= wanted * SECOND + 3 * within_a_poll
    assert bed.status("f") is WorkflowStatus.FAILED


def test_the_error_of_a_try_can_be_seen_until_the_turn_commits(bed: WorkflowBed) -> None:
    @bed.workflow("second-try")
    def second_try(turn: Turn) -> None:
        if turn.tries == 0:
            raise RuntimeError("the first")
        turn.wait("never")

    bed.start("second-try", "s")
    bed.run_due()
    error = bed.describe("s").error
    assert error is not None
    assert error["message"] == "the first"
    bed.advance(MINUTE)
    assert bed.describe("s").error is None


def test_a_try_sees_what_the_first_one_saw(bed: WorkflowBed) -> None:
    """State, signals, time and whether a wait timed out, although more has come and time has passed."""
    saw = []

    @bed.workflow("again", retry=Retry(delay=MINUTE))
    def again(turn: Turn) -> None:
        if turn.number == 1:
            events = [signal.payload for signal in turn.take("event")]
            saw.append((events, dict(turn.state), when(turn.began_at), turn.timed_out, turn.idempotency_key()))
            turn.state["touched"] = True
            if turn.tries < 2:
                bed.signal("a", "event", "later")
                raise RuntimeError("again")
        turn.take("event")
        turn.wait("event", timeout=HOUR)

    bed.start("again", "a")
    bed.run_due()
    bed.signal("a", "event", "first")
    bed.advance(10 * MINUTE)
    assert len(saw) == 3
    assert saw[0] == saw[1] == saw[2]
    assert saw[0][0] == ["first"]


def test_a_crash_does_not_count_as_a_try_and_a_try_does_not_count_as_a_crash(bed: WorkflowBed) -> None:
    bed.workflow("fails")(fails)
    bed.start("fails", "f")
    for _ in range(Settings().begun_turn_limit - 1):
        bed.crash_next_turn(before="handler")
    bed.advance(HOUR)
    assert bed.status("f") is WorkflowStatus.FAILED
    assert statuses(bed) == ["retrying"] * 4 + ["failed"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [({"tries": 0}, "at least 1"), ({"delay": -SECOND}, "negative"), ({"max_delay": -SECOND}, "negative")],
)
def test_a_policy_that_cannot_be_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Retry(**arguments)
