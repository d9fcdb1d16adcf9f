"""The application of the tests of worst moments: `suite_app`, and a process that kills its whole worker when told so.

A test arms a moment for one workflow with a file in WORST_FOLDER. Whoever reaches that moment first renames the file,
which only one can, and kills its own process group: the worker with its pool. The moments of the engine are the store's
verbs, wrapped in the pool's processes; those of the user's code call `reached` themselves.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import suite_app
from celery import chain, current_app
from celery.signals import worker_process_init

from weft_tasks.store.outbox import DebtKind
from weft_tasks.store.turns import TurnOutcome
from weft_tasks.weft import Weft
from weft_tasks.workflows.registry import Retry
from weft_tasks.workflows.turn import Turn, TurnEnd

ALARM_AFTER = timedelta(seconds=1)
PATIENCE = timedelta(seconds=3)
"""Of a patient workflow: longer than it takes to send it a signal, shorter than its engine is gone after a kill."""
NEVER_SENT = "never-sent"


# -- moments


def arm(folder: Path, moment: str, id: str) -> Path:
    """Whoever reaches this moment with this workflow dies, once. Returns the file that has the killed group then."""
    _armed(folder, moment, id).touch()
    return _fired(folder, moment, id)


def reached(moment: str, id: str) -> None:
    folder = Path(os.environ["WORST_FOLDER"])
    try:
        _armed(folder, moment, id).rename(folder / f"{moment}@{id}.taken")
    except FileNotFoundError:
        return
    group = os.getpgid(0)
    note = folder / f"{moment}@{id}.note"
    note.write_text(str(group))
    note.rename(_fired(folder, moment, id))
    os.killpg(group, signal.SIGKILL)


def _armed(folder: Path, moment: str, id: str) -> Path:
    return folder / f"{moment}@{id}.armed"


def _fired(folder: Path, moment: str, id: str) -> Path:
    return folder / f"{moment}@{id}.fired"


def parts_of(turn: int, outcome: TurnOutcome) -> set[str]:
    """What a commit can be told by: its turn, and what there is in it."""
    parts = {
        "call": bool(outcome.calls),
        "update": bool(outcome.answers),
        "end": outcome.status.is_ended,
        "signal": bool(outcome.consumed),
        f"turn-{turn}": True,
    }
    return {part for part, is_in in parts.items() if is_in}


def set_traps(weft: Weft) -> None:
    """Wrap the verbs between which a process can die."""
    turns, payments, dispatcher, signals = weft.store.turns, weft.payments, weft.dispatcher, weft.store.signals
    commit, retry_later, pay, send_call = turns.commit, turns.retry_later, payments.pay, dispatcher.send_call
    send, deliver = signals.send, payments.deliver_reply

    def committed(begun: Any, outcome: Any) -> Any:
        parts = parts_of(begun.turn, outcome)
        for part in parts:
            reached(f"before-commit-of-{part}", begun.workflow_id)
        answer = commit(begun, outcome)
        for part in parts:
            reached(f"after-commit-of-{part}", begun.workflow_id)
        return answer

    def put_off(begun: Any, *arguments: Any) -> Any:
        answer = retry_later(begun, *arguments)
        reached("after-try-put-off", begun.workflow_id)
        return answer

    def paid(debts: Any) -> int:
        debts = tuple(debts)
        for debt in debts:
            if debt.kind is DebtKind.REPLY:
                reached("before-child-reply", debt.workflow_id)
        return pay(debts)

    def called(debt: Any) -> bool:
        reached("before-call-sent", debt.workflow_id)
        is_sent = send_call(debt)
        reached("after-call-sent", debt.workflow_id)
        return is_sent

    def sent(id: str, name: str, *arguments: Any, **options: Any) -> Any:
        answer = send(id, name, *arguments, **options)
        reached(f"after-signal-{name}", id)
        return answer

    def delivered(id: str, *arguments: Any, **options: Any) -> str | None:
        reached("before-reply-delivered", id)
        problem = deliver(id, *arguments, **options)
        reached("after-reply-delivered", id)
        return problem

    wrapped: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (turns, "commit", committed),
        (turns, "retry_later", put_off),
        (payments, "pay", paid),
        (dispatcher, "send_call", called),
        (signals, "send", sent),
        (payments, "deliver_reply", delivered),
    )
    for owner, name, verb in wrapped:
        setattr(owner, name, verb)


# -- workflows


def order(turn: Turn) -> TurnEnd | None:
    """A bit of everything: signal, update, task, child, timer, and a child that the end closes."""
    state = turn.state
    for _go in turn.take("go"):
        state["gone"] = state.get("gone", 0) + 1
        turn.call(effect_of(turn), reply="charged")
        turn.start_child("child", turn.input, id=f"{turn.workflow_id}-child", reply="grown")
        turn.start_child("guest", id=f"{turn.workflow_id}-guest", close_policy="cancel")
    for name in ("charged", "grown"):
        for reply in turn.take(name):
            state.setdefault(name, []).append(reply.payload)
    if turn.timed_out:
        state["alarms"] = state.get("alarms", 0) + 1
    if all(name in state for name in ("gone", "approved", "charged", "grown", "alarms")):
        return turn.complete(state)
    turn.wait("go", "charged", "grown")
    if "alarms" not in state:
        until = turn.deadlines.get(NEVER_SENT)
        turn.wait(NEVER_SENT, timeout=None if until else ALARM_AFTER, until=until)
    return None


def approve(turn: Turn, by: Any) -> Any:
    turn.state["approved"] = turn.state.get("approved", 0) + 1
    reached("while-update-handler-runs", turn.workflow_id)
    return [by, turn.state["approved"]]


def child(turn: Turn) -> TurnEnd:
    reached("while-child-runs", turn.workflow_id)
    return turn.complete("grown up")


def guest(turn: Turn) -> TurnEnd | None:
    turn.wait("nothing")
    return None


def sleeper(turn: Turn) -> TurnEnd | None:
    """Sleeps as long as its input says, then completes."""
    if turn.number == 0:
        turn.sleep(turn.input)
        return None
    return turn.complete(turn.number)


def patient(turn: Turn) -> TurnEnd | None:
    """Waits three seconds for an answer, however often it is poked meanwhile. Each try notes what it was given."""
    if turn.number == 0:
        turn.wait("answer", timeout=PATIENCE)
        turn.wait("poke")
        return None
    came = [signal.name for name in ("answer", "poke") for signal in turn.take(name)]
    with Path(turn.input).open("a") as file:
        file.write(json.dumps([turn.number, turn.began_at.isoformat(), turn.timed_out, came]) + "\n")
    turn.state["pokes"] = turn.state.get("pokes", 0) + came.count("poke")
    if turn.timed_out or "answer" in came:
        return turn.complete({"pokes": turn.state["pokes"], "ended by": "timeout" if turn.timed_out else "answer"})
    turn.wait("answer", until=turn.deadlines["answer"])
    turn.wait("poke")
    return None


def parent(turn: Turn) -> TurnEnd | None:
    """Two children that do not end by themselves: one is abandoned at the end, one is cancelled."""
    if turn.number == 0:
        turn.start_child("permit", id=f"{turn.workflow_id}-abandoned", close_policy="abandon", reply="grown")
        turn.start_child("careful", id=f"{turn.workflow_id}-closed", close_policy="cancel", reply="grown")
    if turn.take("end"):
        return turn.complete("ended")
    turn.wait("end")
    return None


def calls_a_chain(turn: Turn) -> TurnEnd | None:
    """Calls two tasks in a row; what the first returns is the second's first argument."""
    if turn.number == 0:
        key = turn.idempotency_key()
        first = current_app.signature("worst.first", args=[turn.input, turn.workflow_id, key])
        second = current_app.signature("worst.second", args=[turn.input, turn.workflow_id])
        turn.call(chain(first, second), reply="done")
    turn.state.setdefault("replies", []).extend([reply.payload, reply.is_failure] for reply in turn.take("done"))
    if turn.state["replies"]:
        return turn.complete(turn.state["replies"])
    turn.wait("done")
    return None


def fails_once(turn: Turn) -> TurnEnd:
    if turn.tries == 0:
        raise ValueError("the first try")
    return turn.complete(turn.tries)


def fails_until_retried(turn: Turn) -> TurnEnd:
    """Fails for good until the file of its input is there."""
    if not Path(turn.input).exists():
        raise ValueError("not yet")
    return turn.complete("retried")


def poison_until(turn: Turn) -> TurnEnd:
    """Kills the process it runs in until the test opens its gate."""
    return turn.complete("healed") if Path(f"{turn.input}.open").exists() else suite_app.poison(turn)


def careful(turn: Turn) -> TurnEnd | None:
    """Waits until it is cancelled, and cleans up then."""
    turn.wait("nothing")
    return None


def clean_up(turn: Turn) -> TurnEnd | None:
    turn.state["cleaned"] = turn.state.get("cleaned", 0) + 1
    reached("while-cancel-handler-runs", turn.workflow_id)
    return None


def calls_elsewhere(turn: Turn) -> TurnEnd | None:
    """Calls a task that runs on a worker that is no engine."""
    if turn.number == 0:
        turn.call(current_app.signature("worst.elsewhere", args=[turn.input], queue="elsewhere"), reply="came")
    came = [reply.payload for reply in turn.take("came")]
    if came:
        return turn.complete(came)
    turn.wait("came")
    return None


def endless(turn: Turn) -> TurnEnd | None:
    """Never ends of its own accord: in a sleep until the test opens its gate, which prefork needs not."""
    suite_app.note(turn.input)
    while not Path(f"{turn.input}.open").exists():
        time.sleep(1)
    return turn.complete("must not commit")


# -- the task


def effect_of(turn: Turn) -> Any:
    return current_app.signature("worst.effect", args=[turn.input, turn.workflow_id, turn.idempotency_key()])


def effect(folder: str, id: str, key: str) -> str:
    """A side effect, as a line with its key; repeated if its worker dies."""
    with (Path(folder) / f"effects-of-{id}").open("a") as file:
        file.write(f"{key}\n")
    reached("while-activity-runs", id)
    return key


def first(folder: str, id: str, key: str) -> str:
    with (Path(folder) / f"effects-of-{id}").open("a") as file:
        file.write(f"first-{key}\n")
    reached("while-first-runs", id)
    return key


def second(key: str, folder: str, id: str) -> str:
    with (Path(folder) / f"effects-of-{id}").open("a") as file:
        file.write(f"second-{key}\n")
    reached("while-second-runs", id)
    return f"both of {key}"


def elsewhere(path: str) -> str:
    suite_app.stay_at(path)
    return "came"


def build(environ: Mapping[str, str]) -> Weft:
    weft = suite_app.build(environ)
    types = {handler.__name__: weft.workflow(handler.__name__)(handler) for handler in (order, careful)}
    types["order"].update("approve")(approve)
    types["careful"].on_cancel(clean_up)
    for handler in (child, guest, sleeper, endless, calls_elsewhere, patient, parent, calls_a_chain, poison_until):
        weft.workflow(handler.__name__)(handler)
    weft.workflow("fails_once", retry=Retry(tries=3, delay=timedelta(seconds=1)))(fails_once)
    weft.workflow("fails_until_retried", retry=Retry(tries=1))(fails_until_retried)
    weft.app.task(name="worst.effect", acks_late=True)(effect)
    for task in (first, second):
        weft.app.task(name=f"worst.{task.__name__}", acks_late=True)(task)
    weft.app.task(name="worst.elsewhere")(elsewhere)

    def in_pool_process(**_signal: Any) -> None:
        set_traps(weft)

    worker_process_init.connect(in_pool_process, weak=False)
    return weft


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    return globals().setdefault("app", build(os.environ).app)
