"""One deployment for all tests of this folder. Each test leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from deployment import Deployment, show_logs
from parts import Parts


@pytest.fixture(scope="session")
def standing_parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    with ExitStack() as stack:
        yield Parts(stack, tmp_path_factory.mktemp("operator"))


@pytest.fixture
def parts(standing_parts: Parts) -> Iterator[Parts]:
    yield standing_parts
    show_logs(*standing_parts.processes)


@pytest.fixture
def deployment(parts: Parts) -> Deployment:
    return parts.deployment
