"""What a pass needs from its host: small protocols, one per pass, and the optional ones that work on whole sets.

A reference is what a target lists and gets back: the workflow's id as a plain string, or an object of the target's own
with a `workflow_id` (and, say, an engine and an epoch). Passes read nothing else from it. Verbs are called from several
threads at once. A verb may raise; the error becomes the outcome of that one item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from weft_tasks.results import Answer, PassKind, TakeoverAttempt


class WorkflowReference(Protocol):
    """A reference richer than the id."""

    @property
    def workflow_id(self) -> str: ...


class ParkedWait(WorkflowReference, Protocol):
    """A reference to one wait of a parked workflow."""

    @property
    def name(self) -> str:
        """The name of the signal it waits for."""
        ...

    @property
    def deadline_passed(self) -> bool:
        """Whether the wait's deadline had passed by the target's own clock when the wait was listed (O2)."""
        ...


@dataclass(frozen=True, slots=True)
class SignalWait:
    """The plain `ParkedWait`, for targets that need no richer one."""

    workflow_id: str
    name: str
    deadline_passed: bool = False


Reference = TypeVar("Reference", bound=str | WorkflowReference)
Wait = TypeVar("Wait", bound=ParkedWait)


def workflow_id_of(reference: str | WorkflowReference) -> str:
    """The id that outcomes show. Raises AttributeError for what is no reference."""
    return reference if isinstance(reference, str) else reference.workflow_id


# -- one item at a time ----------------------------------------------------------------------------------------------


class ClaimRenewalTarget(Protocol[Reference]):
    """Keeps claims alive. May also be a `RenewsSlices`."""

    def list_held_workflow_ids(self) -> Sequence[Reference]:
        """The claims to renew now, whoever holds them."""
        ...

    def renew_workflow_claim(self, reference: Reference, /) -> Answer:
        """Renews one claim for the holder and epoch that the reference names (O3), in one atomic statement."""
        ...


class ReclaimTarget(Protocol[Reference]):
    """Moves claims whose holder is gone. May also be a `TakesOverSlices`."""

    def list_reclaim_candidate_workflow_ids(self) -> Sequence[Reference]:
        """Nominates: workflows of silent or deaf holders, without a holder, or with an overdue dispatch (O4, O9)."""
        ...

    def attempt_workflow_claim_takeover(self, reference: Reference, /) -> TakeoverAttempt:
        """One try, which reads afresh and repeats every condition in the statement that writes (O4)."""
        ...


class SignalPollTarget(Protocol[Wait]):
    """Wakes parked workflows. May also be a `ListsReadyWaits`, which spares reading every wait there is."""

    def list_parked_signal_waits(self) -> Sequence[Wait]:
        """Every wait of every parked workflow. A workflow with several waits is listed once for each."""
        ...

    def has_buffered_signal(self, wait: Wait, /) -> bool:
        """Whether a signal of the wait's name is there to be consumed. Consumes nothing."""
        ...

    def wake_workflow(self, wait: Wait, /) -> Answer:
        """Makes the workflow due. LOST: it is not parked on this wait any more, and nothing needs to be done."""
        ...


class UpdatePollTarget(Protocol[Reference]):
    """Delivers updates. May also be a `ListsPendingUpdates`, which spares asking every held workflow."""

    def list_held_workflow_ids(self) -> Sequence[Reference]:
        """The held workflows that may have updates."""
        ...

    def has_pending_updates(self, reference: Reference, /) -> bool:
        """Whether an update waits to be handed over. Consumes nothing."""
        ...

    def drain_pending_updates(self, reference: Reference, /) -> Answer:
        """Hands the pending updates to the workflow's owner. LOST: there is nothing left here to hand over."""
        ...


# -- optional: a whole set at once -----------------------------------------------------------------------------------


ReferenceTaken = TypeVar("ReferenceTaken", bound=str | WorkflowReference, contravariant=True)
ReferenceListed = TypeVar("ReferenceListed", bound=str | WorkflowReference, covariant=True)
WaitListed = TypeVar("WaitListed", bound=ParkedWait, covariant=True)


@runtime_checkable
class RenewsSlices(Protocol[ReferenceTaken]):
    def renew_workflow_claims(self, references: Sequence[ReferenceTaken], /) -> Sequence[Answer]:
        """Renews a slice of claims in one statement, each under its own condition: one answer per claim, in order."""
        ...


@runtime_checkable
class TakesOverSlices(Protocol[ReferenceTaken]):
    def attempt_workflow_claim_takeovers(
        self, references: Sequence[ReferenceTaken], /
    ) -> Sequence[TakeoverAttempt | None]:
        """One try for each of a slice in few statements, each under its own conditions: one answer each, in order.

        None for one that is to be tried alone, above all one that is not won: the lone try says why."""
        ...


@runtime_checkable
class ListsReadyWaits(Protocol[WaitListed]):
    def list_ready_signal_waits(self) -> Sequence[WaitListed]:
        """Only the waits to wake for: a signal is buffered, or the deadline has passed."""
        ...


@runtime_checkable
class ListsPendingUpdates(Protocol[ReferenceListed]):
    def list_workflows_with_pending_updates(self) -> Sequence[ReferenceListed]:
        """Only the held workflows that have pending updates."""
        ...


def slice_renewal_of(
    target: ClaimRenewalTarget[Reference],
) -> Callable[[Sequence[Reference]], Sequence[Answer]] | None:
    return target.renew_workflow_claims if isinstance(target, RenewsSlices) else None


def slice_takeover_of(
    target: ReclaimTarget[Reference],
) -> Callable[[Sequence[Reference]], Sequence[TakeoverAttempt | None]] | None:
    return target.attempt_workflow_claim_takeovers if isinstance(target, TakesOverSlices) else None


def ready_listing_of(target: SignalPollTarget[Wait]) -> Callable[[], Sequence[Wait]] | None:
    return target.list_ready_signal_waits if isinstance(target, ListsReadyWaits) else None


def pending_listing_of(target: UpdatePollTarget[Reference]) -> Callable[[], Sequence[Reference]] | None:
    return target.list_workflows_with_pending_updates if isinstance(target, ListsPendingUpdates) else None


# -- all four --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The targets of one host. One that is left out leaves its pass out (`None` in `RunOnceResult`)."""

    renewal: ClaimRenewalTarget[Any] | None = None
    reclaim: ReclaimTarget[Any] | None = None
    signals: SignalPollTarget[Any] | None = None
    updates: UpdatePollTarget[Any] | None = None

    def of(self, kind: PassKind) -> Any | None:
        """The target of a pass, if there is one."""
        match kind:
            case PassKind.RENEWAL:
                return self.renewal
            case PassKind.RECLAIM:
                return self.reclaim
            case PassKind.SIGNAL_POLL:
                return self.signals
            case PassKind.UPDATE_POLL:
                return self.updates

    @property
    def kinds(self) -> tuple[PassKind, ...]:
        """The passes that have a target, in the order of `run_once`."""
        return tuple(kind for kind in PassKind if self.of(kind) is not None)
