"""Many takeovers at once: each keeps the conditions it has alone, and leaves the store as it would alone."""

from __future__ import annotations

import pytest
from beds import MS, G, StoreBed, T
from sqlalchemy import select, update

from weft_tasks.model import WorkflowStatus
from weft_tasks.store.claims import Move
from weft_tasks.store.tables import history, workflows

SILENCE = T + G


@pytest.fixture
def bed(store_bed: StoreBed) -> StoreBed:
    """Engine `dead` is silent and holds w1 (due), w2 (parked) and w3; `a` and `b` are live; nobody holds w4."""
    for engine_id in ("dead", "a", "b"):
        store_bed.engine(engine_id)
    store_bed.held("w1", "dead")
    store_bed.parked("w2", "dead")
    store_bed.parked("w3", "dead")
    store_bed.claims.release(store_bed.parked("w4", "a"))
    store_bed.live_through(SILENCE + MS, "a", "b")
    return store_bed


def move(bed: StoreBed, listed: str, target: str, **changes: object) -> Move:
    message = bed.message(listed)
    named = Move(listed, message.run_id, message.engine_id, message.epoch, target)
    return named._replace(**changes)  # type: ignore[arg-type]


def owner(bed: StoreBed, workflow_id: str) -> tuple[str | None, int]:
    return bed.row(workflow_id).engine_id, bed.row(workflow_id).epoch


def test_all_move_to_their_targets_with_claims_and_history_and_only_the_due_one_is_due(bed: StoreBed) -> None:
    grants = bed.claims.move_all([move(bed, "w1", "a"), move(bed, "w2", "b"), move(bed, "w4", "b")])

    assert {key: (grant.epoch, grant.is_due) for key, grant in grants.items()} == {
        "w1": (2, True),
        "w2": (2, False),
        "w4": (2, False),
    }
    assert (grants["w1"].silent_for, grants["w4"].silent_for) == (SILENCE + MS, None)
    for workflow_id, target in (("w1", "a"), ("w2", "b"), ("w4", "b")):
        claim = bed.claim(workflow_id)
        assert owner(bed, workflow_id) == (target, 2)
        assert claim is not None
        assert (claim.engine_id, claim.epoch) == (target, 2)
    entries = bed.rows(select(history.c.workflow_id, history.c.event, history.c.engine_id).order_by(history.c.id))
    assert {tuple(entry) for entry in entries} >= {
        ("w1", "taken-over", "a"),
        ("w2", "taken-over", "b"),
        ("w4", "placed", "b"),
    }


def test_what_many_leave_is_what_one_at_a_time_leaves(bed: StoreBed) -> None:
    bed.claims.move_all([move(bed, "w2", "a"), move(bed, "w4", "b")])
    first, second = bed.message("w3"), bed.message("w3")
    assert first == second
    bed.claims.take_over("w3", first.run_id, "dead", first.epoch, "a")

    own = {"id", "bucket", "run_id", "created_at", "updated_at", "waiting_since_at", "turn_began_at"}
    one, other = (
        {key: value for key, value in bed.read(workflow_id)._mapping.items() if key not in own}
        for workflow_id in ("w2", "w3")
    )
    assert one == other


@pytest.mark.parametrize(
    "changes",
    [{"epoch": 7}, {"holder": "a"}, {"holder": None}, {"run_id": "another"}, {"workflow_id": "none"}],
    ids=lambda changes: next(iter(changes)),
)
def test_one_that_is_not_as_named_stays_and_the_others_move(bed: StoreBed, changes: dict[str, object]) -> None:
    grants = bed.claims.move_all([move(bed, "w1", "a", **changes), move(bed, "w2", "b")])
    assert set(grants) == {"w2"}
    assert owner(bed, "w1") == ("dead", 1)


def test_one_whose_holder_is_alive_stays(bed: StoreBed) -> None:
    bed.parked("alive", "a")
    assert set(bed.claims.move_all([move(bed, "alive", "b"), move(bed, "w1", "b")])) == {"w1"}
    assert owner(bed, "alive") == ("a", 1)


def test_one_that_does_not_run_stays(bed: StoreBed) -> None:
    bed.write(update(workflows).where(workflows.c.id == "w1").values(status=WorkflowStatus.SUSPENDED))
    assert set(bed.claims.move_all([move(bed, "w1", "a"), move(bed, "w2", "a")])) == {"w2"}


def test_one_whose_target_takes_no_work_stays(bed: StoreBed) -> None:
    bed.engines.drain("b")
    assert set(bed.claims.move_all([move(bed, "w1", "b"), move(bed, "w2", "gone"), move(bed, "w3", "a")])) == {"w3"}
    assert owner(bed, "w1") == ("dead", 1)


def test_one_whose_target_does_not_know_the_type_stays(bed: StoreBed) -> None:
    bed.engine("other", "another type")
    bed.beat("a", "b", "other")
    assert set(bed.claims.move_all([move(bed, "w1", "other"), move(bed, "w2", "a")])) == {"w2"}


def test_one_that_somebody_has_locked_is_left_out_without_a_wait(bed: StoreBed) -> None:
    if bed.store.database.is_sqlite:
        pytest.skip("SQLite locks no rows")
    moves = [move(bed, "w1", "a"), move(bed, "w2", "b")]
    with bed.store.database.transaction() as connection:
        connection.execute(select(workflows.c.id).where(workflows.c.id == "w1").with_for_update())
        assert set(bed.claims.move_all(moves)) == {"w2"}


def test_nothing_to_move_is_no_grant(bed: StoreBed) -> None:
    assert bed.claims.move_all([]) == {}
