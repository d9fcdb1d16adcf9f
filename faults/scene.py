"""One run: clients work, faults happen, everything settles, and the checks are made."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Self

from faults.checks import DUE_BOUND, OF_PROCESSES, Facts, Finding, Window, gather, judge, longest_recovery_s
from faults.client import persistently
from faults.kinds import Cut, Fault, RedisGone, RedisSetting, RedisSilent, is_halting
from faults.schedule import Entry
from faults.watcher import Watcher
from faults.world import World
from weft_tasks.testing.errors import WaitTimedOut
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until

CLIENTS = 3
RATE = 5.0
"""Requests a second of each client."""
SETTLE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A fault that happened, in seconds since the beginning."""

    what: str
    began_s: float
    ended_s: float


@dataclass(slots=True)
class Scene:
    """A run in a world. `prefix` is of its workflows alone."""

    world: World
    prefix: str
    seed: int = 1
    done: list[Done] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    expectations: list[Finding] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    facts: Facts | None = None
    findings: tuple[Finding, ...] = ()
    due_bound: timedelta = DUE_BOUND
    began: float = 0.0

    # -- the workload

    @contextmanager
    def workload(self, seconds: float, *, clients: int = CLIENTS, rate: float = RATE) -> Iterator[None]:
        """Clients send for that long; the block is where faults happen. At its end all settles, and is judged."""
        world, since = self.world, self.world.ledger.end
        before = len(world.started_again)
        self.began = time.time()
        with ExitStack() as stack:
            watcher = stack.enter_context(Watcher(world, self.prefix))
            processes = [
                world.client(self.prefix, number, seed=self.seed, seconds=seconds, rate=rate)
                for number in range(clients)
            ]
            for process in processes:
                stack.callback(process.kill)
                process.start()
            wait_until(lambda: self._has_begun(clients), what="the clients to send", timeout=timedelta(seconds=40))
            yield
            self._settle(processes)
        if again := world.started_again[before:]:
            self.figures["ended by themselves, and were started again"] = again
        self.facts = gather(world, self.prefix, since, watcher.seen, self.windows)
        self.findings = judge(self.facts, self.due_bound) + tuple(self._of_processes()) + tuple(self.expectations)

    def _has_begun(self, clients: int) -> bool:
        return len({line["pid"] for line in self.world.receipts(self.prefix)}) == clients

    def _settle(self, clients: Sequence[LocalProcess]) -> None:
        """The clients have their answers; then every collector is told to finish, and all complete."""
        self.world.heal()
        without = []
        for client in clients:
            try:
                if client.wait(timedelta(seconds=160)):
                    without.append(f"{client.name}: {client.log_text()[-1500:]}")
            except WaitTimedOut:
                without.append(f"{client.name} has not ended: {client.log_text()[-500:]}")
        self.expect(OF_PROCESSES[3], not without, "\n".join(without))
        started = {line["workflow"]: line for line in self.world.receipts(self.prefix)}
        for id in started:
            if "/collector-" in id:
                persistently(partial(self.world.weft.signal, id, "finish", key="finish"))
        # Who does not complete in time is found by the checks.
        try:
            wait_until(self._is_settled, what="all workflows to complete", timeout=SETTLE)
        except WaitTimedOut as error:
            self.expect("everything settles within a minute", False, str(error))

    def _is_settled(self) -> bool:
        ours = {"ours": f"{self.prefix}/%"}
        running = self.world.query("SELECT 1 FROM weft_workflows WHERE status = 'running' AND id LIKE :ours", **ours)
        owed = self.world.query("SELECT 1 FROM weft_outbox WHERE workflow_id LIKE :ours", **ours)
        return not running and not owed

    # -- faults

    @contextmanager
    def during(self, *faults: Fault) -> Iterator[None]:
        """These faults while the block runs."""
        opened = [(fault, self.begin(fault)) for fault in faults]
        try:
            yield
        finally:
            for fault, at in reversed(opened):
                self.end(fault, at)

    def strike(self, fault: Fault, seconds: float = 0.0) -> Self:
        """One fault for so long."""
        with self.during(fault):
            self.pause(seconds)
        return self

    def begin(self, fault: Fault) -> float:
        at = time.time()
        fault.begin(self.world)
        return at

    def end(self, fault: Fault, began: float) -> None:
        fault.end(self.world)
        self.note(fault, began)

    def note(self, fault: Fault, began: float) -> None:
        """Remember what was done, and when it made whom unfit."""
        ended = time.time()
        self.done.append(Done(what=str(fault), began_s=began - self.began, ended_s=ended - self.began))
        takes_redis = isinstance(fault, RedisGone | RedisSilent | RedisSetting) or (
            isinstance(fault, Cut) and fault.server == "redis"
        )
        halts = is_halting(fault, self.world.database)
        lag = fault.lag_s if halts else 0.0
        self.windows.append(Window(began, ended + lag, fault.node, halts, takes_redis))

    def play(self, entries: Sequence[Entry]) -> None:
        """A schedule: each fault at its time, and its end at its own."""
        moments = sorted(
            [(entry.begins_s, 0, index) for index, entry in enumerate(entries)]
            + [(entry.ends_s, 1, index) for index, entry in enumerate(entries)]
        )
        start = time.time()
        began: dict[int, float] = {}
        for at, is_end, index in moments:
            self._supervise(start + at, {entries[open_].fault.holds_down for open_ in began})
            fault = entries[index].fault
            if is_end:
                self.end(fault, began.pop(index))
            else:
                began[index] = self.begin(fault)

    def _supervise(self, until: float, held_down: Collection[str | None]) -> None:
        """Until then what ends by itself is started again, within a second."""
        while (left := until - time.time()) > 0:
            self.world.supervise(held_down)
            self.pause(min(left, 1.0))

    def pause(self, seconds: float) -> None:
        """Let the time of a fault pass: the one place where the bench only waits."""
        time.sleep(max(seconds, 0))

    # -- what a case expects beyond the always-checks

    def expect(self, what: str, holds: bool, otherwise: str = "it does not") -> None:
        self.expectations.append(Finding(check=what, broken=() if holds else (otherwise,)))

    def wait(self, what: str, look: Any, seconds: float) -> bool:
        """Wait for something, and expect that it came in time."""
        began = time.monotonic()
        try:
            wait_until(look, what=what, timeout=timedelta(seconds=seconds))
        except WaitTimedOut:
            self.expect(f"{what} within {seconds:g} s", False, "it did not come")
            return False
        self.expect(f"{what} within {seconds:g} s", True)
        self.figures[f"{what}, s"] = round(time.monotonic() - began, 1)
        return True

    def moves(self) -> Counter[str]:
        """How many workflows of this run each node has lost by a takeover."""
        rows = self.world.query(
            "SELECT detail FROM weft_history WHERE event = 'taken-over' AND workflow_id LIKE :ours",
            ours=f"{self.prefix}/%",
        )
        return Counter(str(json.loads(row[0]).get("from_node", "?")).partition("@")[0] for row in rows)

    def expect_moves_only_from(self, *nodes: str) -> None:
        moved = self.moves()
        # One whose row is gone has no name any more.
        allowed = (*nodes, "?") if nodes else ()
        strangers = {node: count for node, count in moved.items() if node not in allowed}
        what = f"workflows moved from {' or '.join(nodes)} only" if nodes else "no workflow was taken over"
        self.expect(what, not strangers, f"moved: {dict(moved)}")

    # -- the end

    @property
    def holds(self) -> bool:
        return bool(self.findings) and all(finding.holds for finding in self.findings)

    @property
    def longest_recovery_s(self) -> float:
        return 0.0 if self.facts is None else longest_recovery_s(self.facts)

    def _of_processes(self) -> Iterator[Finding]:
        gone = [name for name, process in self.world.processes.items() if not process.is_running]
        yield Finding(check=OF_PROCESSES[0], broken=tuple(gone))
        unexpected = [
            f"{name}: {line[:200]}"
            for name, process in self.world.processes.items()
            for line in process.log_text().splitlines()
            if "Task weft." in line
            and "raised unexpected" in line
            and "Terminated" not in line
            and "WorkerLostError" not in line
        ]
        yield Finding(check=OF_PROCESSES[1], broken=tuple(unexpected[:5]))
        with self.world.redis.client() as client:
            left = {key.decode(): client.pttl(key) for key in client.scan_iter("*weft:*:*")}
        # -1 of a key that never expires, -2 of one that is gone by now.
        limit = self.world.weft.settings.lock_ttl.total_seconds() * 1000
        broken = [f"{key}: {ms} ms" for key, ms in left.items() if ms == -1 or ms > limit]
        yield Finding(check=OF_PROCESSES[2], broken=tuple(broken))
