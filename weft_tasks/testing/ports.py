"""A TCP port on 127.0.0.1 that a server can have, lose, and have again."""

from __future__ import annotations

import random
import socket

from weft_tasks.testing.errors import NoFreePort

PORTS = range(20_000, 32_000)
"""Below the range from which the system takes ports for outgoing connections. Inside it a client that retries a
stopped server can be given the server's own port, connect to itself, and keep the server from coming back."""

TRIES = 100


def free_port() -> int:
    """A port that was free a moment ago. Random, so that test processes side by side rarely meet."""
    for port in random.sample(PORTS, TRIES):
        if _is_free(port):
            return port
    raise NoFreePort(TRIES)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
