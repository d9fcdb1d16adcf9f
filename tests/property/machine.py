"""Engines, workflows, messages and an unreliable world around one SQLite store, step by step, with the reference beside
it: whatever the order, both give the same answers, both end in the same rows, and the invariants hold on the real ones.

Engines crash between any two verbs, or freeze and wake up with attempts long deposed. Messages come late, twice or
never. The connection breaks between any two statements of a verb, and then nothing of it may have stayed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from breaking import AT_COMMIT, failing_before
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from invariants import Invariants
from reference import Attempt, Reference, Row
from sqlalchemy import select

from weft_tasks.errors import DuplicateNodeError, StoreUnavailable, WorkflowEnded
from weft_tasks.model import HeldClaim, TurnMessage, WorkflowStatus
from weft_tasks.results import Answer
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.claims import Grant, TakeoverAnswer
from weft_tasks.store.clock import ManualClock
from weft_tasks.store.engines import HeartbeatAnswer
from weft_tasks.store.tables import metadata
from weft_tasks.store.turns import BegunTurn, Discard, TurnOutcome

SETTINGS = Settings()
T, R, G, BEAT = SETTINGS.claim_ttl, SETTINGS.renew_interval, SETTINGS.grace, SETTINGS.heartbeat_interval
MS = timedelta(milliseconds=1)

IDS = ("w0", "w1", "w2")
NAMES = ("paid", "note")
TYPES = ("permit", "invoice")
NODES = ("n0", "n1", "n2")
UNBROKEN = -1
RARELY = 11

STATUSES = {"park": WorkflowStatus.RUNNING, "complete": WorkflowStatus.COMPLETED, "fail": WorkflowStatus.FAILED}


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What a handler makes of its turn."""

    how: str
    waits: tuple[str, ...]
    takes: tuple[str, ...]
    limit: int

    def consumes(self, begun: BegunTurn) -> tuple[int, ...]:
        """The oldest signals of each name that it takes."""
        of_name = ([s.number for s in begun.signals if s.name == name] for name in self.takes)
        return tuple(number for numbers in of_name for number in numbers[: self.limit])


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a step needs to know of chance: which of the things there are, and before which statement it breaks."""

    which: int
    who: int
    kind: int
    breaks_before: int
    ending: Ending

    def of(self, things: Sequence[Any], by: str = "which") -> Any:
        return things[getattr(self, by) % len(things)]


# The first of each is what Hypothesis likes best, so it is what keeps the world going.
some_names = st.sampled_from([NAMES, NAMES[:1], NAMES[1:], ()])
choices = st.builds(
    Choice,
    which=st.integers(0, 11),
    who=st.integers(0, 11),
    kind=st.integers(0, 11),
    breaks_before=st.sampled_from([UNBROKEN] * 14 + [AT_COMMIT, 1, 2, 3, 4, 5]),
    ending=st.builds(
        Ending,
        how=st.sampled_from(["park"] * 9 + ["settle", "retry", "complete", "fail"]),
        waits=some_names,
        takes=some_names,
        limit=st.sampled_from([3, 1, 2, 0]),
    ),
)

STEPS = {
    "a_workflow_makes_its_next_step": 14,
    "a_signal_is_sent": 4,
    "all_engines_beat": 4,
    "one_engine_beats_for_a_while": 1,
    "a_holder_falls_silent": 2,
    "an_attempt_is_given_up_and_begun_again": 3,
    "the_clock_is_set": 1,
    "an_engine_registers": 2,
    "something_happens_to_an_engine": 3,
    "a_workflow_starts": 2,
    "somebody_changes_a_status": 1,
    "what_has_ended_is_purged": 1,
    "an_old_message_arrives": 2,
    "an_old_attempt_ends": 3,
    "somebody_takes_over": 2,
    "a_pass_runs": 3,
    "a_claim_is_released": 1,
    "a_claim_is_let_go_and_taken_again_by_the_same_engine": 1,
}
"""How often each comes about."""


@dataclass(kw_only=True)
class Process:
    """A worker that is an engine, as long as it lives: the tasks that its main process knows of."""

    engine_id: str
    in_hand: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class Running:
    """An attempt as the store and the reference began it. It may outlive its claim, its engine and its turn."""

    task_id: str
    begun: BegunTurn
    attempt: Attempt


class Ownership(RuleBasedStateMachine):
    """Give it an empty store and the clock of that store before it runs."""

    store: Store
    clock: ManualClock

    def __init__(self) -> None:
        super().__init__()
        self.reference = Reference()
        self.rows = Invariants(self.reference)
        self.processes: dict[str, Process] = {}
        self.messages: list[TurnMessage] = []
        self.nominated: list[tuple[str, str, str | None, int]] = []
        self.claimed: list[HeldClaim] = []
        self.attempts: list[Running] = []
        self.ended: list[Running] = []
        self.names = itertools.count(1)
        self.quiet_for: dict[str, timedelta] = {}
        """By engine, the time that has passed since its last heartbeat: what it knows of itself."""

    @initialize(engines=st.sampled_from([3, 2, 1]), started=st.sampled_from([2, 3, 1]), choice=choices)
    def a_few_engines_and_workflows(self, engines: int, started: int, choice: Choice) -> None:
        calm = replace(choice, breaks_before=UNBROKEN)
        for n in range(engines):
            self.an_engine_registers(replace(calm, which=n))
        for n in range(started):
            self.a_workflow_starts(replace(calm, which=n))
            self.a_workflow_makes_its_next_step(replace(calm, which=n))

    @rule(step=st.sampled_from([name for name, weight in STEPS.items() for _ in range(weight)]), choice=choices)
    def then(self, step: str, choice: Choice) -> None:
        getattr(self, step)(choice)

    @invariant()
    def everything_is_as_it_should_be(self) -> None:
        self.rows.check(self.store)

    # -- one verb on both

    def both(
        self,
        verb: Callable[[], Any],
        expected: Callable[[], Any],
        breaks_before: int = UNBROKEN,
        *,
        may_stand: bool = False,
    ) -> Any:
        """Call the store's verb, and if it was answered the reference's; their answers must be equal. None if the
        connection broke on the way: then nothing may have been written, or all of it where that `may_stand`."""
        stands = expected if may_stand else None
        answer = verb() if breaks_before == UNBROKEN else self._broken(verb, breaks_before, stands)
        if answer is not None:
            wanted = expected()
            assert answer == wanted, f"the store says {answer}, the reference {wanted}"
        return answer

    def _broken(self, verb: Callable[[], Any], breaks_before: int, stands: Callable[[], Any] | None) -> Any:
        before = self._everything()
        with failing_before(self.store, breaks_before):
            try:
                answer = verb()
            except StoreUnavailable:
                answer = None
        if answer in (None, Answer.UNKNOWN):
            if self._everything() != before:
                assert stands is not None, "a verb that got no answer left something behind"
                # What it left is compared with the reference after this step.
                stands()
            return None
        return answer

    def _everything(self) -> list[list[str]]:
        with self.store.database.reading() as connection:
            return [sorted(map(repr, connection.execute(select(t)).all())) for t in metadata.sorted_tables]

    # -- the usual course of things

    def a_workflow_makes_its_next_step(self, choice: Choice) -> None:
        """Be acquired, begun, ended or woken: whichever comes next, by an engine that is there."""
        running = [row for row in self.reference.workflows.values() if row.status is WorkflowStatus.RUNNING]
        if not running:
            self.what_has_ended_is_purged(choice)
            self.a_workflow_starts(choice)
            return
        row: Row = choice.of(running)
        if not any(self.reference.takes_work(engine_id) for engine_id in self.processes):
            self._all_beat(choice)
        live = [engine_id for engine_id in self.processes if self.reference.takes_work(engine_id)]
        mine = [attempt for attempt in self.attempts if attempt.begun.workflow_id == row.id]
        message = self.reference.message_for(row.id)
        if row.engine_id is None and row.is_due and live:
            self._acquire(message, choice.of(live, "who"), choice, must_be_due=True)
        elif row.attempt_open and mine:
            self._end(mine[0 if choice.kind == RARELY else -1], choice)
        elif row.is_due and row.engine_id in self.processes:
            self._begin(message, choice)
        elif row.is_parked and row.waits:
            self._send(row, choice.of(list(row.waits)), choice)

    def a_signal_is_sent(self, choice: Choice) -> None:
        if self.reference.workflows:
            self._send(self._row(choice), choice.of(NAMES, "kind"), choice)

    def _send(self, row: Row, name: str, choice: Choice) -> None:

        def send() -> Any:
            try:
                sent = self.store.signals.send(row.id, name, "null", key=None)
            except WorkflowEnded:
                return "ended"
            self._keep(sent.message)
            return sent.receipt.number, sent.message is not None

        def expected() -> Any:
            return "ended" if row.status.is_ended else (row.inbox + 1, self.reference.send(row.id, name))

        self.both(send, expected, choice.breaks_before)

    def a_workflow_starts(self, choice: Choice) -> None:
        free = [workflow_id for workflow_id in IDS if workflow_id not in self.reference.workflows]
        if not free:
            return
        workflow_id, type_name = choice.of(free), TYPES[choice.kind == RARELY]
        message = self.both(
            lambda: self.store.workflows.start(workflow_id, type_name, "null").epoch,
            lambda: self.reference.floor,
            choice.breaks_before,
        )
        if message is not None:
            self.reference.started(self._message_in_store(workflow_id), type_name)
            self._keep(self.reference.message_for(workflow_id))

    def _message_in_store(self, workflow_id: str) -> TurnMessage:
        """With the run id that the store has drawn."""
        info = self.store.workflows.describe(workflow_id)
        return TurnMessage(workflow_id=workflow_id, run_id=info.run_id, engine_id=None, epoch=info.epoch, turn=0)

    def _row(self, choice: Choice) -> Row:
        row: Row = choice.of(list(self.reference.workflows.values()))
        return row

    def _keep(self, *messages: TurnMessage | None) -> None:
        self.messages += [message for message in messages if message is not None]

    # -- time and heartbeats

    def all_engines_beat(self, choice: Choice) -> None:
        self._advance(choice.of([MS, BEAT, BEAT, R, R + MS]))
        self._all_beat(choice)

    def _all_beat(self, choice: Choice) -> None:
        for engine_id in list(self.processes):
            self._beat(engine_id, choice.kind % 3, choice.breaks_before)

    def one_engine_beats_for_a_while(self, choice: Choice) -> None:
        """Or none does."""
        for _ in range(choice.kind % 6):
            self._advance(choice.of([BEAT, R, R + MS, G]))
            if self.processes and choice.who:
                self._beat(choice.of(list(self.processes), "who"), 1, UNBROKEN)

    def the_clock_is_set(self, choice: Choice) -> None:
        self._advance(choice.of([-MS, -G, timedelta(days=-1), timedelta(days=1)], "kind"))

    def _advance(self, duration: timedelta) -> None:
        self.clock.advance(duration)
        self.reference.advance(duration)
        for engine_id in self.quiet_for:
            self.quiet_for[engine_id] += max(duration, timedelta(0))

    def _beat(self, engine_id: str, free_slots: int, breaks_before: int) -> None:
        in_hand = sorted(self.processes[engine_id].in_hand)
        answer = self.both(
            lambda: self.store.engines.heartbeat(engine_id, free_slots=free_slots, in_hand=in_hand),
            lambda: self.reference.heartbeat(engine_id, free_slots=free_slots, in_hand=in_hand),
            breaks_before,
        )
        if answer is HeartbeatAnswer.GONE:
            del self.processes[engine_id]
        elif answer is not None:
            self.quiet_for[engine_id] = timedelta(0)

    # -- engines come and go

    def an_engine_registers(self, choice: Choice) -> None:
        engine_id, node = f"e{next(self.names)}", choice.of(NODES)
        types = TYPES[:1] if choice.kind == RARELY else TYPES

        def outcome(register: Callable[..., None]) -> str:
            try:
                register(engine_id, node=node, host="h", pid=1, types=types, slots=2)
            except DuplicateNodeError as error:
                return f"refused for {error.live_engine_id}"
            return "registered"

        answer = self.both(
            lambda: outcome(self.store.engines.register),
            lambda: outcome(self.reference.register),
            choice.breaks_before,
        )
        if answer == "registered":
            self.processes[engine_id] = Process(engine_id=engine_id)
            self.quiet_for[engine_id] = timedelta(0)

    def something_happens_to_an_engine(self, choice: Choice) -> None:
        if not self.processes:
            return
        busy = [process for process in self.processes.values() if process.in_hand]
        process: Process = choice.of(busy or list(self.processes.values()))
        what = choice.of(["drain", "crash", "forget", "stop", "stop cleanly", "clean up"], "kind")
        if what == "crash":
            # Or freeze: nothing is written, and what it had begun may still wake up and try to commit.
            del self.processes[process.engine_id]
        elif what == "forget":
            # A process of its pool has died, or its main process only believes so.
            process.in_hand -= {choice.of(sorted(process.in_hand), "who")} if process.in_hand else set()
        elif what == "drain":
            self._drain_in_the_middle_of_a_turn(process.engine_id, choice)
        elif what == "clean up":
            self._clean_up()
        else:
            self._stop(process.engine_id, choice.breaks_before, cleanly=what == "stop cleanly")

    def _drain_in_the_middle_of_a_turn(self, engine_id: str, choice: Choice) -> None:
        """If there is one; it ends at once, or some time."""
        running = [attempt for attempt in self.attempts if attempt.begun.engine_id == engine_id]
        self._drain(engine_id, choice.breaks_before)
        self.both(lambda: self.store.claims.release_idle(engine_id), lambda: self.reference.release_idle(engine_id))
        if running and choice.who % 2 == 0:
            self._end(running[-1], choice)

    def _drain(self, engine_id: str, breaks_before: int) -> None:
        self.both(
            lambda: self.store.engines.drain(engine_id) or "done",
            lambda: self.reference.drain(engine_id) or "done",
            breaks_before,
        )

    def _stop(self, engine_id: str, breaks_before: int, *, cleanly: bool) -> None:
        if cleanly:
            self._drain(engine_id, UNBROKEN)
            self.both(lambda: self.store.claims.release_all(engine_id), lambda: self.reference.release_all(engine_id))
        done = self.both(
            lambda: self.store.engines.stop(engine_id) or "done",
            lambda: self.reference.stop(engine_id) or "done",
            breaks_before,
        )
        if done:
            del self.processes[engine_id]

    def _clean_up(self) -> None:
        named = {row.engine_id for row in self.reference.workflows.values()}
        for engine_id in self.store.engines.clean_up():
            assert engine_id not in named
            del self.reference.engines[engine_id]

    # -- endings from outside (O7)

    def somebody_changes_a_status(self, choice: Choice) -> None:
        if not self.reference.workflows:
            return
        row = self._row(choice)
        verbs = {
            WorkflowStatus.RUNNING: ["suspend", "suspend", "terminate"],
            WorkflowStatus.SUSPENDED: ["resume", "resume", "terminate"],
            WorkflowStatus.SET_ASIDE: ["retry", "retry", "terminate"],
        }.get(row.status)
        if verbs is None:
            return
        verb = choice.of(verbs, "kind")
        reason = ("enough",) if verb == "terminate" else ()
        self.both(
            lambda: getattr(self.store.lifecycle, verb)(row.id, *reason).status,
            lambda: getattr(self.reference, verb)(row.id) or row.status,
            choice.breaks_before,
        )

    def what_has_ended_is_purged(self, choice: Choice) -> None:
        late = timedelta(days=-10)  # also what ended before the clock was set back
        self.both(
            lambda: self.store.lifecycle.purge(older_than=late), lambda: self.reference.purge(), choice.breaks_before
        )

    # -- claims

    def _acquire(self, message: TurnMessage, target: str, choice: Choice, *, must_be_due: bool) -> None:
        named = (message.workflow_id, message.run_id, message.epoch, target)
        grant = self.both(
            lambda: self.store.claims.acquire(*named, must_be_due=must_be_due),
            lambda: self._expected(self.reference.acquire(*named, must_be_due=must_be_due), message.workflow_id),
            choice.breaks_before,
        )
        self._granted(grant, message.workflow_id)

    def somebody_takes_over(self, choice: Choice) -> None:
        """What the rows show now, or what some list showed long ago."""
        if not self.reference.engines:
            return
        rows = [(row.id, row.run_id, row.engine_id, row.epoch) for row in self.reference.workflows.values()]
        named = choice.of(self.nominated[-12:] or rows) if choice.kind % 2 or not rows else choice.of(rows)
        target = choice.of(list(self.reference.engines), "who")
        if named[2] is None:
            self._acquire(
                TurnMessage(workflow_id=named[0], run_id=named[1], engine_id=None, epoch=named[3], turn=0),
                target,
                choice,
                must_be_due=False,
            )
        else:
            self._take_over(named, target, choice)

    def a_holder_falls_silent(self, choice: Choice) -> None:
        """From its last heartbeat on for T + G, or a bit more, while another engine beats, which then takes over."""
        held = [row for row in self.reference.workflows.values() if row.engine_id in self.processes]
        if len(self.processes) < 2 or not held:
            return
        row: Row = choice.of(held)
        others = [engine_id for engine_id in self.processes if engine_id != row.engine_id]
        self._beat(row.engine_id or "", 1, UNBROKEN)
        left = T + G + choice.of([timedelta(0), MS, R], "kind")
        while left > timedelta(0):
            pause = min(R, left)
            self._advance(pause)
            left -= pause
            self._beat(choice.of(others, "who"), 1, UNBROKEN)
            others = [engine_id for engine_id in others if engine_id in self.processes]
            if not others:
                return
        if row.engine_id is not None:
            self._take_over((row.id, row.run_id, row.engine_id, row.epoch), choice.of(others, "who"), choice)

    def _take_over(self, named: tuple[str, str, str, int], target: str, choice: Choice) -> None:
        workflow_id, _run_id, holder, _epoch = named
        row = self.reference.workflows.get(workflow_id)
        deaf = row is not None and self.reference.holder_is_deaf(row)
        grant = self.both(
            lambda: self.store.claims.take_over(*named, target),
            lambda: self._expected(self.reference.take_over(*named, target), workflow_id),
            choice.breaks_before,
        )
        if grant is not None and grant.answer is TakeoverAnswer.WON:
            self._assert_it_was_lost(holder, deaf=deaf)
        self._granted(grant, workflow_id)

    def _assert_it_was_lost(self, holder: str, *, deaf: bool) -> None:
        """The promise to a healthy engine, measured by its own watch."""
        engine = self.reference.engines.get(holder)
        if engine is None or engine.status == "stopped" or deaf:
            return
        assert self.quiet_for[holder] > T + G, f"{holder} was quiet for {self.quiet_for[holder]} only"

    def _expected(self, grant: Grant, workflow_id: str) -> Grant:
        """FakeClaims knows no next try: what is not to run yet has no message to be sent."""
        if grant.answer is not TakeoverAnswer.WON or self._may_run(workflow_id):
            return grant
        self.reference.workflows[workflow_id].dispatched_witnessed = None
        return replace(grant, is_due=False)

    def _may_run(self, workflow_id: str) -> bool:
        not_before = self.reference.workflows[workflow_id].not_before
        return not_before is None or not_before <= self.reference.now

    def _granted(self, grant: Grant | None, workflow_id: str) -> None:
        if grant is not None and grant.answer is TakeoverAnswer.WON:
            self._keep(self.reference.message_for(workflow_id))

    def a_claim_is_released(self, choice: Choice) -> None:
        verb = choice.of(["release", "release", "release_idle", "release_all"], "kind")
        things: Sequence[Any] = self.claimed[-12:] if verb == "release" else list(self.reference.engines)
        if things:
            self._release(verb, choice.of(things), choice.breaks_before)

    def _release(self, verb: str, of: Any, breaks_before: int = UNBROKEN) -> Any:
        return self.both(
            lambda: getattr(self.store.claims, verb)(of), lambda: getattr(self.reference, verb)(of), breaks_before
        )

    def a_claim_is_let_go_and_taken_again_by_the_same_engine(self, choice: Choice) -> None:
        """Who remembers the first one has nothing to say about the second."""
        held = self.reference.list_held()
        if held:
            claim: HeldClaim = choice.of(held)
            self._release("release", claim)
            message = self.reference.message_for(claim.workflow_id)
            self._acquire(message, claim.engine_id, replace(choice, breaks_before=UNBROKEN), must_be_due=False)
            self.both(lambda: self.store.claims.renew(claim), lambda: self.reference.renew(claim))
            self._release("release", claim)

    # -- passes

    def a_pass_runs(self, choice: Choice) -> None:
        """Or a part of one: what a list says is used now, later or never."""
        choice.of([self._renew, self._nominate, self._dispatch_again, self._poll], "kind")(choice)

    def _renew(self, choice: Choice) -> None:
        listed = list(self.store.claims.list_held())
        assert sorted(listed, key=repr) == sorted(self.reference.list_held(), key=repr)
        self.claimed += listed
        wanted = self.claimed[-6:] if choice.which % 2 else listed
        self.both(
            lambda: self.store.claims.renew_all(wanted), lambda: self.reference.renew_all(wanted), choice.breaks_before
        )

    def _nominate(self, choice: Choice) -> None:
        self.nominated += [(r.id, r.run_id, r.engine_id, r.epoch) for r in self.reference.workflows.values()]
        found = {c.workflow_id: (c.kind, c.deposed_engine_id) for c in self.store.workflows.list_reclaim_candidates()}
        assert found == {
            c.workflow_id: (c.kind, c.deposed_engine_id)
            for c in self.reference.list_reclaim_candidates()
            if c.kind != "overdue" or self._may_run(c.workflow_id)
        }

    def _dispatch_again(self, choice: Choice) -> None:
        held = [row.id for row in self.reference.workflows.values() if row.engine_id is not None]
        if held:
            message = self.reference.message_for(choice.of(held))
            self._keep(message)
            self.both(
                lambda: self.store.workflows.note_dispatch(message) or "noted",
                lambda: self.reference.note_dispatch(message) or "noted",
                choice.breaks_before,
            )

    def _poll(self, choice: Choice) -> None:
        ready = sorted(self.store.signals.list_ready(), key=lambda wait: wait.workflow_id)
        assert [w.workflow_id for w in ready] == sorted(w.workflow_id for w in self.reference.list_ready())
        if ready:
            wait = choice.of(ready)
            answer = self.both(
                lambda: self.store.signals.wake(wait), lambda: self.reference.wake(wait), choice.breaks_before
            )
            if answer is not None:
                self.reference.woken(wait.workflow_id)
                self._keep(answer[1])

    # -- turns

    def an_old_message_arrives(self, choice: Choice) -> None:
        """Late, or once more."""
        if self.messages:
            message = choice.of(self.messages[-12:])
            if message.engine_id is None and self.reference.engines:
                self._acquire(message, choice.of(list(self.reference.engines), "who"), choice, must_be_due=True)
            else:
                self._begin(message, choice)

    def an_old_attempt_ends(self, choice: Choice) -> None:
        """Of whatever age, or once more: its first ending got no answer, or its process does not know better."""
        attempts = self.attempts + self.ended[-4:]
        if attempts:
            self._end(choice.of(attempts), choice)

    def an_attempt_is_given_up_and_begun_again(self, choice: Choice) -> None:
        """Its engine no longer names it, or has stopped; and yet its process is still there, and may end it at once."""
        open_rows = [row for row in self.reference.workflows.values() if row.attempt_open and row.engine_id]
        if not open_rows:
            return
        row: Row = choice.of(open_rows)
        holder = row.engine_id or ""
        others = [engine_id for engine_id in self.processes if engine_id != holder]
        if choice.kind % 2 and others:
            if holder in self.processes:
                self._stop(holder, UNBROKEN, cleanly=False)
            self._all_beat(choice)
            self._take_over((row.id, row.run_id, holder, row.epoch), choice.of(others, "who"), choice)
        elif holder in self.processes:
            self.processes[holder].in_hand.discard(row.attempt_task)
            for _ in range(2):
                self._beat(holder, 1, UNBROKEN)
        old = [attempt for attempt in self.attempts if attempt.begun.workflow_id == row.id]
        if row.is_due and row.engine_id is not None:
            self._begin(self.reference.message_for(row.id), replace(choice, breaks_before=UNBROKEN))
        if old and choice.which % 2 == 0:
            self._end(old[-1], choice)

    def _begin(self, message: TurnMessage, choice: Choice) -> None:
        task_id = f"task{next(self.names)}"
        made: list[Any] = []

        def begin() -> Any:
            made.append(self.store.turns.begin(message, task_id))
            return made[0] if isinstance(made[0], Discard) else _as_attempt(message, made[0])

        # An attempt that stands and whose turn was not given anything is over with its task, as if it had died (O9).
        answer = self.both(begin, lambda: self.reference.begin(message, task_id), choice.breaks_before, may_stand=True)
        if isinstance(answer, Attempt):
            self.attempts.append(Running(task_id=task_id, begun=made[0], attempt=answer))
            if message.engine_id in self.processes:
                self.processes[message.engine_id].in_hand.add(task_id)
            if choice.kind % 4 == 0:
                # Doubled by the broker.
                self._begin(message, replace(choice, kind=1, breaks_before=UNBROKEN))

    def _end(self, running: Running, choice: Choice) -> None:
        begun, attempt, ending = running.begun, running.attempt, choice.ending
        if ending.how == "settle":
            answer = self.both(
                lambda: self._status(self.store.turns.settle(begun)),
                lambda: _status_of(self.reference.settle(attempt)),
                choice.breaks_before,
            )
        elif ending.how == "retry":
            answer = self.both(
                lambda: self._status(self.store.turns.retry_later(begun, "{}", R)),
                lambda: _status_of(self.reference.retry_later(attempt, R)),
                choice.breaks_before,
            )
        else:
            status, consumed = STATUSES[ending.how], ending.consumes(begun)
            waits = tuple((name, None) for name in ending.waits)
            outcome = TurnOutcome(status=status, state_json="{}", consumed=consumed, waits=waits)
            answer = self.both(
                lambda: self._status(self.store.turns.commit(begun, outcome)),
                lambda: _status_of(self.reference.commit(attempt, status, consumed, ending.waits)),
                choice.breaks_before,
            )
        if answer is not None:
            self._has_ended(running, has_won=answer == "won")
        if answer == "won" and choice.kind % 4 == 0:
            # Once more, as if the answer had been lost.
            self._end(running, replace(choice, breaks_before=UNBROKEN))

    def _has_ended(self, running: Running, *, has_won: bool) -> None:
        if has_won:
            assert self.store.turns.was_closed_by(running.begun)
            self.ended.append(running)
        elif running not in self.ended:
            assert not self.store.turns.was_closed_by(running.begun), "a refused ending is taken for one that arrived"
        if running in self.attempts:
            self.attempts.remove(running)
        for process in self.processes.values():
            process.in_hand.discard(running.task_id)

    def _status(self, answer: Any) -> str:
        self._keep(answer.next_message)
        return str(answer.status)


def _status_of(has_won: bool) -> str:
    return "won" if has_won else "lost"


def _as_attempt(message: TurnMessage, begun: BegunTurn) -> Attempt:
    named = TurnMessage(
        workflow_id=begun.workflow_id,
        run_id=begun.run_id,
        engine_id=begun.engine_id,
        epoch=begun.epoch,
        turn=begun.turn,
    )
    assert named == message
    seen = tuple(signal.number for signal in begun.signals)
    return Attempt(message=message, attempt=begun.attempt, horizon=begun.horizon, seen=seen)
