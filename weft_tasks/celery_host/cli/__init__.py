"""`celery -A APP weft …`, through Celery's own plug-in point.

Celery imports this package for every one of its commands, so it imports nothing but click, and each command only when
it is asked for. A command is a module's attribute of its own name; its module may import no more than this one at its
top, because `weft --help` imports them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

import click

MODULE_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "migrate": "schema",
        "check": "check",
        "status": "status",
        "top": "top",
        "list": "look",
        "show": "look",
        "start": "talk",
        "signal": "talk",
        "update": "talk",
        "cancel": "course",
        "terminate": "course",
        "suspend": "course",
        "resume": "course",
        "retry": "course",
        "purge": "course",
        "run-once": "passes",
        "drain": "drain",
        "exporter": "exporter",
    }
)
"""Every command, in the order of `--help`, and the module of this package that has it."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULE_OF)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULE_OF:
            return None
        module = import_module(f"{__name__}.{MODULE_OF[cmd_name]}")
        # `list` is `list_` there, as is every command that would hide a builtin.
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(module, name if hasattr(module, name) else f"{name}_")
        return command


@click.group(cls=_Commands)
def weft() -> None:
    """Durable workflows: look at them, talk to them, and run what runs them.

    The application goes before the command: `celery -A APP weft COMMAND`. Every command prints tables on a terminal,
    plain text into a pipe, and one JSON document with --json. Exit status 0 is success, 1 a failure, which is one line
    on stderr, 2 a command line that cannot be read.
    """
