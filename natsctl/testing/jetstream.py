"""A JetStream server for tests, with the streams, consumers and buckets that documents describe.

    from natsctl.testing.jetstream import jetstream_fixture

    server = jetstream_fixture("streams/orders.yaml")

    async def test_orders_are_kept(server):
        client = await nats.connect(server.url)

It runs in a thread of the test's process, on a free port of 127.0.0.1 and a folder of its own, so that tests may run
side by side; any NATS client in any language can connect. `JetStreamServer` is the same without pytest.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from natsctl.server.instance import ServerThread
from natsctl.server.options import ServerOptions
from natsctl.server.resources import SWITCH_INTERVAL_S

if TYPE_CHECKING:
    import pytest

    from natsctl.client.manager import Manager

T = TypeVar("T")
Scope = Literal["function", "class", "module", "package", "session"]


class JetStreamServer:
    """One server with the assets that documents describe; a context manager."""

    def __init__(
        self, *documents: str | Path, store_dir: str | Path | None = None, variables: Mapping[str, str] | None = None
    ) -> None:
        """Read files, folders and patterns; `variables` come before the environment in `${NAME}` of documents.

        Without `store_dir` everything is removed at the end. Raises UsageError with every mistake in the documents.
        """
        from natsctl.desired.assets import DocumentSet
        from natsctl.desired.documents import load_documents

        paths = [str(path) for path in documents]
        self.wanted = load_documents(paths, os.environ, variables=variables) if paths else DocumentSet({})
        self._store_dir = store_dir
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: ServerThread | None = None
        self._switch_interval = sys.getswitchinterval()

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        return self._running.url

    @property
    def port(self) -> int:
        """The port of `url`."""
        return self._running.port

    @property
    def _running(self) -> ServerThread:
        if self._server is None:
            raise RuntimeError("the server is not running")
        return self._server

    def start(self) -> JetStreamServer:
        """Listen, and apply the documents; raises NatsctlError if that fails, with nothing left running."""
        if self._store_dir is None:
            self._folder = tempfile.TemporaryDirectory(prefix="natsctl-")
        folder = Path(self._folder.name if self._folder else str(self._store_dir))
        options = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=folder, sync="never")
        sys.setswitchinterval(SWITCH_INTERVAL_S)  # client and server take turns often
        try:
            self._server = ServerThread(options).start()
            self._ask(self._provide)
        except BaseException:
            self.stop()
            raise
        return self

    def reset(self) -> None:
        """Return to the documents: delete every stream, and create those of the documents again, empty."""
        self._ask(self._renew)

    def stop(self) -> None:
        """Stop the server and remove its data; safe to call twice."""
        server, self._server = self._server, None
        folder, self._folder = self._folder, None
        if server is not None:
            server.stop()
            sys.setswitchinterval(self._switch_interval)
        if folder is not None:
            folder.cleanup()

    async def _provide(self, manager: Manager) -> None:
        from natsctl.desired.apply.apply import provide

        await provide(manager, self.wanted)

    async def _renew(self, manager: Manager) -> None:
        names = await manager.stream_names()
        await asyncio.gather(*(manager.stream_delete(name) for name in names))
        await self._provide(manager)

    def _ask(self, work: Callable[[Manager], Awaitable[T]]) -> T:
        """Run work as a client on the server's event loop, because this call may block the caller's."""
        return self._running.run(self._on_connection(work))

    async def _on_connection(self, work: Callable[[Manager], Awaitable[T]]) -> T:
        from natsctl.client.dial import connect
        from natsctl.client.manager import Manager
        from natsctl.client.servers import Target, TargetKind
        from natsctl.client.settings import Settings

        target = Target(TargetKind.NAMED, (self.url,), "natsctl.testing", Settings())
        async with await connect(target, name="natsctl.testing") as connection:
            return await work(Manager(connection))

    def __enter__(self) -> JetStreamServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def jetstream_fixture(
    *documents: str | Path,
    scope: Scope = "function",
    name: str | None = None,
    store_dir: str | Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> Any:
    """Return a pytest fixture that yields a running `JetStreamServer`; the fixture is named after its variable.

    Relative paths start at pytest's root folder. With a wider scope than a function's, tests share the server:
    `reset` it for a test that must not see the data of others.
    """
    import pytest

    @pytest.fixture(scope=scope, name=name)
    def running(request: pytest.FixtureRequest) -> Iterator[JetStreamServer]:
        paths = [request.config.rootpath / path for path in documents]
        with JetStreamServer(*paths, store_dir=store_dir, variables=variables) as server:
            yield server

    return running
