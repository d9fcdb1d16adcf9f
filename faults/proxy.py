"""The network between one process and a server: a TCP proxy that delays, swallows or resets what passes.

Cut in a direction, it goes on reading nothing there: connections stay open, and bytes wait, as behind a router that
has died. `reset` ends every connection at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from typing import Self

from weft_tasks.testing.ports import free_port

CHUNK = 65536


@dataclass(slots=True)
class _Way:
    """One direction: open or cut, and how late."""

    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0


class Proxy:
    """Listens on a port of its own and passes everything to `target` on 127.0.0.1. Runs in a thread of the bench."""

    def __init__(self, target: int) -> None:
        self.port, self._target = free_port(), target
        self._loop = asyncio.new_event_loop()
        self._to_server, self._to_client = _Way(), _Way()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-to-{target}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen)
        return self

    def __exit__(self, *_error: object) -> None:
        self.reset()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def cut(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Let nothing pass in these directions, without telling anybody."""

        async def close() -> None:
            for way, is_cut in ((self._to_server, to_server), (self._to_client, to_client)):
                if is_cut:
                    way.is_open.clear()

        self._do(close)

    def slow(self, delay_s: float) -> None:
        """Every chunk comes that much later, in both directions."""
        self._to_server.delay_s = self._to_client.delay_s = delay_s

    def reset(self) -> None:
        """End every connection."""

        async def abort() -> None:
            for writer in self._writers:
                writer.transport.abort()

        self._do(abort)

    def mend(self) -> None:
        """Everything passes again; what waited arrives."""

        async def reopen() -> None:
            self._to_server.is_open.set()
            self._to_client.is_open.set()

        self.slow(0)
        self._do(reopen)

    # -- private: in the proxy's thread

    def _do(self, action: object) -> None:
        asyncio.run_coroutine_threadsafe(action(), self._loop).result(5)  # type: ignore[operator]

    async def _listen(self) -> None:
        self._to_server.is_open.set()
        self._to_client.is_open.set()
        await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            await self._to_server.is_open.wait()
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            to_client.transport.abort()
            return
        self._writers |= {to_client, to_server}
        ways = (
            asyncio.ensure_future(self._pass(from_client, to_server, self._to_server)),
            asyncio.ensure_future(self._pass(from_server, to_client, self._to_client)),
        )
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for writer in (to_client, to_server):
            writer.transport.abort() if writer.transport.is_closing() else writer.close()
        self._writers -= {to_client, to_server}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK):
                if way.delay_s:
                    await asyncio.sleep(way.delay_s)
                await way.is_open.wait()
                writer.write(chunk)
                await writer.drain()
