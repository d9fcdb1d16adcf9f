"""The commands that change something."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from shop import ENGINE, NODE, InlineMailbox, Shop, build
from sqlalchemy import update

from weft_tasks.model import EngineStatus, TurnMessage, WorkflowStatus
from weft_tasks.store.tables import workflows
from weft_tasks.store.turns import BegunTurn

# -- start, signal, update


def test_start_gives_the_id_and_a_workflow_that_runs(shop: Shop) -> None:
    assert shop.run("start", "order", "w", "--input", '{"amount": 20}').stdout.startswith("started w (run ")
    assert shop.weft.describe("w").input == {"amount": 20}


def test_start_without_an_id_makes_one(shop: Shop) -> None:
    started = shop.json("start", "order")
    assert shop.weft.describe(started["id"]).run_id == started["run_id"]


def test_start_reads_its_input_from_a_file_or_from_stdin(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "input.json").write_text('["from a file"]')
    shop.run("start", "order", "f", "--input", f"@{tmp_path / 'input.json'}")
    shop.run("start", "order", "s", "--input", "-", input='"from stdin"')
    assert [shop.weft.describe(id).input for id in ("f", "s")] == [["from a file"], "from stdin"]


def test_start_waits_for_the_result_if_it_is_told_to(shop: Shop) -> None:
    shop.weft.start("order", "w")
    shop.weft.signal("w", "paid", {"receipt": "für dich"})
    assert shop.run("start", "order", "w", "--on-conflict", "use-existing", "--wait", "1").stdout == (
        '{"receipt": "für dich"}\n'
    )
    assert shop.refused("start", "broken", "b", "--wait", "0.01").startswith(
        "Error: workflow 'b' (running) has no result"
    )
    shop.weft.terminate("b", "enough")
    line = shop.refused("start", "broken", "b", "--on-conflict", "use-existing", "--wait", "1")
    assert line == "Error: workflow 'b' ended as terminated: Terminated: enough"
    line = shop.refused("start", "order", "v", "--wait", "0.01")
    assert "has no result after 0.01 s" in line


def test_start_can_put_off_and_time_out(shop: Shop) -> None:
    shop.run("start", "order", "w", "--delay", "1h30m", "--timeout", "3d")
    found = shop.weft.inspect("w")
    assert found.attempt.not_before is not None
    assert abs(found.attempt.not_before - found.now - timedelta(minutes=90)) < timedelta(seconds=30)
    assert found.ends_by is not None
    assert abs(found.ends_by - found.now - timedelta(days=3)) < timedelta(seconds=30)


def test_an_id_that_is_taken_is_one_line(shop: Shop) -> None:
    shop.run("start", "order", "w")
    assert "exists already (status running)" in shop.refused("start", "order", "w")
    assert "no workflow type 'visa' is registered here (known: broken, order)" in shop.refused("start", "visa")


def test_signal_sends_once_under_a_key(shop: Shop) -> None:
    shop.weft.start("order", "w")
    shop.weft.suspend("w")
    assert shop.run("signal", "w", "paid", "[1]", "--key", "k").stdout == "signal 1 is sent to w\n"
    assert shop.run("signal", "w", "paid", "[1]", "--key", "k").stdout == "signal 1 was sent before to w\n"
    assert shop.json("signal", "w", "paid", "[1]", "--key", "k")["duplicate"] is True
    assert shop.weft.describe("w").pending_signals == 1


def test_a_payload_that_is_a_text_needs_no_quotes_of_json(shop: Shop) -> None:
    handle = shop.weft.start("order", "w")
    shop.run("signal", "w", "paid", "--text", 'parcel "77"')
    assert handle.result(1) == 'parcel "77"'


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("signal", "w", "paid", "parcel"), "is not JSON"),
        (("signal", "w", "paid", "1", "--text", "one"), "not both"),
        (("signal", "w", "paid", "@/no/such/file"), "No such file"),
        (("update", "w", "add", "1", "--timeout", "soon"), "is no duration"),
        (("start", "order", "--delay", "1h30"), "is no duration"),
        (("list", "--status", "dead"), "is not one of"),
        (("purge", "--older-than", "1d"), "--yes"),
        (("migrate", "base"), "--yes"),
        (("show",), "Missing argument"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_a_usage_error(shop: Shop, words: tuple[str, ...], problem: str) -> None:
    assert problem in shop.refused(*words, status=2)


def test_update_waits_and_prints_the_answer(shop: Shop) -> None:
    shop.weft.start("order", "w")
    assert shop.run("update", "w", "add", "4").stdout == "4\n"
    answered = shop.json("update", "w", "add", "5", "--key", "k")
    assert (answered["answer"], answered["key"]) == (9, "k")
    assert shop.run("update", "w", "add", "5", "--key", "k").stdout == "9\n"


def test_an_update_that_fails_is_one_line(shop: Shop) -> None:
    shop.weft.start("order", "w")
    assert "failed: TypeError" in shop.refused("update", "w", "add", '"four"')


def test_an_update_without_an_answer_in_time_says_how_to_ask_again(shop: Shop) -> None:
    shop.weft.start("order", "w")
    shop.weft.suspend("w")
    line = shop.refused("update", "w", "add", "4", "--key", "k", "--timeout", "50ms")
    assert "has no result after 0.05 s; it stands: ask again with --key k" in line
    shop.weft.resume("w")
    _take_due(shop)
    assert shop.run("update", "w", "add", "4", "--key", "k").stdout == "4\n"


def _take_due(shop: Shop) -> None:
    """What the reclaim pass that was asked for would do."""
    shop.run("run-once")


# -- a workflow's course


def test_each_verb_changes_the_status(shop: Shop) -> None:
    shop.weft.start("order", "w")
    for verb, status in (("suspend", "suspended"), ("resume", "running, due"), ("cancel", "cancelling")):
        assert shop.json(verb, "w")["workflows"] == [{"id": "w", "status": status, "error": None}]
    shop.run("terminate", "w", "--reason", "enough of this")
    found = shop.weft.describe("w")
    assert (found.status, found.error) == (
        WorkflowStatus.TERMINATED,
        {"type": "Terminated", "message": "enough of this"},
    )


def test_retry_lets_a_workflow_that_was_set_aside_run_again(shop: Shop) -> None:
    shop.weft.start("order", "w")
    with shop.weft.store.database.transaction() as connection:
        connection.execute(update(workflows).values(status=WorkflowStatus.SET_ASIDE, engine_id=None))
    assert shop.json("retry", "w")["workflows"][0]["status"] == "running, due"


def test_one_that_cannot_be_changed_keeps_none_of_the_others_from_it(shop: Shop) -> None:
    shop.weft.start("order", "a")
    shop.weft.start("order", "b")
    result = shop.run("suspend", "a", "nobody", "b", status=1)
    assert result.stderr == "Error: no workflow has the id 'nobody'\n"
    assert [shop.weft.describe(id).status for id in ("a", "b")] == [WorkflowStatus.SUSPENDED] * 2


def test_what_makes_no_sense_in_a_status_is_one_line(shop: Shop) -> None:
    shop.weft.start("order", "w")
    assert shop.refused("resume", "w") == "Error: workflow 'w' cannot be resumed: its status is running"


def test_purge_deletes_what_ended_long_enough_ago(shop: Shop) -> None:
    for id in ("old", "young", "alive", "other"):
        shop.weft.start("order", id)
    for id in ("old", "young"):
        shop.weft.signal(id, "paid")
    shop.weft.terminate("other")
    with shop.weft.store.database.transaction() as connection:
        old = update(workflows).where(workflows.c.id.in_(["old", "other"]))
        connection.execute(old.values(ended_at=workflows.c.ended_at - 2 * 86_400_000))
    assert shop.json("purge", "--older-than", "1d", "--status", "completed", "--yes") == {"purged": 1}
    assert shop.run("purge", "--older-than", "1d", "--yes").stdout == "purged 1 workflow\n"
    assert [info.id for info in shop.weft.list()] == ["alive", "young"]


def test_purge_stops_at_its_limit(shop: Shop) -> None:
    for n in range(3):
        shop.weft.start("order", f"w{n}")
        shop.weft.terminate(f"w{n}")
    assert shop.json("purge", "--older-than", "0", "--limit", "2", "--yes") == {"purged": 2}


# -- the passes, and the schema


def test_run_once_is_a_table_of_the_four_passes(shop: Shop) -> None:
    lines = shop.run("run-once").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["renewal", "reclaim", "signal-poll", "update-poll"]
    assert shop.json("run-once")["failed"] == []


def test_migrate_goes_up_and_with_a_yes_down_again(empty_url: str) -> None:
    shop = Shop(weft=build(empty_url))
    assert shop.json("migrate")["before"] is None
    assert shop.json("migrate")["revision"] == shop.json("migrate", "head")["revision"]
    assert "is at revision" in shop.run("migrate").stdout
    gone = shop.json("migrate", "base", "--yes")
    assert gone["revision"] is None
    shop.weft.store.database.dispose()


def test_a_revision_that_this_release_does_not_know_is_one_line(shop: Shop) -> None:
    assert "revision '9999' is none of base, 0001" in shop.refused("migrate", "9999")


# -- drain


def test_drain_releases_what_is_idle_and_says_drained_when_nothing_is_held(shop: Shop) -> None:
    shop.weft.start("order", "w")
    result = shop.run("drain", NODE)
    assert result.stdout == f"{NODE} ({ENGINE}) is drained and holds no workflow\n"
    assert "no other engine runs broken, order now" in result.stderr
    (engine,) = shop.weft.store.engines.list()
    assert (engine.status, engine.claims) == (EngineStatus.DRAINING, 0)
    mailbox = shop.weft.dispatcher
    assert isinstance(mailbox, InlineMailbox)
    assert mailbox.wants_reclaim


def test_drain_does_not_say_drained_while_a_turn_runs(shop: Shop) -> None:
    turn = _begun(shop)
    shop.add_engine("second", "e2@host")
    line = shop.refused("drain", NODE, "--timeout", "0.3", "--json")
    assert "after 0.3 s e1@host still runs turns of 1 workflow (w)" in line
    shop.weft.store.turns.retry_later(turn, json.dumps({"type": "E", "message": "m"}), timedelta(0))
    assert shop.json("drain", NODE) == {"node": NODE, "engine": ENGINE, "status": "draining", "claims": 0}


def test_drain_waits_for_the_turn_that_runs(shop: Shop) -> None:
    turn = _begun(shop)
    error = json.dumps({"type": "E", "message": "m"})

    def end_it() -> None:
        assert drains.wait(10)
        shop.weft.store.turns.retry_later(turn, error, timedelta(0))

    drains = threading.Event()
    ending = threading.Thread(target=end_it)
    ending.start()
    release = shop.weft.store.claims.release_idle
    try:
        # The first look has found the turn when `release_idle` is called again.
        calls: list[str] = []

        def noticed(engine_id: str) -> int:
            calls.append(engine_id)
            if len(calls) == 2:
                drains.set()
            return release(engine_id)

        shop.weft.store.claims.release_idle = noticed  # type: ignore[method-assign]
        shop.run("drain", NODE, "--timeout", "30")
    finally:
        shop.weft.store.claims.release_idle = release  # type: ignore[method-assign]
        ending.join()


def test_drain_takes_an_engine_id_as_well_and_names_the_nodes_there_are(shop: Shop) -> None:
    assert "is drained" in shop.run("drain", ENGINE).stdout
    assert shop.refused("drain", "e9@host") == f"Error: no engine is known under 'e9@host' (known: {NODE})"


def test_an_engine_that_has_stopped_is_drained(shop: Shop) -> None:
    shop.weft.store.engines.stop(ENGINE)
    assert "has stopped and holds no workflow" in shop.run("drain", NODE).stdout


def _begun(shop: Shop) -> BegunTurn:
    """A workflow whose turn runs on the engine."""
    shop.weft.start("order", "w")
    with shop.weft.store.database.transaction() as connection:
        connection.execute(update(workflows).values(due=True))
    info = shop.weft.describe("w")
    store = shop.weft.store
    message = TurnMessage(workflow_id="w", run_id=info.run_id, engine_id=ENGINE, epoch=info.epoch, turn=info.turn)
    begun = store.turns.begin(message, "task")
    assert isinstance(begun, BegunTurn)
    return begun
