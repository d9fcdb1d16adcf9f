"""One tick of a pass under Celery: skip what is fresh or running already, else run the pass and keep its result.

The locks save work; whatever two passes do at the same time, the store's conditions keep it right (O1).
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from weft_tasks.errors import LockUnavailable, StoreUnavailable
from weft_tasks.events import Events, PassCompleted
from weft_tasks.lines import write
from weft_tasks.locks import Acquisition, FlightOutcome, Holding, SingleFlight, may_run_unlocked, mint_token
from weft_tasks.locks.token import read_token
from weft_tasks.passes.run_once import run_in_order, run_part
from weft_tasks.passes.sweep import PassContext
from weft_tasks.passes.targets import Targets
from weft_tasks.results import (
    Part,
    PassFailed,
    PassKind,
    PassReport,
    PassResult,
    PassStatus,
    ReclaimStatus,
    RunOnceResult,
    reason_of,
)
from weft_tasks.settings import Settings
from weft_tasks.shards import WHOLE, Shard, shards_of
from weft_tasks.store import Store
from weft_tasks.store.lifecycle import Changed
from weft_tasks.store.pass_marks import RUN_ONCE, PassMark
from weft_tasks.store.targets import (
    SendTurn,
    StoreDeadlinePoll,
    StoreReclaim,
    StoreRenewal,
    StoreSignalPoll,
    StoreUpdatePoll,
)
from weft_tasks.store.workflows import may_be_cut

logger = logging.getLogger("weft_tasks.passes")

FAILED_ITEMS_SHOWN = 10
JOIN_PAUSE = 0.05
_FINE = frozenset({"renewed", "reclaimed", "redispatched", "not-eligible", "woken", "not-buffered", "drained"}) | {
    "no-pending-updates"
}

Report = dict[str, Any]
"""What a task returns: small JSON that reads well in Flower."""


def run_once_limit(settings: Settings) -> timedelta:
    """The longest that `run_once` may take: a deadline for each pass, and one for what they overrun them by."""
    return (len(PassKind) * settings.shards + 1) * settings.pass_deadline


class Ticks:
    """The passes of one process, as the Celery tasks run them."""

    def __init__(
        self,
        *,
        store: Store,
        locks: SingleFlight,
        run_once_locks: SingleFlight,
        context: PassContext,
        settings: Settings,
        send_turn: SendTurn,
        follow_up: Callable[[Changed], None],
        events: Events,
        node: str,
        after_reclaim: Callable[[], None] = lambda: None,
        flush: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._locks = locks
        self._run_once_locks = run_once_locks
        self._context = context
        self._contexts = {WHOLE: context}
        self._settings = settings
        self._send_turn = send_turn
        self._follow_up = follow_up
        self._events = events
        self._node = node
        self._after_reclaim = after_reclaim
        self._flush = flush
        self._sleep = sleep

    # -- a tick

    def tick(self, kind: PassKind, shard: Shard = WHOLE) -> Report:
        """Run the pass unless it began less than R/2 ago or runs already; a skip is a result, never a wait."""
        return self._reported(Part(kind=kind, shard=shard), self._tick)

    def _tick(self, part: Part) -> Report:
        mark = self._store.pass_marks.read(part.name)
        if self._is_recent(mark):
            return self._skipped(part, {"skipped": "recent", "began_ago_s": round((mark.began_ago_ms or 0) / 1000, 3)})
        return self._run_until_answered(part, mark, even_if_recent=False)

    def _reported(self, part: Part, run: Callable[[Part], Report]) -> Report:
        """A store that does not answer is one line per tick, and no traceback: the next tick tries again."""
        started_at = self._context.clock.now()
        try:
            return run(part)
        except StoreUnavailable as error:
            failed = self._failed(part, error, started_at)
            self._events.emit(_completed(failed))
            return _shown(failed)

    def _failed(self, part: Part, error: StoreUnavailable, started_at: datetime) -> PassFailed:
        finished_at = self._context.clock.now()
        return PassFailed(
            kind=part.kind, shard=part.shard, error=str(error), started_at=started_at, finished_at=finished_at
        )

    def run_requested(self, kind: PassKind, shard: Shard = WHOLE) -> Report:
        """Run the pass now, for somebody who knows of work (O6); if it runs already, it runs again right after."""
        return self._reported(Part(kind=kind, shard=shard), self._run_requested)

    def _run_requested(self, part: Part) -> Report:
        self._store.pass_marks.request(part.name)
        return self._run_until_answered(part, self._store.pass_marks.read(part.name), even_if_recent=True)

    def _run_until_answered(self, part: Part, mark: PassMark, *, even_if_recent: bool) -> Report:
        """Requests are counted before their lock is tried and looked at after ours is let go: none falls between."""
        while True:
            report = self._run_locked(part, mark, even_if_recent=even_if_recent)
            after = self._store.pass_marks.read(part.name)
            if "skipped" in report or after.requested == mark.requested:
                return report
            mark, even_if_recent = after, True

    def _run_locked(self, part: Part, mark: PassMark, *, even_if_recent: bool) -> Report:
        token = self._token()
        with self._locks.acquire(part.name, token) as acquisition:
            if acquisition.outcome is FlightOutcome.HELD_BY_ANOTHER:
                return self._skipped(part, {"skipped": "running", **_shown_holder(acquisition)})
            if acquisition.outcome is FlightOutcome.UNKNOWN and not self._may_run_unlocked(part.kind, mark):
                return self._skipped(part, {"skipped": "lock-unknown", "reason": acquisition.reason})
            if not self._store.pass_marks.begin(part.name, token, even_if_recent=even_if_recent):
                return self._skipped(part, {"skipped": "recent"})
            ended = self._run(part)
            if _left_some(ended):
                self._store.pass_marks.request(part.name)
            report = _shown(ended)
            if acquisition.flight is None:
                report["lock"] = f"unknown: {acquisition.reason}"
            elif not acquisition.flight.is_ours:
                report["lock"] = f"{acquisition.flight.state}: {acquisition.flight.reason}"
            self._store.pass_marks.finish(part.name, token, json.dumps(report), took=_took(ended))
            self._flush()
            return report

    def _run(self, part: Part) -> PassReport:
        context = self._context_of(part.shard)
        report = run_part(
            part.kind, self._targets(part.shard), context, lambda result: self._events.emit(_completed(result))
        )
        if report is None:
            now = context.clock.now()
            return PassResult(
                kind=part.kind, shard=part.shard, status=PassStatus.COMPLETED, started_at=now, finished_at=now
            )
        # What follows is about the whole store. However many shards there are, one of them is the first.
        if part.kind is PassKind.RECLAIM and part.shard.index == 0:
            self._tidy_up()
        return report

    def _context_of(self, shard: Shard) -> PassContext:
        if shard not in self._contexts:
            self._contexts.setdefault(shard, self._context.for_shard(shard))
        return self._contexts[shard]

    def _tidy_up(self) -> None:
        """What comes after a reclaim pass can wait for the next one, so that nothing in it fails the tick."""
        try:
            self._after_reclaim()
        except Exception as error:
            note = "the next reclaim pass tries again"
            write(logger, logging.WARNING, "weft.tidying.failed", {"error": reason_of(error)}, note=note)

    def _targets(self, shard: Shard) -> Targets:
        return Targets(
            renewal=StoreRenewal(self._store.claims, shard),
            reclaim=StoreReclaim(
                workflows=self._store.workflows,
                claims=self._store.claims,
                engines=self._store.engines,
                send_turn=self._send_turn,
                rng=random.Random(),
                events=self._events,
                shard=shard,
            ),
            signals=StoreDeadlinePoll(
                StoreSignalPoll(self._store.signals, self._send_turn, shard),
                self._store.lifecycle,
                self._follow_up,
                shard,
            ),
            updates=StoreUpdatePoll(self._store.updates, self._send_turn, shard),
        )

    def _is_recent(self, mark: PassMark) -> bool:
        age = mark.began_ago
        return age is not None and timedelta(0) <= age < self._settings.renew_interval / 2

    def _may_run_unlocked(self, kind: PassKind, mark: PassMark) -> bool:
        return may_run_unlocked(kind, since_last_begin=mark.began_ago, claim_ttl=self._settings.claim_ttl)

    def _skipped(self, part: Part, why: Report) -> Report:
        self._store.pass_marks.count_skip(part.name)
        return {"pass": part.name, **why}

    def _token(self) -> str:
        return mint_token(self._node, datetime.now(UTC))

    # -- run_once

    def run_once(self) -> Report:
        """The four passes in sequence, shard after shard, without their locks: an explicit caller is never skipped. A
        run that is under way is joined, and its result is the answer."""
        while True:
            token = self._token()
            with self._run_once_locks.acquire(RUN_ONCE, token) as acquisition:
                if acquisition.outcome is not FlightOutcome.HELD_BY_ANOTHER:
                    return self._run_all(token)
            joined = self._join(acquisition.held_by)
            if joined is not None:
                return {**joined, "joined": str(acquisition.held_by.holder) if acquisition.held_by else "another run"}

    def _run_all(self, token: str) -> Report:
        self._store.pass_marks.begin(RUN_ONCE, token, even_if_recent=True)
        runs = [self._run_shard(shard, token) for shard in shards_of(self._settings.shards)]
        report = _shown_runs(runs)
        took = timedelta(seconds=report["seconds"])
        self._store.pass_marks.finish(RUN_ONCE, token, json.dumps(report), took=took)
        self._flush()
        return report

    def _run_shard(self, shard: Shard, token: str) -> RunOnceResult:
        return run_in_order(lambda kind: self._run_marked(Part(kind=kind, shard=shard), token), self._context.clock)

    def _run_marked(self, part: Part, token: str) -> PassReport:
        started_at = self._context.clock.now()
        try:
            self._store.pass_marks.begin(part.name, token, even_if_recent=True)
            report = self._run(part)
            self._store.pass_marks.finish(part.name, token, json.dumps(_shown(report)), took=_took(report))
            return report
        except StoreUnavailable as error:
            return self._failed(part, error, started_at)

    def _join(self, held_by: Holding | None) -> Report | None:
        """The result of the run that holds the lock; None if it ended without one, and the caller runs itself."""
        if held_by is None:
            return None
        deadline = self._context.clock.monotonic() + run_once_limit(self._settings).total_seconds()
        while self._context.clock.monotonic() < deadline:
            mark = self._store.pass_marks.read(RUN_ONCE)
            if mark.token is not None and read_token(mark.token) == held_by.holder and mark.result is not None:
                return mark.result
            if not self._still_runs(held_by):
                return self._result_of(held_by)
            self._sleep(JOIN_PAUSE)
        return None

    def _still_runs(self, held_by: Holding) -> bool:
        """Unless the lock server says otherwise; if it says nothing, the result in the store will tell."""
        try:
            now_held = self._run_once_locks.holder(RUN_ONCE)
        except LockUnavailable:
            return True
        return now_held is not None and now_held.holder == held_by.holder

    def _result_of(self, held_by: Holding) -> Report | None:
        mark = self._store.pass_marks.read(RUN_ONCE)
        is_theirs = mark.token is not None and read_token(mark.token) == held_by.holder
        return mark.result if is_theirs else None


def _completed(report: PassReport) -> PassCompleted:
    return PassCompleted(result=report)


def _left_some(report: PassReport) -> bool:
    """Whether a reclaim pass moved so many that its list may have been cut. What cannot be moved waits for a tick."""
    return isinstance(report, PassResult) and may_be_cut(report.count(ReclaimStatus.RECLAIMED))


def _took(report: PassReport) -> timedelta:
    return report.finished_at - report.started_at


def _shown(report: PassReport) -> Report:
    """A pass as a small JSON object: its counts, its duration, and the first few items that failed."""
    seconds = round((report.finished_at - report.started_at).total_seconds(), 3)
    if isinstance(report, PassFailed):
        return {"pass": report.name, "status": "failed", "seconds": seconds, "error": report.error}
    failed = [outcome for outcome in report.outcomes if outcome.status.value not in _FINE]
    shown: Report = {
        "pass": report.name,
        "status": report.status.value,
        "seconds": seconds,
        "counts": dict(report.counts),
    }
    if failed:
        shown["failed"] = [
            {"workflow": outcome.workflow_id, "status": outcome.status.value, "reason": outcome.reason}
            for outcome in failed[:FAILED_ITEMS_SHOWN]
        ]
        shown["failed_total"] = len(failed)
    waiting = Counter(
        outcome.reason for outcome in report.outcomes if outcome.status is ReclaimStatus.NOT_ELIGIBLE and outcome.reason
    )
    if waiting:
        shown["waiting"] = dict(waiting.most_common(FAILED_ITEMS_SHOWN))
    if report.unreached:
        shown["unreached"] = report.unreached
    if report.split_slices:
        shown["split_slices"] = {"count": report.split_slices, "reason": report.split_reason}
    if report.error:
        shown["error"] = report.error
    return shown


def _shown_runs(runs: Sequence[RunOnceResult]) -> Report:
    """The runs of all shards as one."""
    return {
        "run_once": [_shown(part) for run in runs for part in run.parts],
        "failed": [part.name for run in runs for part in run.parts if part.kind in run.failed],
        "seconds": round((runs[-1].finished_at - runs[0].started_at).total_seconds(), 3),
    }


def _shown_holder(acquisition: Acquisition) -> Report:
    """Who holds the lock since when, and how long it still lives."""
    held_by = acquisition.held_by
    if held_by is None:
        return {"holder": "unknown", "reason": acquisition.reason}
    shown: Report = {"holder": held_by.holder.node, "pid": held_by.holder.pid}
    if held_by.holder.since is not None:
        shown["since"] = held_by.holder.since.isoformat(timespec="seconds")
    if held_by.expires_in is not None:
        shown["expires_in_s"] = round(held_by.expires_in.total_seconds(), 3)
    return shown
