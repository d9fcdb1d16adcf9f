"""What can go wrong with the processes a test starts. A constructor takes facts and writes the sentence."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from weft_tasks.errors import WeftError


class ProgramNotFound(WeftError):
    """A server's program is in none of the places where it was looked for."""

    def __init__(self, program: str, places: Iterable[str]) -> None:
        super().__init__(f"no {program} found; looked at: {', '.join(places)}")
        self.program = program


class ProcessDied(WeftError):
    """A process ended, or its program failed, while something was expected of it."""

    def __init__(self, name: str, exit_code: int, log_tail: str) -> None:
        super().__init__(f"{name} ended with exit code {exit_code}; its log ends with:\n{log_tail}")
        self.name, self.exit_code = name, exit_code


class NotStarted(WeftError):
    """A process was asked for something that it only has once it was started."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} was not started")
        self.name = name


class WaitTimedOut(WeftError, TimeoutError):
    """A condition did not come true within its time."""

    def __init__(self, what: str, timeout: timedelta) -> None:
        super().__init__(f"waited {timeout.total_seconds():g} s in vain for {what}")
        self.what, self.timeout = what, timeout


class NoFreePort(WeftError):
    """No port could be bound within a reasonable number of tries."""

    def __init__(self, tries: int) -> None:
        super().__init__(f"no free TCP port on 127.0.0.1 after {tries} tries")


class NoPlainAccount(WeftError):
    """PostgreSQL refuses to run as root, and no account that it could run as exists."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(f"this is root, and none of the users {', '.join(names)} exists for PostgreSQL to run as")


class NoSharedFolder(WeftError):
    """Every temporary folder is closed to the account that a server has to run as."""

    def __init__(self, account: str, places: Iterable[str]) -> None:
        super().__init__(f"the user {account!r} cannot enter any of {', '.join(places)}; set TMPDIR to one that it can")
