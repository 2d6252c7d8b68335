"""A server on an event loop and a thread of its own, for callers without a loop."""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, TypeVar

from natsctl.server.instance import ServerInstance
from natsctl.server.loops import new_event_loop
from natsctl.server.options import ServerOptions
from natsctl.server.process.log import Log

T = TypeVar("T")

STOP_WITHIN_S: Final = 30.0
"""Bound of `stop`: longer than the server's own bounds together."""


class ServerThread:
    """Starts and stops a `ServerInstance` from plain code; also a context manager."""

    def __init__(self, options: ServerOptions, log: Log | None = None) -> None:
        """Prepare a server thread; nothing runs before `start`."""
        self.instance = ServerInstance(options, log)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None

    @property
    def url(self) -> str:
        """The server's URL."""
        return self.instance.url

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self.instance.port

    def start(self) -> "ServerThread":
        """Start the server and return when it listens; raises what the server's start raised."""
        self._thread = threading.Thread(target=self._run, name="natsctl-server", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            self._thread = None
            raise self._error
        return self

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            await self.instance.start()
        except BaseException as error:  # handed to the starting thread, which raises it
            self._error = error
            return
        finally:
            self._started.set()
        await self._stopping.wait()
        await self.instance.stop()

    def clients_named(self, name: str) -> int:
        """Return how many clients introduced themselves by that name; 0 when the server does not run."""
        return self.run(self._count(name)) if self._thread is not None else 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work that is done on the server's loop, beside its own; raises what it raises."""
        if self._loop is None or self._thread is None:
            work.close()
            raise RuntimeError("the server is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _count(self, name: str) -> int:
        return sum(session.name == name for session in self.instance.broker.sessions.values())

    def stop(self) -> None:
        """Stop the server with everything synced; safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(STOP_WITHIN_S)

    def __enter__(self) -> "ServerThread":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
