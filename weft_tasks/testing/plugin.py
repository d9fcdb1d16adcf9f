"""The pytest plug-in: fixtures for tests of workflows. Loaded into every pytest run, so it imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from weft_tasks.testing.bed import WorkflowBed
    from weft_tasks.testing.bed_store import BedStores
    from weft_tasks.weft import Weft


class NewBed(Protocol):
    """What the fixture `workflow_bed` is."""

    def __call__(self, weft: Weft | None = None, **options: Any) -> WorkflowBed:
        """A bed for the types of `weft`, or for types that the test registers; the options are WorkflowBed's."""


@pytest.fixture(scope="session")
def workflow_bed_stores() -> Iterator[BedStores]:
    """The stores that this run's beds share, one after the other."""
    from weft_tasks.testing.bed_store import BedStores

    stores = BedStores()
    yield stores
    stores.close()


@pytest.fixture
def workflow_bed(workflow_bed_stores: BedStores) -> Iterator[NewBed]:
    """Makes beds: `bed = workflow_bed(weft)`. They are closed when the test is over.

    A project's own fixture is two lines: `@pytest.fixture` / `def bed(workflow_bed): return workflow_bed(weft)`.
    """
    from contextlib import ExitStack

    from weft_tasks.testing.bed import WorkflowBed

    with ExitStack() as beds:

        def new_bed(weft: Weft | None = None, **options: Any) -> WorkflowBed:
            return beds.enter_context(WorkflowBed(weft, **{"stores": workflow_bed_stores, **options}))

        yield new_bed
