"""`status`, `list`, `show` and `top` tell what is in the store."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from shop import ENGINE, NODE, Shop
from sqlalchemy import update

from weft_tasks.errors import InvalidInput
from weft_tasks.model import WorkflowStatus
from weft_tasks.store.tables import engines, workflows

ODD_ID = "order-[red]\u202e[/red]"


def _write(shop: Shop, statement: object) -> None:
    with shop.weft.store.database.transaction() as connection:
        connection.execute(statement)


# -- status and top


def test_status_shows_engines_passes_counts_and_what_is_due(shop: Shop) -> None:
    shop.weft.start("order", "w")
    shop.run("run-once")
    text = shop.run("status").stdout
    for words in (NODE, "live", "broken, order", "renewal", "1 renewed", "running  1", "Due: nothing waits"):
        assert words in text


def test_status_as_json_has_the_same_for_machines(shop: Shop) -> None:
    shop.weft.start("order", "w")
    shop.run("run-once")
    status = shop.json("status")
    (engine,) = status["engines"]
    assert (engine["node"], engine["id"], engine["status"], engine["claims"]) == (NODE, ENGINE, "live", 1)
    assert 0 <= engine["heartbeat_age_s"] < 30
    assert {mark["pass"] for mark in status["passes"]} == {
        "renewal",
        "reclaim",
        "signal-poll",
        "update-poll",
        "run-once",
    }
    renewal = next(mark for mark in status["passes"] if mark["pass"] == "renewal")
    assert renewal["result"]["counts"]["renewed"] == 1
    assert (renewal["late_s"], renewal["seconds"] is not None) == (0, True)
    assert status["workflows"] == [{"status": "running", "count": 1}]
    assert status["backlog"]["total"] == 0


def test_status_shows_what_is_stuck(shop: Shop) -> None:
    shop.weft.start("order", "aside")
    shop.weft.suspend("aside")
    reason = json.dumps({"type": "SetAside", "message": "5 turns began in a row"})
    aside = update(workflows).where(workflows.c.id == "aside")
    _write(shop, aside.values(status=WorkflowStatus.SET_ASIDE, error=reason))
    shop.weft.start("order", "held")
    _write(shop, update(engines).values(status="stopped"))
    text = shop.run("status").stdout
    for words in ("Set aside: 1", "5 turns began in a row", "Claims of engines that are gone", "Types that no live"):
        assert words in text
    status = shop.json("status")
    assert [aside["id"] for aside in status["set_aside"]] == ["aside"]
    assert [(claims["node"], claims["count"]) for claims in status["stranded_claims"]] == [(NODE, 1)]
    assert status["homeless"] == [{"type": "order", "version": 1, "count": 1}]


def test_the_age_of_a_heartbeat_is_shown_although_no_other_engine_beats(shop: Shop) -> None:
    _write(shop, update(engines).values(heartbeat_at=engines.c.heartbeat_at - 3_600_000))
    assert shop.json("status")["engines"][0]["heartbeat_age_s"] >= 3600
    assert "1 h" in shop.run("status").stdout


def test_top_into_a_pipe_is_one_frame_with_the_latest_changes_of_ownership(shop: Shop) -> None:
    shop.weft.start("order", "w")
    shop.weft.suspend("w")
    text = shop.run("top").stdout
    assert NODE in text
    assert "Latest changes of ownership" in text
    assert "suspend" in text
    assert [change["event"] for change in shop.json("top")["changes"]] == ["suspend"]


# -- list


@pytest.fixture
def filled(shop: Shop) -> Shop:
    for id in ("a", "b", "c"):
        shop.weft.start("order", id)
    shop.weft.signal("c", "paid", 7)
    shop.weft.suspend("b")
    return shop


def _listed(shop: Shop, *words: str) -> list[str]:
    return [info["id"] for info in shop.json("list", *words)["workflows"]]


def test_list_filters_by_type_status_engine_and_age(filled: Shop) -> None:
    assert _listed(filled) == ["a", "b", "c"]
    assert _listed(filled, "--status", "suspended") == ["b"]
    assert _listed(filled, "--type", "broken") == []
    assert _listed(filled, "--engine", NODE) == _listed(filled, "--engine", ENGINE) == ["a"]
    assert _listed(filled, "--older-than", "1h") == []
    assert _listed(filled, "--older-than", "0") == ["a", "b", "c"]


def test_list_shows_owner_waits_and_turn(filled: Shop) -> None:
    text = filled.run("list").stdout
    (line,) = (line for line in text.splitlines() if line.startswith("  a "))
    for words in ("order", "running", NODE, "paid"):
        assert words in line


def test_list_goes_page_by_page(filled: Shop) -> None:
    first = filled.json("list", "--limit", "2")
    assert ([info["id"] for info in first["workflows"]], first["next_after"]) == (["a", "b"], "b")
    second = filled.json("list", "--limit", "2", "--after", "b")
    assert ([info["id"] for info in second["workflows"]], second["next_after"]) == (["c"], None)
    assert "--after 'b'" in filled.run("list", "--limit", "2").stderr


def test_list_says_which_nodes_there_are_when_it_is_asked_for_another(filled: Shop) -> None:
    assert f"(known: {NODE})" in filled.refused("list", "--engine", "e9@host")


@pytest.mark.parametrize("option", ["--after", "--type", "--engine"])
def test_an_argument_that_is_no_text_is_one_line(shop: Shop, option: str) -> None:
    """A shell may hand over bytes that are no UTF-8."""
    assert "which no id or name may have" in shop.refused("list", option, "\udcff")


# -- show


def test_show_tells_owner_waits_state_and_turns(shop: Shop) -> None:
    shop.weft.start("order", "w", {"amount": 20})
    text = shop.run("show", "w").stdout
    for words in ("order version 1", f"{NODE} ({ENGINE}), live", '{"amount": 20}', '{"seen": 0}', "2 d 23 h", "parked"):
        assert words in text
    shown = shop.json("show", "w")
    assert (shown["owner"]["node"], shown["owner"]["engine"]) == (NODE, ENGINE)
    assert [(turn["turn"], turn["node"], turn["epoch"], turn["outcome"]) for turn in shown["turns"]] == [
        (0, NODE, 1, "parked")
    ]
    assert (shown["waits"][0]["name"], shown["state"], shown["input"]) == ("paid", {"seen": 0}, {"amount": 20})


def test_show_tells_what_has_been_sent_and_not_taken(shop: Shop) -> None:
    shop.weft.start("order", "w")
    shop.weft.suspend("w")
    shop.weft.signal("w", "paid", 1, key="k")
    shop.weft.update("w", "add", 1)
    assert "Not taken yet: 2" in shop.run("show", "w").stdout
    assert [(item["kind"], item["name"]) for item in shop.json("show", "w")["pending"]] == [
        ("signal", "paid"),
        ("update", "add"),
    ]


def test_show_tells_why_a_workflow_moved(shop: Shop) -> None:
    store = shop.weft.store
    shop.weft.start("order", "w")
    shop.add_engine("second", "e2@host")
    message = store.workflows.describe("w")
    store.engines.stop(ENGINE)
    grant = store.claims.take_over("w", message.run_id, ENGINE, message.epoch, "second")
    assert grant.answer == "won"
    store.claims.release_all("second")
    lines = shop.run("show", "w").stdout.splitlines()
    (taken,) = (line for line in lines if "taken-over" in line)
    assert "e2@host" in taken
    assert f"{NODE} had stopped" in taken
    (released,) = (line for line in lines if "released" in line)
    assert "the engine was stopping" in released
    assert "owner" in "\n".join(lines)
    assert "nobody" in "\n".join(lines)


def test_show_tells_that_a_handler_raised_and_when_it_is_tried_again(shop: Shop) -> None:
    shop.weft.start("broken", "w")
    text = shop.run("show", "w").stdout
    for words in ("RuntimeError: no bank today", "its handler has raised 1 time", "again in 1.0 s", "turn-failed"):
        assert words in text


def test_show_of_a_completed_workflow_has_its_result_and_no_waits(shop: Shop) -> None:
    shop.weft.start("order", "w")
    shop.weft.signal("w", "paid", {"receipt": 7})
    text = shop.run("show", "w").stdout
    assert '{"receipt": 7}' in text
    assert "Waits for" not in text


def test_show_of_what_is_not_there_is_one_line(shop: Shop) -> None:
    assert shop.refused("show", "nobody") == "Error: no workflow has the id 'nobody'"


# -- what users made


def test_no_control_character_of_a_user_reaches_the_terminal(shop: Shop) -> None:
    shop.weft.start("order", ODD_ID, "\x1b]0;owned\x07\nForged: line")
    shop.weft.suspend(ODD_ID)
    shop.weft.terminate(ODD_ID, "because\x1b[2J\r\nForged: line")
    for words in (("list",), ("show", ODD_ID), ("top",), ("status",), ("cancel", ODD_ID)):
        result = shop.run(*words, status=1 if words[0] == "cancel" else 0)
        assert not set("\x1b\x07\r\u202e") & set(result.output)
        assert not any(line.startswith("Forged") for line in result.output.splitlines())
        if words[0] not in ("status",):
            assert "order-[red]\\u202e[/red]" in result.output


def test_what_is_older_than_the_limit_is_left_out(shop: Shop) -> None:
    shop.weft.start("order", "w")
    for _ in range(3):
        shop.weft.suspend("w")
        shop.weft.resume("w")
    assert len(shop.json("show", "w", "--limit", "2")["history"]) == 2


def test_a_timeout_of_the_workflow_is_shown(shop: Shop) -> None:
    shop.weft.start("order", "w", timeout=timedelta(hours=1))
    assert "ends by itself" in shop.run("show", "w").stdout


@pytest.mark.parametrize("limit", [0, 10_001])
def test_an_application_asks_for_a_sensible_number(shop: Shop, limit: int) -> None:
    shop.weft.start("order", "w")
    with pytest.raises(InvalidInput, match=f"must be from 1 to 10000, not {limit}"):
        shop.weft.inspect("w", limit=limit)
    assert [turn.node for turn in shop.weft.inspect("w").turns] == [NODE]
