"""The arena: puts one world under every schedule of a race, and judges each ending.

Four judges: the test's own check; the invariants; no deadlock; and the serial outcomes. For the last one the verbs are
played first with whole transactions in every order. A schedule that mixes their statements must end, in answers and in
rows, like one of those; unless a test says otherwise, like one in which the transactions that changed anything did so
in the order of this schedule's commits. Where a loser stands, who changed nothing, is its own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TypeAlias

from weft_tasks.settings import Settings
from weft_tasks.store import Store, limits_of
from weft_tasks.store.clock import ManualClock

from .actor import Actor, Raised, Verb
from .backstage import Backstage, PostgresBackstage, SQLiteBackstage
from .invariants import broken
from .rows import Rows, without_random_ids
from .schedules import drawn_schedules, every_schedule, whole_transactions
from .stage import Choose, Play, Stage
from .world import World

ACTORS = ("a", "b", "c")
_LONG = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Ending:
    """How one schedule ended: what each verb answered, and the rows before and after."""

    answers: Mapping[str, object]
    before: Rows
    after: Rows
    play: Play

    def __getitem__(self, actor: str) -> object:
        return self.answers[actor]

    def fingerprint(self) -> str:
        known = self.before.known_ids()
        answers = without_random_ids(repr(dict(self.answers)), known)
        return f"{answers}\n{self.after.fingerprint(known)}"


Check: TypeAlias = Callable[[Ending], None]
Serial: TypeAlias = Mapping[tuple[str, ...], set[str]]


class Arena:
    """One database with actors on it. Close it at the end.

    `in_steps` has the verbs go their long way even where PostgreSQL could do all of it at once."""

    def __init__(self, url: str, *, in_steps: bool = False) -> None:
        self.url = url
        self._in_steps = in_steps
        self.settings = Settings(database_url=url)
        self.clock = ManualClock()
        self.store = Store.open(self.settings, clock=self.clock)
        self.world = World(self.store, self.clock, self.settings)
        self.is_sqlite = self.store.database.is_sqlite
        self._backstage: Backstage = SQLiteBackstage(url) if self.is_sqlite else PostgresBackstage(url)
        self._stores = [self._patient_store() for _ in ACTORS]
        self._stage = Stage(
            [Actor(name, store) for name, store in zip(ACTORS, self._stores, strict=True)], self._backstage
        )
        self._empty = self._backstage.read()
        self._epochs: dict[str, int] = {}

    def renew(self) -> None:
        """As if it had just been built: rows, and the clock."""
        self._backstage.put_back(self._empty)
        self.clock.__init__()  # type: ignore[misc]

    def close(self) -> None:
        self._backstage.close()
        for store in (self.store, *self._stores):
            store.database.dispose()

    # -- races

    def every_schedule(
        self,
        check: Check,
        *,
        in_commit_order: bool = True,
        is_serial: bool = True,
        skips_families: bool = True,
        **verbs: Verb,
    ) -> int:
        """Race the verbs of actors `a` and `b` under every schedule of their statements; returns how many there were.

        `in_commit_order=False`: it may end like another serial order than that of the commits. `is_serial=False`: like
        none of them; then a comment at the test says why that is right.
        """
        before, serial = self.rows(), self._serial_endings(check, verbs) if is_serial else {}
        run = partial(self._race, verbs, before)
        endings = every_schedule(run, skips_families=skips_families)
        return self._judge_all(endings, check, serial, in_commit_order=in_commit_order, is_serial=is_serial)

    def drawn_schedules(
        self,
        check: Check,
        *,
        count: int = 24,
        seed: int = 1,
        in_commit_order: bool = True,
        is_serial: bool = True,
        **verbs: Verb,
    ) -> int:
        """The same for more actors, whose schedules are too many: `count` of them, drawn by `seed`.

        SQLite lets one transaction in at a time, so a third of them finds what there is.
        """
        count = count // 3 if self.is_sqlite else count
        before, serial = self.rows(), self._serial_endings(check, verbs) if is_serial else {}
        endings = drawn_schedules(partial(self._race, verbs, before), count=count, seed=seed)
        return self._judge_all(endings, check, serial, in_commit_order=in_commit_order, is_serial=is_serial)

    def one_schedule(self, choose: Choose, **verbs: Verb) -> Ending:
        """Race them once, with the steps taken as `choose` says; judges nothing."""
        return self._race(verbs, self.rows(), choose)

    def locked(self, table: str, column: str) -> set[str]:
        """PostgreSQL: which rows of `weft_<table>` somebody has locked or changed at this moment, by a column."""
        return self._backstage.locked(f"weft_{table}", column)

    def one_after_the_other(self, *verbs: Verb) -> Ending:
        """No race: each verb alone, in this order."""
        before = self.rows()
        answers = {name: verb(self.store) for name, verb in zip(ACTORS, verbs, strict=False)}
        after = self.rows()
        self._backstage.put_back(before, after.changed_since(before))
        return Ending(answers, before, after, Play())

    def _serial_endings(self, check: Check, verbs: Mapping[str, Verb]) -> Serial:
        """How the verbs end if no transaction meets another one, by the order of those that changed anything."""
        before = self.rows()
        run = partial(self._race, verbs, before)
        endings: dict[tuple[str, ...], set[str]] = {}
        for ending in every_schedule(lambda choose: run(whole_transactions(choose)), skips_families=False):
            _judge(ending, check)
            endings.setdefault(tuple(ending.play.ends), set()).add(ending.fingerprint())
        return endings

    def _judge_all(
        self,
        endings: Iterable[Ending],
        check: Check,
        serial: Serial,
        *,
        in_commit_order: bool,
        is_serial: bool,
    ) -> int:
        count = 0
        for count, ending in enumerate(endings, start=1):  # noqa: B007
            _judge(ending, check)
            allowed = serial
            if in_commit_order:
                allowed = {order: serial[order] for order in [tuple(ending.play.ends)] if order in serial}
            if is_serial and not any(ending.fingerprint() in endings for endings in allowed.values()):
                raise AssertionError(_unlike(ending, allowed))
        return count

    def _race(self, verbs: Mapping[str, Verb], before: Rows, choose: Choose) -> Ending:
        self._epochs = {workflow.id: workflow.epoch for workflow in before.all("workflows")}
        try:
            play = self._stage.play(verbs, choose, self._look_at_epochs)
        except BaseException:
            self._backstage.put_back(before)
            raise
        answers = {actor.name: actor.answer for actor in self._stage.actors if actor.name in verbs}
        after = self._backstage.read()
        self._backstage.put_back(before, after.changed_since(before))
        return Ending(answers, before, after, play)

    def _look_at_epochs(self, step: str) -> None:
        """No epoch ever goes down, as far as anybody can see it."""
        if step != "COMMIT":
            return
        seen = self._backstage.epochs()
        for workflow_id, epoch in seen.items():
            if epoch < self._epochs.get(workflow_id, epoch):
                raise AssertionError(f"the epoch of {workflow_id} fell from {self._epochs[workflow_id]} to {epoch}")
        self._epochs |= seen

    # -- rows

    def rows(self) -> Rows:
        return self._backstage.read()

    def copy(self, workflow_id: str, *copies: str) -> None:
        """Have the workflow once more under each of these ids: many of them, in one moment."""
        self._backstage.put_back(self.rows().with_copies(workflow_id, *copies))

    def execute(self, statement: str) -> None:
        """Bring the rows into a position that no verb leads to."""
        self._backstage.execute(statement)

    def _patient_store(self) -> Store:
        """A store whose statements may wait as long as a play takes."""
        limits = replace(limits_of(self.settings), statement_timeout=_LONG, lock_wait=_LONG, pool_size=2)
        store = Store.open(self.settings, clock=self.clock, limits=limits)
        if self._in_steps:
            store.workflows._insert_at_once = _never  # type: ignore[method-assign]
            store.turns._at_once = store.signals._at_once = _NothingAtOnce()  # type: ignore[assignment]
        return store


def _never(*_arguments: object, **_named: object) -> None:
    """Nothing could be done at once."""


class _NothingAtOnce:
    acquire_and_begin = begin = commit = send = staticmethod(_never)


def _judge(ending: Ending, check: Check) -> None:
    problems = broken(ending.after)
    try:
        assert not ending.play.has_deadlocked, f"a deadlock, with the answers {dict(ending.answers)}"
        assert not problems, problems
        for answer in ending.answers.values():
            assert not (isinstance(answer, Raised) and answer.error == "StoreUnavailable"), answer
        check(ending)
    except AssertionError as error:
        error.add_note(f"the answers: {dict(ending.answers)}\n{ending.play}")
        raise


def _unlike(ending: Ending, allowed: Serial) -> str:
    mixed = ending.fingerprint().splitlines()
    commits = "".join(ending.play.ends)
    parts = [f"ends like no serial order of its transactions; they committed as {commits!r}", str(ending.play)]
    for order, shown in ((order, shown) for order, endings in allowed.items() for shown in endings):
        whole = shown.splitlines()
        differing = [
            *(f"  serial {''.join(order)!r} only: {line}" for line in whole if line not in mixed),
            *(f"  this schedule only: {line}" for line in mixed if line not in whole),
        ]
        parts.append("\n".join(differing))
    return "\n".join(parts)
