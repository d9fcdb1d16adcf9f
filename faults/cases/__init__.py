"""The named cases, group by group."""

from __future__ import annotations

from faults.case import Case
from faults.cases import beats, database, deploys, engines, network, poison, redis

GROUPS = tuple(module.cases for module in (engines, beats, redis, database, network, deploys, poison))
ALL: dict[str, Case] = {case.name: case for group in GROUPS for case in group.all}
