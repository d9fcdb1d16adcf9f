"""Poison and imbalance: rows that nobody can run among good ones, and a thousand orphans at once."""

from __future__ import annotations

import json
import time
import uuid
from datetime import timedelta

from faults.case import Cases
from faults.kinds import Frozen, Killed
from faults.scene import Scene
from weft_tasks.store.tables import workflows

cases = Cases("Poison and imbalance")
ORPHANS = 1000
ONE = "engine-1"


@cases.case(
    "bad-rows",
    "Rows with undecodable JSON fail with that reason; no bad row holds up anybody else, and none stops a pass.",
)
def _(scene: Scene) -> None:
    world = scene.world
    with scene.workload(10):
        broken = {
            "state": ("weft_workflows", "state", "{not json"),
            "waits": ("weft_workflows", "waits", "[[["),
            "input": ("weft_workflows", "input", ""),
            "type": ("weft_workflows", "type", "nobody knows this"),
        }
        for what, (table, column, value) in broken.items():
            id = f"bad-rows-{uuid.uuid4().hex[:6]}-{what}"
            world.weft.start("collector", id)
            scene.wait(f"the good row {what} to be parked", lambda id=id: not world.weft.describe(id).is_due, 15)
            world.execute(f"UPDATE {table} SET {column} = :value WHERE id = :id", value=value, id=id)
            # Only a turn that has something to do reads what is damaged.
            world.weft.signal(id, "a", "for a turn that cannot be")
        orphan = f"bad-rows-{uuid.uuid4().hex[:6]}-parent"
        world.weft.start("collector", orphan)
        world.execute(
            "UPDATE weft_workflows SET parent_id = 'gone', parent_run_id = 'gone', parent_reply = 'x' WHERE id = :id",
            id=orphan,
        )
        world.weft.terminate(orphan)
        before = _runs(scene)
        scene.pause(4)
        after = _runs(scene)
        late = [kind for kind in before if after[kind] <= before[kind]]
        scene.expect("every kind of pass went on completing", not late, f"did not: {late}")
        scene.wait("the three damaged workflows to have failed", lambda: len(world.query(_FAILED)) == 3, 60)
        for row in world.query("SELECT id, status, error FROM weft_workflows WHERE id LIKE 'bad-rows-%'"):
            scene.figures[row[0].split("-", 3)[3]] = f"{row[1]}: {str(row[2])[:120]}"
        scene.expect_moves_only_from()
        for table, column in (("weft_claims", "workflow_id"), ("weft_workflows", "id")):
            world.execute(f"DELETE FROM {table} WHERE {column} LIKE 'bad-rows-%'")


@cases.case(
    "turn-that-kills-its-process",
    "Three turns that the system kills for their memory, and the fourth commits: it was begun again each time.",
    bound=timedelta(seconds=30),
)
def _(scene: Scene) -> None:
    _hungry(scene, "killed")


@cases.case(
    "turn-that-runs-out-of-memory",
    "Three turns that are refused memory fail with a MemoryError, and the fourth commits.",
    bound=timedelta(seconds=30),
)
def _(scene: Scene) -> None:
    _hungry(scene, "refused")


def _hungry(scene: Scene, ends: str) -> None:
    with scene.workload(8):
        id, count = f"hungry-{ends}-{uuid.uuid4().hex[:6]}", scene.world.folder / f"hungry-{uuid.uuid4().hex[:6]}"
        scene.world.weft.start("hog", id, {"ends": ends, "count": str(count)})
        scene.wait("the hungry workflow to complete", lambda: scene.world.weft.describe(id).status == "completed", 45)
        scene.figures["turns it took"] = count.stat().st_size
        scene.expect_moves_only_from()


@cases.case(
    "turn-that-never-ends",
    "It holds one slot; its engine beats, so it stays; the others go on; terminate ends it and frees the slot.",
)
def _(scene: Scene) -> None:
    world = scene.world
    with scene.workload(10):
        id, gate = f"endless-{uuid.uuid4().hex[:6]}", world.folder / f"gate-{uuid.uuid4().hex[:6]}"
        world.weft.start("endless", id, str(gate))
        scene.pause(7)
        before = world.weft.describe(id)
        scene.expect("it is where it began", before.turn == 0 and before.epoch == 1, f"epoch {before.epoch}")
        world.weft.terminate(id)
        ours = "SELECT 1 FROM weft_aborts"
        scene.wait("its process to be ended", lambda: not world.query(ours), 10)
        gate.touch()
        scene.expect_moves_only_from()


@cases.case(
    "a-thousand-orphans",
    "A thousand workflows of one killed engine move within three ticks after it is silent, spread over the others.",
    bound=timedelta(seconds=20),
)
def _(scene: Scene) -> None:
    world = scene.world
    with scene.workload(16, rate=2):
        holder = next(e for e in world.weft.store.engines.list() if e.node.startswith(ONE) and e.status == "live")
        prefix = f"orphan-{uuid.uuid4().hex[:6]}"
        _park(scene, prefix, holder.id)
        held = "SELECT count(*) FROM weft_claims WHERE engine_id = :id AND workflow_id LIKE :ours"
        of_it = {"id": holder.id, "ours": f"{prefix}-%"}
        scene.expect("it holds a thousand", world.query(held, **of_it)[0][0] == ORPHANS)
        began = time.monotonic()
        fault = Killed(ONE)
        at = scene.begin(fault)
        scene.wait("all of them to move", lambda: world.query(held, **of_it)[0][0] == 0, 7 + 3 + 10)
        scene.figures["from the kill to the last move, s"] = round(time.monotonic() - began, 1)
        moves = world.query(
            "SELECT at, engine_id FROM weft_history WHERE event = 'taken-over' AND workflow_id LIKE :ours",
            ours=f"{prefix}-%",
        )
        lasted = (max(m[0] for m in moves) - min(m[0] for m in moves)) / 1000
        scene.figures["from the first move to the last, s"] = round(lasted, 2)
        scene.expect("the moves took no more than three ticks", lasted <= 3 + 1, f"{lasted} s")
        shares = [sum(1 for m in moves if m[1] == engine) for engine in {m[1] for m in moves}]
        scene.figures["shares"] = sorted(shares)
        scene.expect("spread evenly", len(shares) == 2 and max(shares) <= 1.3 * min(shares), str(shares))
        scene.expect("each moved once", len(moves) == ORPHANS, f"{len(moves)} moves")
        scene.end(fault, at)
        world.execute("DELETE FROM weft_claims WHERE workflow_id LIKE :ours", ours=f"{prefix}-%")
        world.execute("DELETE FROM weft_workflows WHERE id LIKE :ours", ours=f"{prefix}-%")


@cases.case(
    "engine-freezing-again-and-again",
    "An engine that freezes for 3 s in every 4 keeps what it has: no churn, since it beats within T.",
)
def _(scene: Scene) -> None:
    with scene.workload(14):
        for _round in range(3):
            scene.pause(1)
            scene.strike(Frozen(ONE), 3)
        scene.figures["workflows moved"] = sum(scene.moves().values())
        scene.expect_moves_only_from()


def _park(scene: Scene, prefix: str, engine_id: str) -> None:
    """A thousand parked workflows of one engine, as rows: their first turns would take a minute."""
    world = scene.world
    now = world.query("SELECT max(heartbeat_at) FROM weft_engines")[0][0]
    rows = [
        {
            **_EMPTY,
            "id": f"{prefix}-{n}",
            "run_id": uuid.uuid4().hex,
            "engine_id": engine_id,
            "created_at": now,
            "updated_at": now,
        }
        for n in range(ORPHANS)
    ]
    from sqlalchemy import insert

    from weft_tasks.store.tables import claims

    with world.weft.store.database.transaction() as connection:
        connection.execute(insert(workflows), rows)
        connection.execute(
            insert(claims),
            [
                {"workflow_id": row["id"], "engine_id": engine_id, "epoch": 1, "claimed_at": now, "expires_at": now}
                for row in rows
            ],
        )


_EMPTY = {
    "type": "collector",
    "version": 1,
    "status": "running",
    "epoch": 1,
    "turn": 1,
    "attempt": 1,
    "due": False,
    "dispatches": 0,
    "unanswered": 0,
    "attempt_open": False,
    "begun": 0,
    "tries": 0,
    "inbox": 0,
    "waits": json.dumps([["finish", None]]),
    "cancelling": False,
    "input": "null",
    "state": "{}",
}


_FAILED = "SELECT 1 FROM weft_workflows WHERE id LIKE 'bad-rows-%' AND id NOT LIKE '%-type' AND status = 'failed'"


def _runs(scene: Scene) -> dict[str, int]:
    """How often each pass that beat fires has ended."""
    return {kind: runs for kind, runs in scene.world.query("SELECT kind, runs FROM weft_passes") if kind != "run-once"}
