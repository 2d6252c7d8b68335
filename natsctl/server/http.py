"""The HTTP listener of monitoring: one GET at a time, framed by h11, answered by a function of path and query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlsplit

import h11

MAX_HEAD_BYTES: Final = 16 * 1024
"""Longest request line with headers."""

IDLE_S: Final = 30.0
"""How long a connection may stay without a whole request."""


@dataclass(frozen=True, slots=True)
class Page:
    """One answer."""

    status: int
    body: bytes
    content_type: str = "application/json"


Query = dict[str, str]
Answerer = Callable[[str, Query], Page]


class HttpServer:
    """A listener that answers GET and HEAD requests."""

    def __init__(self, host: str, port: int, answer: Answerer) -> None:
        """Prepare to listen on `host`:`port`; `answer` is asked on the event loop and must be quick."""
        self._host = host
        self._port = port
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Where it listens, 0 before `start`."""
        return int(self._server.sockets[0].getsockname()[1]) if self._server and self._server.sockets else 0

    async def start(self) -> None:
        """Listen; raises OSError when the address can not be used."""
        self._server = await asyncio.start_server(self._serve, self._host, max(self._port, 0), limit=MAX_HEAD_BYTES)

    def stop_accepting(self) -> None:
        """Close the listener; those who are in stay."""
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        """Close the listener and every connection."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, TimeoutError, asyncio.CancelledError, h11.RemoteProtocolError):
                await self._converse(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        while True:
            request: h11.Request | None = None
            while True:
                event = state.next_event()
                if event is h11.NEED_DATA:
                    state.receive_data(await asyncio.wait_for(reader.read(65536), IDLE_S))
                elif isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.EndOfMessage):
                    break
                elif isinstance(event, h11.ConnectionClosed):
                    return
            assert request is not None
            for chunk in self._reply(state, request):
                writer.write(chunk)
            await asyncio.wait_for(writer.drain(), IDLE_S)
            if state.our_state is h11.MUST_CLOSE:
                return
            state.start_next_cycle()

    def _reply(self, state: h11.Connection, request: h11.Request) -> list[bytes]:
        page = self._page(request)
        headers = [("Content-Type", page.content_type), ("Content-Length", str(len(page.body)))]
        chunks = [state.send(h11.Response(status_code=page.status, headers=headers))]
        if request.method != b"HEAD":
            chunks.append(state.send(h11.Data(data=page.body)))
        chunks.append(state.send(h11.EndOfMessage()))
        return [chunk for chunk in chunks if chunk]

    def _page(self, request: h11.Request) -> Page:
        if request.method not in (b"GET", b"HEAD"):
            return Page(405, b"method not allowed\n", "text/plain")
        target = urlsplit(request.target.decode("ascii", "replace"))
        return self._answer(target.path, {key: values[-1] for key, values in parse_qs(target.query).items()})
