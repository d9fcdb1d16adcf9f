"""The ordered pool: order, width, hung items, the deadline, and what one run leaves to the next."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pass_fakes import LONG, ManualClock, join_pool_threads

from weft_tasks.errors import SettingsError, TooManyHungThreads
from weft_tasks.passes.clock import Deadline
from weft_tasks.passes.pool import OrderedPool
from weft_tasks.passes.work import NOT_REACHED, TRY_ALONE, PoolReport, Work

pytestmark = pytest.mark.filterwarnings("error")  # An error that ends a pool thread is only a warning to pytest.


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Hang:
    """A call that does not come back before the test is over, and tells when somebody is in it."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.release = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, *_: Any) -> str:
        self.threads.append(threading.current_thread())
        self.began.release()
        self.release.wait()
        return "late"

    def wait_begun(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.began.acquire(timeout=10)

    def end(self) -> None:
        self.release.set()
        for thread in self.threads:
            thread.join(10)


@pytest.fixture
def hang() -> Iterator[Hang]:
    hang = Hang()
    yield hang
    hang.end()


def work(attempt: Callable[[Any], Any], **more: Any) -> Work[Any, Any]:
    return Work(attempt=attempt, failure=lambda item, error: (item, error), key=lambda item: item, **more)


def results_of(report: PoolReport[Any]) -> Sequence[Any]:
    return report.results


def watch_starts(watch: Callable[[threading.Thread], None], monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def watched_start(thread: threading.Thread) -> None:
        watch(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", watched_start)


def doubled(item: int) -> int:
    return 2 * item


def cut_while_hanging(
    pool: OrderedPool, items: Sequence[Any], wanted: Work[Any, Any], clock: ManualClock, hang: Hang, *, calls: int = 1
) -> PoolReport[Any]:
    """A run whose deadline passes once `calls` of its calls hang. No other call is under way when this returns."""

    def let_time_pass() -> None:
        hang.wait_begun(calls)
        clock.advance()

    waiter = threading.Thread(target=let_time_pass)
    waiter.start()
    report = pool.run(items, wanted, clock.deadline())
    waiter.join()
    join_pool_threads("test", but=hang.threads)
    return report


# -- order and width -------------------------------------------------------------------------------------------------


def test_results_come_in_input_order_whatever_order_the_items_end_in(clock: ManualClock) -> None:
    second_ended = threading.Event()

    def attempt(item: int) -> int:
        if item == 0:
            assert second_ended.wait(10)
        if item == 1:
            second_ended.set()
        return 2 * item

    report = OrderedPool("test").run(range(100), work(attempt), clock.deadline())

    assert report.results == [2 * item for item in range(100)]


def test_sixteen_items_are_tried_at_once_and_never_more(clock: ManualClock) -> None:
    all_sixteen, lock = threading.Barrier(16), threading.Lock()
    now, most = 0, 0

    def attempt(_: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        all_sixteen.wait(10)
        with lock:
            now -= 1

    OrderedPool("test").run(range(16 * 5), work(attempt), clock.deadline())

    assert most == 16


def test_no_more_threads_are_started_than_there_are_items(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    together, started = threading.Barrier(3), list[str]()
    watch_starts(lambda thread: started.append(thread.name), monkeypatch)

    OrderedPool("renewal").run(range(3), work(lambda _: together.wait(10)), clock.deadline())

    assert started == ["weft-renewal-1", "weft-renewal-2", "weft-renewal-3"]


def test_one_item_runs_on_the_callers_thread_and_none_on_no_thread(clock: ManualClock) -> None:
    pool = OrderedPool("test")

    report = pool.run(["only"], work(lambda _: threading.current_thread()), clock.deadline())

    assert report.results == [threading.current_thread()]
    assert pool.run([], work(doubled), clock.deadline()).results == []


@pytest.mark.parametrize("count", [1, 3])
def test_an_item_that_raises_gets_its_failure_and_costs_no_other_item(clock: ManualClock, count: int) -> None:
    def attempt(item: int) -> int:
        if item == 0:
            raise ValueError("bad item")
        return item

    first, *others = OrderedPool("test").run(range(count), work(attempt), clock.deadline()).results

    assert isinstance(first, tuple)
    assert str(first[1]) == "bad item"
    assert others == list(range(1, count))


def test_an_exit_in_a_pool_thread_is_a_failure_of_its_item_only(clock: ManualClock) -> None:
    def attempt(item: int) -> int:
        return sys.exit(3) if item == 0 else item

    (_, error), *others = results_of(OrderedPool("test", width=1).run(range(3), work(attempt), clock.deadline()))

    assert isinstance(error, SystemExit)
    assert others == [1, 2]


def test_an_exit_of_a_lone_item_is_meant_for_the_caller(clock: ManualClock) -> None:
    with pytest.raises(SystemExit):
        OrderedPool("test").run(["only"], work(lambda _: sys.exit(3)), clock.deadline())


@pytest.mark.parametrize("settings", [{"width": 0}, {"max_leftover": 0}])
def test_a_pool_that_could_never_run_does_not_construct(settings: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match="width and max_leftover"):
        OrderedPool("test", **settings)


# -- threads the process does not give -------------------------------------------------------------------------------


def threads_run_out_after(count: int, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    given, refused = iter(range(count)), threading.Event()

    def refuse(_: threading.Thread) -> None:
        if next(given, None) is None:
            refused.set()
            raise RuntimeError("can't start new thread")

    watch_starts(refuse, monkeypatch)
    return refused


def test_fewer_threads_than_wanted_still_do_all_the_work(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = threads_run_out_after(2, monkeypatch)

    report = OrderedPool("test").run(range(50), work(lambda _: refused.wait(10)), clock.deadline())

    assert report.results == [True] * 50


def test_a_run_that_gets_no_thread_at_all_raises(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    threads_run_out_after(0, monkeypatch)

    with pytest.raises(RuntimeError, match="can't start new thread"):
        OrderedPool("test").run(range(50), work(doubled), clock.deadline())


# -- hung items and the deadline -------------------------------------------------------------------------------------


def test_a_hung_item_holds_up_neither_its_neighbours_nor_the_end(clock: ManualClock, hang: Hang) -> None:
    rest = threading.Semaphore(0)

    def attempt(item: int) -> Any:
        if item == 3:
            for _ in range(15):
                assert rest.acquire(timeout=10)
            join_pool_threads("test")
            clock.advance()
            return hang()
        rest.release()
        return item

    report = OrderedPool("test").run(range(16), work(attempt), clock.deadline())

    assert report.results == [NOT_REACHED if item == 3 else item for item in range(16)]


def test_what_the_deadline_leaves_unbegun_is_not_reached(clock: ManualClock) -> None:
    def attempt(item: int) -> int:
        clock.advance()
        return item

    report = OrderedPool("test", width=1).run(range(3), work(attempt), clock.deadline(LONG))

    assert report.results == [0, NOT_REACHED, NOT_REACHED]


@pytest.mark.parametrize("count", [1, 2])
def test_no_item_begins_after_the_deadline(clock: ManualClock, count: int) -> None:
    deadline = clock.deadline()
    clock.advance()

    assert OrderedPool("test").run(range(count), work(doubled), deadline).results == [NOT_REACHED] * count


def test_what_a_hung_item_returns_after_its_run_goes_nowhere(clock: ManualClock, hang: Hang) -> None:
    pool = OrderedPool("test")
    report = cut_while_hanging(pool, ["hung", "also hung"], work(hang), clock, hang, calls=2)

    hang.end()
    later = pool.run(["one", "two"], work(str.upper), clock.deadline())

    assert report.results == [NOT_REACHED, NOT_REACHED]
    assert later.results == ["ONE", "TWO"]


def test_an_interrupt_of_the_caller_ends_the_run(clock: ManualClock) -> None:
    class Interrupting(ManualClock):
        def monotonic(self) -> float:
            if threading.current_thread() is threading.main_thread() and tried:
                raise KeyboardInterrupt
            return super().monotonic()

    tried: list[int] = []
    interrupted, caller_is_out = Interrupting(), threading.Event()

    def attempt(item: int) -> None:
        tried.append(item)
        assert caller_is_out.wait(10)

    pool = OrderedPool("interrupted", width=1)
    with pytest.raises(KeyboardInterrupt):
        pool.run(range(1_000), work(attempt), interrupted.deadline())
    caller_is_out.set()
    join_pool_threads("interrupted")

    assert tried == [0]


def test_a_process_with_a_hung_item_exits_at_once() -> None:
    program = """
import threading
from datetime import timedelta
from weft_tasks.passes.clock import Deadline, SystemClock
from weft_tasks.passes.clock import Deadline
from weft_tasks.passes.pool import OrderedPool
from weft_tasks.passes.work import Work

work = Work(attempt=lambda item: item.wait(), failure=lambda item, error: error, key=id)
deadline = Deadline.after(SystemClock(), timedelta(milliseconds=20))
print(OrderedPool("test").run([threading.Event(), threading.Event()], work, deadline).results)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("NOT_REACHED") == 2


# -- what one run leaves to the next ---------------------------------------------------------------------------------


def test_an_item_that_still_hangs_is_not_tried_again_and_delays_no_later_run(clock: ManualClock, hang: Hang) -> None:
    pool = OrderedPool("test")
    hung_or_fine = work(lambda item: hang() if item == "hung" else item)
    cut_while_hanging(pool, ["hung", "fine"], hung_or_fine, clock, hang)

    for _ in range(50):
        (item, error), fine = results_of(pool.run(["hung", "fine"], hung_or_fine, clock.deadline()))
        assert (item, type(error), fine) == ("hung", TimeoutError, "fine")

    assert pool.hung_threads == 1


def test_a_lone_item_that_still_hangs_is_not_tried_again_either(clock: ManualClock, hang: Hang) -> None:
    pool = OrderedPool("test")
    cut_while_hanging(pool, ["hung", "too"], work(hang), clock, hang, calls=2)

    ((_, error),) = results_of(pool.run(["hung"], work(str.upper), clock.deadline()))

    assert isinstance(error, TimeoutError)


def test_an_item_whose_call_came_back_is_tried_again(clock: ManualClock, hang: Hang) -> None:
    pool = OrderedPool("test")
    cut_while_hanging(pool, ["hung", "too"], work(hang), clock, hang, calls=2)

    hang.end()

    assert pool.hung_threads == 0
    assert pool.run(["hung", "too"], work(str.upper), clock.deadline()).results == ["HUNG", "TOO"]


def test_a_run_that_finds_too_many_hung_threads_tries_nothing(clock: ManualClock, hang: Hang) -> None:
    pool = OrderedPool("test", width=2)
    cut_while_hanging(pool, ["a", "b"], work(hang), clock, hang, calls=2)
    cut_while_hanging(pool, ["c", "d"], work(hang), clock, hang, calls=2)
    tried: list[str] = []

    with pytest.raises(TooManyHungThreads, match=r"4 threads of earlier test passes still hang \(limit 4\)"):
        pool.run(["e", "f"], work(tried.append), clock.deadline())

    assert tried == []


def test_hung_threads_that_come_back_make_room_again(clock: ManualClock, hang: Hang) -> None:
    pool = OrderedPool("test", width=2, max_leftover=2)
    cut_while_hanging(pool, ["a", "b"], work(hang), clock, hang, calls=2)

    hang.end()

    assert pool.run([1, 2], work(doubled), clock.deadline()).results == [2, 4]


def test_a_run_that_was_cut_is_taken_up_where_it_stopped(clock: ManualClock) -> None:
    def slow(item: int) -> int:
        clock.advance(LONG / 3)
        return item

    pool = OrderedPool("test", width=1)
    runs = [pool.run(range(7), work(slow), clock.deadline(LONG)).results for _ in range(3)]

    assert runs == [
        [0, 1, 2, *[NOT_REACHED] * 4],
        [*[NOT_REACHED] * 3, 3, 4, 5, NOT_REACHED],
        [0, 1, *[NOT_REACHED] * 4, 6],
    ]


def test_items_at_the_head_that_always_fail_slowly_keep_none_behind_them_from_being_reached(clock: ManualClock) -> None:
    taken: set[int] = set()

    def attempt(item: int) -> None:
        if item < 10:
            clock.advance(LONG / 3)
            raise TimeoutError("statement timeout")
        taken.add(item)

    pool = OrderedPool("test", width=1)
    for _ in range(4):
        pool.run(range(60), work(attempt), clock.deadline(LONG))

    assert taken == set(range(10, 60))


# -- slices ----------------------------------------------------------------------------------------------------------


def test_slices_cover_all_items_once_in_order(clock: ManualClock) -> None:
    slices: list[list[int]] = []

    def attempt_slice(items: Sequence[int]) -> list[int]:
        slices.append(list(items))
        return [2 * item for item in items]

    in_slices = work(pytest.fail, attempt_slice=attempt_slice, slice_size=3)
    report = OrderedPool("test", width=1).run(range(8), in_slices, clock.deadline())

    assert slices == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert report == PoolReport(results=[2 * item for item in range(8)])


def test_what_a_slice_leaves_to_be_tried_alone_is_tried_alone_and_no_slice_was_split(clock: ManualClock) -> None:
    alone: list[int] = []

    def attempt(item: int) -> str:
        alone.append(item)
        return "alone"

    def attempt_slice(items: Sequence[int]) -> list[Any]:
        return [TRY_ALONE if item % 2 else "sliced" for item in items]

    in_slices = work(attempt, attempt_slice=attempt_slice, slice_size=2)
    report = OrderedPool("test", width=1).run(range(5), in_slices, clock.deadline())

    assert list(report.results) == ["sliced", "alone", "sliced", "alone", "alone"]
    assert sorted(alone) == [1, 3, 4]
    assert report.split_slices == 0


def test_a_slice_that_raises_is_retried_item_by_item_after_the_other_slices(clock: ManualClock) -> None:
    tried: list[Any] = []

    def attempt_slice(items: Sequence[int]) -> list[int]:
        tried.append(list(items))
        if 1 in items:
            raise ValueError("one row is bad")
        return [2 * item for item in items]

    def attempt(item: int) -> int:
        tried.append(item)
        if item == 1:
            raise ValueError("bad row")
        return 2 * item

    in_slices = work(attempt, attempt_slice=attempt_slice, slice_size=3)
    report = OrderedPool("test", width=1).run(range(6), in_slices, clock.deadline())

    assert tried == [[0, 1, 2], [3, 4, 5], 0, 1, 2]
    assert [result for result in report.results if not isinstance(result, tuple)] == [0, 4, 6, 8, 10]
    assert (report.split_slices, report.split_reason) == (1, "ValueError: one row is bad")


@pytest.mark.parametrize("answers", [[], [1], [1, 2, 3]])
def test_a_slice_with_a_wrong_number_of_results_is_retried_item_by_item(clock: ManualClock, answers: list[int]) -> None:
    in_slices = work(doubled, attempt_slice=lambda items: answers, slice_size=2)

    report = OrderedPool("test").run([10, 20, 30, 40], in_slices, clock.deadline())

    assert report.results == [20, 40, 60, 80]
    assert report.split_slices == 2
    assert report.split_reason == f"ValueError: {len(answers)} results for a slice of 2"


class WatchedDeadline(Deadline):
    """Tells when the caller has begun to wait."""

    waited_for = threading.Event()

    def remaining(self) -> timedelta:
        self.waited_for.set()
        return super().remaining()


def test_the_items_of_a_split_slice_are_tried_side_by_side(clock: ManualClock) -> None:
    together, deadline = threading.Barrier(4), WatchedDeadline.after(clock, LONG)

    def attempt(item: int) -> int:
        together.wait(10)
        return item

    def attempt_slice(_: Sequence[int]) -> list[int]:
        assert WatchedDeadline.waited_for.wait(10)
        raise ValueError("no slices today")

    in_slices = work(attempt, attempt_slice=attempt_slice, slice_size=8)

    assert OrderedPool("test", width=4).run(range(8), in_slices, deadline).results == list(range(8))


def test_the_reason_of_the_first_split_slice_is_kept(clock: ManualClock) -> None:
    def attempt_slice(items: Sequence[int]) -> list[int]:
        raise ValueError(f"slice from {items[0]}")

    in_slices = work(doubled, attempt_slice=attempt_slice, slice_size=2)
    report = OrderedPool("test", width=1).run(range(6), in_slices, clock.deadline(LONG))

    assert (report.split_slices, report.split_reason) == (3, "ValueError: slice from 0")


def test_the_neighbours_of_a_hung_slice_are_tried_one_by_one_in_the_next_run(clock: ManualClock, hang: Hang) -> None:
    def attempt_slice(items: Sequence[int]) -> list[int]:
        if 1 in items:
            hang()
        return list(items)

    def attempt(item: int) -> Any:
        return hang() if item == 1 else item

    pool = OrderedPool("test")
    in_slices = work(attempt, attempt_slice=attempt_slice, slice_size=3)
    first = cut_while_hanging(pool, range(6), in_slices, clock, hang)
    second = cut_while_hanging(pool, range(6), in_slices, clock, hang)
    third = pool.run(range(6), in_slices, clock.deadline())

    assert first.results[:3] == [NOT_REACHED] * 3
    assert second.results[1] is NOT_REACHED
    assert isinstance(third.results[1], tuple)
    assert [*third.results[:1], *third.results[2:]] == [0, 2, 3, 4, 5]
    assert pool.hung_threads == 2


def test_a_run_cut_among_retried_items_is_taken_up_with_their_slice(clock: ManualClock) -> None:
    slices: list[int] = []

    def attempt_slice(items: Sequence[int]) -> list[int]:
        slices.append(items[0])
        if items[0] == 2:
            raise ValueError("bad slice")
        return list(items)

    def slow(item: int) -> int:
        clock.advance()
        return item

    pool = OrderedPool("test", width=1)
    in_slices = work(slow, attempt_slice=attempt_slice, slice_size=2)
    pool.run(range(6), in_slices, clock.deadline(LONG))
    pool.run(range(6), in_slices, clock.deadline(LONG))

    assert slices == [0, 2, 4, 2, 4, 0]
