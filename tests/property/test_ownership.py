"""Whatever happens in whatever order, the store keeps the rules of ownership: see `machine`."""

from __future__ import annotations

import os
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import Ownership

from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock

EXAMPLES = int(os.environ.get("WEFT_PROPERTY_EXAMPLES", "50"))
"""The default is for every run of the suite; a night's worth is 20,000."""


def test_the_store_and_the_reference_agree_and_every_invariant_holds(
    fresh_store: Callable[[str], tuple[Store, ManualClock]],
) -> None:
    def on_a_fresh_store() -> Ownership:
        machine = Ownership()
        machine.store, machine.clock = fresh_store("sqlite")
        return machine

    run_state_machine_as_test(
        on_a_fresh_store,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=50,
            deadline=None,
            derandomize=EXAMPLES <= 50,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
