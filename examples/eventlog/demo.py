"""Replay an event log against three engines while one is killed, one stopped and one frozen; then check everything.

    python -m examples.eventlog.demo --log sample.csv --database sqlite

Writes report.json beside the logs of all processes, and ends with status 0 only if every case was committed exactly as
the log has it. BROKER_URL and DATABASE_URL, if set, name servers to use instead of starting some.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from examples.eventlog.app import weft
from examples.eventlog.cluster import Cluster, servers
from examples.eventlog.faults import Faults, drain, freeze, kill, wait_until_back
from examples.eventlog.ledger import Ledger
from examples.eventlog.log import EventLog, LogError, read_log
from examples.eventlog.report import Report
from examples.eventlog.verify import read_receipts, verify
from examples.eventlog.view import View, view, watching
from weft_tasks import WeftError
from weft_tasks.testing.processes import LocalProcess
from weft_tasks.testing.waiting import wait_until

SAMPLE = Path(__file__).parent / "sample.csv"
KILL_AT, DRAIN_AT, FREEZE_AT = 0.25, 0.50, 0.70
"""When the faults come, in shares of the events that were sent."""
REPLAY_S = 32.0
"""A small log is sent more slowly than it could be, so that the client is still sending while the faults happen."""
LONGEST_REPLAY = timedelta(hours=1)
STALL_S = 60.0
KEPT_FROM_A_RUN = ("logs", "receipts.csv", "report.json", "weft.sqlite3", "weft.sqlite3-shm", "weft.sqlite3-wal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One replay, with everything that takes part in it."""

    log: EventLog
    cluster: Cluster
    client: LocalProcess
    ledger: Ledger
    view: View

    def play(self) -> Faults:
        """Replay with the three faults; returns once all cases are completed, or nothing has moved for a minute."""
        with self.client:
            self.view.say(f"the client sends {len(self.log.events)} events of {len(self.log.cases)} cases")
            faults = self._disturb()
            self.client.wait(LONGEST_REPLAY)
            self._check_client()
        self.view.say("the client has sent everything")
        self._settle()
        return faults

    def _disturb(self) -> Faults:
        """One engine is killed, one stopped, one frozen, each at its moment. The first two are started again, as a
        supervisor would; in between there are always two left, or one that is live and one that drains."""
        first, second, third = self.cluster.engines
        self._wait_for(KILL_AT)
        killed = kill(first, self.ledger, self.view.say)
        first.start()
        self._wait_for(DRAIN_AT)
        drained = drain(second, self.ledger, self.view.say)
        second.start()
        wait_until_back(first, killed, self.ledger, self.view.say)
        self._wait_for(FREEZE_AT)
        frozen = freeze(third, self.ledger, self.view.say)
        wait_until_back(second, drained, self.ledger, self.view.say)
        return Faults(killed=killed, drained=drained, frozen=frozen)

    def _wait_for(self, share: float) -> None:
        """Wait until the client has sent that share of the events, or all."""

        def is_sent() -> bool:
            self._check_client()
            return self.ledger.signals_sent() >= share * len(self.log.events)

        wait_until(is_sent, what=f"{share:.0%} of the events", timeout=LONGEST_REPLAY)

    def _check_client(self) -> None:
        """Raise ProcessDied if the client failed."""
        if self.client.exit_code:
            self.client.check_alive()

    def _settle(self) -> None:
        """When nothing moves any more the check will say what is missing."""
        seen, ends = None, time.monotonic() + STALL_S
        while (now := self.ledger.progress()).completed < len(self.log.cases) and time.monotonic() < ends:
            if (now.completed, now.consumed) != seen:
                seen, ends = (now.completed, now.consumed), time.monotonic() + STALL_S
            time.sleep(0.2)


def demonstrate(log_path: Path, database: str, output: Path, seconds: float) -> Report:
    """Everything from the servers to the report. Raises LogError, or WeftError when a process or the store fails."""
    began = time.monotonic()
    log = read_log(log_path)
    _make_room(output)
    with servers(database, output) as found:
        # The application reads them when it is first used, here as in the workers.
        os.environ.update(found.environment)
        weft.migrate()
        ledger = Ledger(weft.store, found.prefix)
        cluster = Cluster(output / "logs", found.environment)
        receipts = output / "receipts.csv"
        client = cluster.client(log_path, receipts=receipts, prefix=found.prefix, seconds=seconds)
        with view(events=len(log.events), workflows=len(log.cases)) as shown:
            for command in cluster.commands:
                shown.say(command)
            with cluster, watching(ledger.progress, shown):
                faults = Run(log=log, cluster=cluster, client=client, ledger=ledger, view=shown).play()
        findings = verify(log, read_receipts(receipts), ledger.committed())
        return Report.of(findings, faults, ledger.progress(), weft.settings, wall_s=time.monotonic() - began)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--log", type=Path, default=SAMPLE, help="CSV: case_id,activity,timestamp (default: a small one)"
    )
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite", help="(default: sqlite)")
    parser.add_argument("--output", type=Path, default=Path("var/demo"), help="folder for what is written")
    parser.add_argument(
        "--seconds", type=float, default=REPLAY_S, help=f"least time of the replay (default: {REPLAY_S:g})"
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        report = demonstrate(options.log, options.database, options.output, options.seconds)
    except (LogError, WeftError, PermissionError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    path = options.output / "report.json"
    report.write(path)
    print(f"{report}\n{path}: {'every case is exactly as in the log' if report.is_clean else 'NOT as it must be'}")
    return 0 if report.is_clean else 1


def _make_room(output: Path) -> None:
    """Remove what an earlier run left, and nothing else."""
    for name in KEPT_FROM_A_RUN:
        left = output / name
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)
    (output / "logs").mkdir(parents=True)


if __name__ == "__main__":
    sys.exit(main())
