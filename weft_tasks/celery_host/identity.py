"""Which engine this process belongs to: written by the worker's main process, read in every process of its pool.

Shared memory survives the fork and shows a new id to children that live already; the environment carries the id to
children that are spawned instead.
"""

from __future__ import annotations

import mmap
import os
import socket
import uuid

ENVIRONMENT_VARIABLE = "WEFT_ENGINE_ID"
_SIZE = 128


class EngineIdentity:
    """The id of the engine that runs here; None outside a worker that is an engine."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _SIZE)

    @property
    def engine_id(self) -> str | None:
        shared = self._shared[:].rstrip(b"\0").decode("ascii")
        return shared or os.environ.get(ENVIRONMENT_VARIABLE) or None

    def mint(self) -> str:
        """A new id for a new incarnation, known to this process and its pool from now on."""
        engine_id = uuid.uuid4().hex
        self._shared[:] = engine_id.encode("ascii").ljust(_SIZE, b"\0")
        # Never inherited from a parent that is itself an engine's child: this worker's own id replaces it.
        os.environ[ENVIRONMENT_VARIABLE] = engine_id
        return engine_id


def host_name() -> str:
    return socket.gethostname()[:255]
