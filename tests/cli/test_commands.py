"""What all commands have in common: help, errors in one line, JSON, and nothing heavy at their import."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from celery import Celery
from click.testing import CliRunner
from shop import Shop, build

from weft_tasks.celery_host.cli import MODULE_OF
from weft_tasks.celery_host.cli import weft as commands

LOCAL = {"exporter": "serves until it is stopped"}
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "migrate": (),
    "check": ("--timeout", "0.1"),
    "status": (),
    "top": (),
    "list": (),
    "show": ("w",),
    "start": ("order", "w"),
    "signal": ("w", "paid"),
    "update": ("w", "add", "1"),
    "cancel": ("w",),
    "terminate": ("w",),
    "suspend": ("w",),
    "resume": ("w",),
    "retry": ("w",),
    "purge": ("--older-than", "1d", "--yes"),
    "run-once": (),
    "drain": ("e1@host",),
}
"""Each command as it might be called; `check` alone has errors for findings."""
ON_THE_STORE = tuple(name for name in ARGUMENTS if name not in ("check", "migrate"))
PASSWORD = "k3y:of-the@house"
QUOTED = "k3y%3Aof-the%40house"


def test_every_command_is_tried_here() -> None:
    assert set(ARGUMENTS) | set(LOCAL) >= set(MODULE_OF)


@pytest.mark.parametrize("command", list(MODULE_OF))
def test_help_says_what_the_command_does_and_needs_no_application(command: str) -> None:
    result = CliRunner().invoke(commands, [command, "--help"])
    assert result.exit_code == 0
    assert f" {command} " in result.output
    assert "--help" in result.output
    assert len(result.output.splitlines()) > 8


def test_the_list_of_commands_names_all_of_them() -> None:
    listed = CliRunner().invoke(commands, ["--help"]).output
    assert [command for command in MODULE_OF if f"\n  {command} " not in listed] == []


def test_a_command_that_there_is_not_is_a_usage_error() -> None:
    result = CliRunner().invoke(commands, ["frobnicate"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "No such command 'frobnicate'" in result.stderr


@pytest.mark.parametrize("command", list(ARGUMENTS))
def test_without_an_application_a_command_says_where_it_goes(command: str) -> None:
    result = CliRunner().invoke(
        commands, [command, *ARGUMENTS[command]], obj=SimpleNamespace(app=Celery("default", set_as_current=False))
    )
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == ("Error: which application? Say it before the command: celery -A YOUR_APP weft …\n")


def test_an_application_without_a_weft_is_told_to_make_one() -> None:
    app = Celery("bare", set_as_current=False)
    result = CliRunner().invoke(commands, ["status"], obj=SimpleNamespace(app=app))
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: the application 'bare' has no Weft: add `weft = Weft(app)` to it\n",
    )


@pytest.mark.parametrize("command", ON_THE_STORE)
def test_a_database_without_a_schema_is_one_line_with_the_remedy(empty_url: str, command: str) -> None:
    shop = Shop(weft=build(empty_url))
    if command == "run-once":
        # Its parts fail one by one, as they do when beat fires them.
        assert "weft migrate" in shop.run(command, status=1).output
    else:
        assert "celery -A APP weft migrate" in shop.refused(command, *ARGUMENTS[command])


@pytest.mark.parametrize("command", [*ON_THE_STORE, "migrate"])
def test_a_database_that_is_away_is_one_line_without_its_password(command: str) -> None:
    weft = build(f"postgresql://shop:{QUOTED}@127.0.0.1:1/shop", weft_connect_timeout=0.2)
    line = Shop(weft=weft).refused(command, *ARGUMENTS[command])
    assert "the store did not answer" in line
    assert PASSWORD not in line
    assert QUOTED not in line


def test_settings_that_cannot_work_are_one_line(empty_url: str) -> None:
    shop = Shop(weft=build(empty_url, weft_claim_ttl=6))
    assert "weft_claim_ttl (6 s) must be at least 3 x weft_renew_interval (5 s)" in shop.refused("status")


@pytest.mark.parametrize("command", list(ARGUMENTS))
def test_json_is_one_document_also_where_things_went_wrong(shop: Shop, command: str) -> None:
    shop.run("start", "order", "w")
    words = ("order", "other") if command == "start" else ARGUMENTS[command]
    status = {"check": 1, "resume": 1, "retry": 1}.get(command, 0)
    if command in ("resume", "retry"):
        assert "cannot be" in shop.refused(command, *words, "--json")
    else:
        assert isinstance(shop.json(command, *words, status=status), dict)


IMPORTS = """
import sys
before = set(sys.modules)
import weft_tasks.celery_host.cli
{then}
heavy = ("sqlalchemy", "alembic", "rich", "redis", "weft_tasks.weft", "weft_tasks.store")
print([name for name in heavy if name in sys.modules])
"""


@pytest.mark.parametrize(
    "then",
    ["", "from click.testing import CliRunner; CliRunner().invoke(weft_tasks.celery_host.cli.weft, ['--help'])"],
)
def test_neither_the_plug_in_nor_its_help_imports_what_other_celery_commands_do_not_need(then: str) -> None:
    program = IMPORTS.format(then=then)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"
