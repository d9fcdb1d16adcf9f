"""Beat and the maintenance worker: killed, doubled, asleep, and with a clock that runs ahead."""

from __future__ import annotations

from pathlib import Path

from faults.case import POSTGRES, Cases
from faults.kinds import Frozen, Killed
from faults.scene import Scene
from faults.world import BEATS, MAINTENANCE, clock, libfaketime, no_faketime

cases = Cases("Beat and maintenance")
RENEWALS = "SELECT finished_at FROM weft_passes WHERE kind = 'renewal'"


@cases.case("one-beat-killed", "The other one goes on: no pass is late.")
def _(scene: Scene) -> None:
    with scene.workload(8):
        scene.pause(2)
        scene.strike(Killed(BEATS[0]), 4)
        scene.expect_moves_only_from()


@cases.case("both-beats-killed", "Signals and turns go on; timers wait; no claim moves, then or afterwards.")
def _(scene: Scene) -> None:
    with scene.workload(10):
        scene.pause(1)
        with scene.during(Killed(BEATS[0]), NoTicks(BEATS[1])):
            scene.pause(8)
        scene.pause(3)
        scene.expect_moves_only_from()


@cases.case("two-beats", "Both send every tick, and a pass begins no more often than every R/2.")
def _(scene: Scene) -> None:
    with scene.workload(8):
        before = _counts(scene)
        scene.pause(6)
        after = _counts(scene)
        for kind, (_finished, skipped) in after.items():
            scene.figures[f"{kind}: ticks skipped in 6 s"] = skipped - before[kind][1]
        scene.expect("the second beat's ticks are skips", sum(s for _f, s in after.values()) > 0)
        scene.expect_moves_only_from()


@cases.case("beat-asleep-for-ten-intervals", "Awake again each beat sends one tick of each pass, not ten.")
def _(scene: Scene) -> None:
    with scene.workload(13):
        with scene.during(Frozen(BEATS[0]), NoTicks(BEATS[1])):
            scene.pause(1)
            before = len(_sent(scene, BEATS[0]))
            scene.pause(10)
        scene.pause(1)
        sent = len(_sent(scene, BEATS[0])) - before
        scene.figures["ticks sent in the second after ten of sleep"] = sent
        scene.expect("no burst of ticks", sent <= 3 * 4, f"{sent} ticks")
        scene.expect_moves_only_from()


@cases.case(
    "beat-with-an-old-schedule-file",
    "Beat starts, whatever is in the file that its predecessor left: the passes' entries are in memory.",
)
def _(scene: Scene) -> None:
    with scene.workload(6):
        for name in BEATS:
            beat = scene.world.beats[name]
            beat.kill()
            Path(f"{scene.world.logs / name}-schedule").write_bytes(b"\x80\x05 noise of a crash")
            beat.start()
        scene.wait("a renewal after the restart", _renewal_after(scene), 8)


@cases.case(
    "maintenance-killed", "No pass runs until it is back, its locks are free within their life, nothing is lost."
)
def _(scene: Scene) -> None:
    with scene.workload(10):
        scene.pause(2)
        scene.strike(Killed(MAINTENANCE), 5)
        scene.wait("a renewal after the restart", _renewal_after(scene), 12)
        scene.expect_moves_only_from()


@cases.case(
    "maintenance-host-45-s-ahead",
    "Its ticks are not too old for it, the passes go on, and no claim moves (O2).",
    needs={"clocks": {MAINTENANCE: clock("+45s")} if libfaketime() else {}, "settings": {}},
    databases=POSTGRES,
    missing=no_faketime,
)
def _(scene: Scene) -> None:
    with scene.workload(8):
        scene.wait("a renewal", _renewal_after(scene), 8)
        scene.pause(4)
        scene.wait("another renewal", _renewal_after(scene), 8)
        scene.expect_moves_only_from()


class NoTicks(Killed):
    """The last beat killed: what only a pass can do waits."""

    halts = True
    lag_s = 4


def _counts(scene: Scene) -> dict[str, tuple[int, int]]:
    rows = scene.world.query("SELECT kind, finished_at, skipped FROM weft_passes")
    return {kind: (finished or 0, skipped) for kind, finished, skipped in rows}


def _sent(scene: Scene, beat: str) -> list[str]:
    return [line for line in scene.world.beats[beat].log_text().splitlines() if "Sending due task" in line]


def _renewal_after(scene: Scene):  # type: ignore[no-untyped-def]
    """A look that is true once a renewal has finished after this moment."""
    before = scene.world.query(RENEWALS)[0][0] or 0
    return lambda: (scene.world.query(RENEWALS)[0][0] or 0) > before
