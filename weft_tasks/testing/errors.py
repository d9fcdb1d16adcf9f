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


# -- the bed of workflows --------------------------------------------------------------------------------------------


class NeverParks(WeftError):
    """Turn follows turn without end: a handler that is due again whenever its turn has committed."""

    def __init__(self, workflow_id: str, type_name: str, turns: int, limit: int, waits: Iterable[str]) -> None:
        names = tuple(waits)
        reason = "sleeps for no time" if "" in names else "leaves signals untaken that it waits for"
        super().__init__(
            f"{limit} turns have run and there is no end in sight: {turns} of them are turns of workflow "
            f"{workflow_id!r} (type {type_name!r}), which waits for {', '.join(map(repr, names)) or 'nothing'}. "
            f"Perhaps it {reason}, so that each turn is followed by another one at once."
        )
        self.workflow_id, self.turns = workflow_id, turns


class NotAnswered(WeftError):
    """A result or an answer that is not there yet, with what the workflow waits for."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} has no result yet: {why}")


class NoReplyWanted(WeftError):
    """A call whose reply nobody waits for was replied to."""

    def __init__(self, call_id: str, task: str) -> None:
        super().__init__(
            f"nobody waits for what becomes of {task!r} ({call_id}): turn.call(..., reply=NAME) asks for it"
        )


class NoWeftGiven(WeftError):
    """A bed was asked to stand in for a Weft, and was made from none."""

    def __init__(self) -> None:
        super().__init__("this bed was made from no Weft, so there is none to stand in for: WorkflowBed(weft)")


class NoSuchEngine(WeftError):
    """The bed has no such living engine."""

    def __init__(self, wanted: str | None, living: Iterable[str]) -> None:
        names = ", ".join(living) or "none"
        which = "no engine" if wanted is None else f"no engine {wanted!r}"
        super().__init__(f"{which} lives here (living: {names}); add_engine() starts another one")


class PassBroke(WeftError):
    """A pass raised, or could not read its work list, in a bed where nothing should be in its way."""

    def __init__(self, kind: str, error: str) -> None:
        super().__init__(f"the {kind} pass of the bed failed: {error}")
