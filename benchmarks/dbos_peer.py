"""DBOS on the same server: one-step workflows, and messages to workflows that wait in another process.

python -m benchmarks.dbos_peer latency URL SAMPLES BURST PARKED | throughput URL COUNT

Prints JSON. Not one of the benchmarks: they run it for their reference side.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from dbos import DBOS, SetWorkflowID

GAP_S = 0.02
LONGEST_S = 120

noted: list[tuple[int, float]] = []


@DBOS.step()
def step(number: int) -> int:
    return number


@DBOS.workflow()
def one_step(number: int) -> int:
    return step(number)


@DBOS.workflow()
def parked(messages: int) -> int:
    for _ in range(messages):
        sent_ns = DBOS.recv("go", timeout_seconds=3600)
        noted.append((sent_ns, (time.monotonic_ns() - sent_ns) / 1e6))
    return messages


def launch(url: str, executor: str) -> None:
    config: Any = {"name": "bench", "system_database_url": url, "executor_id": executor, "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()


def latency(url: str, samples: int, burst: int, count: int) -> dict[str, list[float]]:
    """This process holds the workflows; a second one sends."""
    launch(url, "receiver")
    for number in range(count):
        with SetWorkflowID(f"parked-{number}"):
            DBOS.start_workflow(parked, samples + burst)
    time.sleep(3)
    spaced = _sent_by_another(url, samples, GAP_S, count)
    return {"spaced": spaced, "burst": _sent_by_another(url, burst, 0.0, count)}


def _sent_by_another(url: str, messages: int, gap_s: float, count: int) -> list[float]:
    noted.clear()
    words = [sys.executable, "-m", "benchmarks.dbos_peer", "send", url, str(messages), str(gap_s), str(count)]
    subprocess.run(words, check=True, capture_output=True, timeout=LONGEST_S)
    end = time.monotonic() + LONGEST_S
    while len(noted) < messages and time.monotonic() < end:
        time.sleep(0.05)
    return [spent for _sent, spent in noted]


def send(url: str, messages: int, gap_s: float, count: int) -> None:
    launch(url, "sender")
    for number in range(messages):
        DBOS.send(f"parked-{number % count}", time.monotonic_ns(), "go")
        time.sleep(gap_s)


def throughput(url: str, count: int) -> dict[str, float]:
    launch(url, "bench")
    for warm in (20, count):
        begun = time.perf_counter()
        handles = [DBOS.start_workflow(one_step, number) for number in range(warm)]
        for handle in handles:
            handle.get_result()
        rate = warm / (time.perf_counter() - begun)
    return {"per_second": rate}


if __name__ == "__main__":
    what, url, *numbers = sys.argv[1:]
    if what == "latency":
        print(json.dumps(latency(url, *map(int, numbers))), flush=True)
    elif what == "send":
        send(url, int(numbers[0]), float(numbers[1]), int(numbers[2]))
    else:
        print(json.dumps(throughput(url, int(numbers[0]))), flush=True)
    # Its threads would keep the process.
    os._exit(0)
