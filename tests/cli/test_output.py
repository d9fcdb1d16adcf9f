"""How it is printed: escaped, aligned, in colour on a terminal; what a command line may say for a duration."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime, timedelta

import click
import pytest
from celery import Celery
from rich.console import Console

from weft_tasks.celery_host.cli.output import (
    Facts,
    Marked,
    Mood,
    Output,
    Table,
    duration_of,
    has_rich_terminal,
    plain_of,
    rich_of,
    text_of,
)
from weft_tasks.celery_host.cli.parameters import DURATION
from weft_tasks.celery_host.cli.printable import printable, printable_json, width
from weft_tasks.celery_host.cli.secrets import hide_secrets

TABLE = Table(title="Engines", columns=("node", "claims"), rows=[("e1@host", 3), ("東京", None)])


def test_plain_tables_are_aligned_also_with_wide_characters() -> None:
    assert plain_of([TABLE]).splitlines() == ["Engines", "  node     claims", "  e1@host  3", "  東京     -"]


def test_a_table_without_rows_says_so_in_a_line() -> None:
    assert plain_of([Table(title="Engines", columns=("node",), rows=[])]) == "Engines: none\n"


def test_facts_leave_out_what_is_not_known() -> None:
    shown = plain_of([Facts(title="w", facts=[("owner", None), ("epoch", 3), ("run id", "r")])])
    assert shown.splitlines() == ["w", "  epoch   3", "  run id  r"]


def _rich(*parts: Table | Facts | str, columns: int = 80) -> str:
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=True, width=columns, color_system="standard", markup=False, highlight=False
    )
    for renderable in rich_of(parts):
        console.print(renderable)
    return file.getvalue()


def test_a_terminal_gets_colours_of_ours_and_none_of_a_user() -> None:
    shown = _rich(Table(title="T", columns=("id", "status"), rows=[("[red]x[/red]\x1b[31m", Marked("deaf", Mood.BAD))]))
    assert "[red]x[/red]\\x1b[31m" in shown
    assert "\x1b[31mdeaf" in shown
    assert shown.count("\x1b[31m") == 1


def test_a_narrow_terminal_folds_ids_and_loses_nothing_of_them() -> None:
    id = "".join(chr(ord("a") + n % 26) for n in range(90))
    shown = _rich(Table(title="T", columns=("id", "n"), rows=[(id, 1)]), columns=40)
    letters = "".join(line.split()[0] for line in shown.splitlines() if line.strip() and line.split()[0] in id)
    assert letters == id


@pytest.mark.parametrize("title", ["[bold]w[/bold]", "w\x1b[2J"])
def test_titles_are_data_as_well(title: str) -> None:
    assert printable(title) in _rich(Facts(title=title, facts=[("epoch", 1)]))
    assert printable(title) in plain_of([Facts(title=title, facts=[("epoch", 1)])])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Zürich 東京 🙂", "Zürich 東京 🙂"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202eevil", "\\u202eevil"),
        ("a\u2028b\x85c\x9bd", "a\\u2028b\\x85c\\x9bd"),
        ("\u200b\ufeff", "\\u200b\\ufeff"),
    ],
)
def test_what_could_move_or_hide_something_is_escaped_and_the_rest_is_not(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("value", ["\u202e\x1b\n", "für", {"a\u200b": ["\U000e0041", 1, None]}, 1.5])
def test_json_for_people_stays_json_and_is_printable(value: object) -> None:
    text = printable_json(value)
    assert json.loads(text) == value
    assert printable(text) == text


def test_the_width_of_a_text_is_that_of_a_terminal() -> None:
    assert [width(text) for text in ("abc", "東京", "e\u0301")] == [3, 4, 1]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.0123, "12 ms"),
        (3.44, "3.4 s"),
        (125, "2 min 5 s"),
        (120, "2 min"),
        (12000, "3 h 20 min"),
        (440000, "5 d 2 h"),
        (-90, "-1 min 30 s"),
    ],
)
def test_a_duration_is_said_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert duration_of(timedelta(seconds=seconds)) == words


def test_a_time_is_shown_in_utc_whatever_its_zone() -> None:
    assert text_of(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02 03:04:05Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("0.5", 0.5),
        ("250ms", 0.25),
        ("90s", 90),
        ("5m", 300),
        ("5min", 300),
        ("1h30m", 5400),
        ("3d", 259200),
    ],
)
def test_durations_that_a_command_line_may_say(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "1h30", "-5", "h", "1e9w", "9" * 400 + "w"])
def test_durations_that_it_may_not(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DURATION.convert(text, None, None)


# -- secrets


def _app(**settings: object) -> Celery:
    app = Celery("shop", set_as_current=False)
    app.conf.update(broker_url="memory://", **settings)
    return app


@pytest.mark.parametrize(
    "text",
    [
        "cannot reach redis://:hunter2@host/0",
        "cannot reach redis://me:hunter2@host/0 nor amqp://me:hunter2@host//",
        "connection to postgresql://me:p@ss:w/ord@host/db failed",
        "postgresql://host/db?user=me&password=hunter2&x=1 failed",
        "AUTH hunter2 failed",
        "the password 'p@ss:w/ord' is wrong",
        "sentinel said: NOAUTH for s3ntinel",
    ],
)
def test_no_password_of_a_url_is_printed(text: str) -> None:
    app = _app(
        weft_redis_url="redis://:hunter2@host/0",
        weft_database_url="postgresql://me:p%40ss%3Aw%2Ford@host/db",
        broker_transport_options={"sentinel_kwargs": {"password": "s3ntinel"}},
    )
    shown = hide_secrets(text, app)
    assert not [secret for secret in ("hunter2", "p@ss:w/ord", "w/ord", "s3ntinel") if secret in shown]
    assert "***" in shown


def test_a_url_without_a_password_stays_as_it_is() -> None:
    text = "redis://host:6379/0 and postgresql://me@host/db and sqlite:////var/weft.sqlite3"
    assert hide_secrets(text, _app()) == text


def test_a_password_that_the_environment_names_is_hidden_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_URL", "redis://:from-env@host/0;redis://:other-one@host/1")
    assert hide_secrets("from-env other-one", _app()) == "*** ***"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_without_rich_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert not has_rich_terminal()
    Output(as_json=False).show({}, TABLE)
    assert terminal.getvalue() == plain_of([TABLE]) + "\n"


def test_a_terminal_with_rich_gets_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    Output(as_json=False).show({}, TABLE)
    assert "─" in terminal.getvalue()
    assert "e1@host" in terminal.getvalue()


def test_json_is_the_same_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    Output(as_json=True).show({"a": "\x1b\u202e"}, TABLE)
    assert json.loads(terminal.getvalue()) == {"a": "\x1b\u202e"}
    assert "\x1b" not in terminal.getvalue()
