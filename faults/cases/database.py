"""The database: gone, restarted in a pass, locked, read-only, slow, out of connections; SQLite busy and full."""

from __future__ import annotations

import os
from datetime import timedelta

from faults.case import POSTGRES, SQLITE, Cases
from faults.checks import DUE_BOUND
from faults.kinds import (
    ConnectionsExhausted,
    ConnectionsTerminated,
    DatabaseGone,
    DatabaseRestarted,
    DatabaseSetting,
    DiskFull,
    RowsLockedBackwards,
    Slow,
    StatementsCancelled,
    TableLocked,
    WritesRefused,
)
from faults.scene import Scene

cases = Cases("The database")


@cases.case(
    "database-killed", "Nothing is accepted meanwhile, and no claim moves, then or afterwards.", databases=POSTGRES
)
def _(scene: Scene) -> None:
    with scene.workload(12):
        scene.pause(2)
        scene.strike(DatabaseGone(), 8)
        scene.pause(2)
        scene.expect_moves_only_from()


@cases.case(
    "database-restarted-in-passes",
    "A pass that it cuts short fails with one line, and the next one does its work.",
    databases=POSTGRES,
)
def _(scene: Scene) -> None:
    with scene.workload(10):
        for _round in range(3):
            scene.pause(2)
            scene.strike(DatabaseRestarted())
        scene.expect_moves_only_from()


@cases.case(
    "connections-terminated",
    "An ended connection is an unknown answer, resolved by asking again: no turn twice, no signal lost.",
    databases=POSTGRES,
)
def _(scene: Scene) -> None:
    with scene.workload(8):
        for _round in range(20):
            scene.pause(0.3)
            scene.strike(ConnectionsTerminated())
        scene.expect_moves_only_from()


@cases.case(
    "table-locked",
    "Statements give up at their time limit, clients ask again, heartbeats go on, and no claim moves.",
)
def _(scene: Scene) -> None:
    with scene.workload(10):
        scene.pause(2)
        scene.strike(TableLocked(), 4)
        scene.pause(2)
        scene.expect_moves_only_from()


@cases.case(
    "statement-timeouts",
    "A statement that is cut short, as by its time limit, is an unknown answer: it is asked again, and done once.",
    databases=POSTGRES,
)
def _(scene: Scene) -> None:
    with scene.workload(9):
        scene.pause(1)
        scene.strike(StatementsCancelled(), 6)
        scene.expect_moves_only_from()


@cases.case(
    "database-read-only",
    "Writes are refused, which is an unknown answer: nothing is accepted, no claim moves, and it goes on by itself.",
    databases=POSTGRES,
)
def _(scene: Scene) -> None:
    with scene.workload(12):
        scene.pause(2)
        scene.strike(DatabaseSetting("default_transaction_read_only", "on"), 8)
        scene.pause(2)
        scene.expect_moves_only_from()


@cases.case(
    "database-connection-limit",
    "Somebody else has all connections: like a database that is away, for as long as it lasts.",
    databases=POSTGRES,
)
def _(scene: Scene) -> None:
    with scene.workload(10):
        scene.pause(2)
        scene.strike(ConnectionsExhausted(), 4)
        scene.pause(2)
        scene.expect_moves_only_from()


@cases.case(
    "database-slow-by-50-ms",
    "Passes and turns take longer and stay below their limits: no claim moves.",
    databases=POSTGRES,
    needs={"all_by_proxy": True},
    bound=DUE_BOUND + timedelta(seconds=5),
)
def _(scene: Scene) -> None:
    with scene.workload(12, rate=2):
        scene.pause(1)
        scene.strike(Slow("database", 0.05), 8)
        scene.expect_moves_only_from()


@cases.case(
    "serialization-failures",
    "One write in twenty, and one commit in twenty, is refused with 40001: it is asked again, and done once.",
    databases=POSTGRES,
)
def _(scene: Scene) -> None:
    with scene.workload(9):
        scene.pause(1)
        scene.strike(WritesRefused("40001"), 6)
        scene.expect_moves_only_from()


@cases.case(
    "deadlocks",
    "Somebody locks the suite's rows in the opposite order: who loses asks again, and nothing is done twice.",
    databases=POSTGRES,
)
def _(scene: Scene) -> None:
    with scene.workload(9):
        scene.pause(1)
        scene.strike(RowsLockedBackwards(), 6)
        scene.expect_moves_only_from()


@cases.case(
    "sqlite-busy",
    "Another program holds the write lock for 3 s in every 4: heartbeats get through in between, and no claim moves.",
    databases=SQLITE,
)
def _(scene: Scene) -> None:
    with scene.workload(14):
        for _round in range(3):
            scene.pause(1)
            scene.strike(TableLocked(), 3)
        scene.expect_moves_only_from()


@cases.case(
    "sqlite-disk-full",
    "Nothing more is accepted and nothing commits; once there is room all goes on, and no claim has moved.",
    databases=SQLITE,
    needs={"small_disk": True},
    missing=lambda: None if os.geteuid() == 0 else "only root can mount a small file system to fill",
)
def _(scene: Scene) -> None:
    with scene.workload(12):
        scene.pause(2)
        scene.strike(DiskFull(), 6)
        scene.pause(2)
        scene.expect_moves_only_from()
