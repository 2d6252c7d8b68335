"""Our client and nats-py side by side on one server of each kind, whose streams go after every test."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from natsctl.client.manager import Manager
from natsctl.testing.process import ServerProcess
from tests.support import patient_client
from tests.support.servers import managing

Clients = Callable[..., AbstractAsyncContextManager[tuple[Manager, Any]]]


@pytest.fixture(scope="module", params=["natsctl", "reference"])
def process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server"), request.param) as running:
        yield running


@pytest.fixture
def url(process: ServerProcess) -> str:
    return process.url


@pytest.fixture
def clients(process: ServerProcess) -> Clients:
    """Opens our manager and nats-py's JetStream; settings are those of our connection."""

    @asynccontextmanager
    async def opened(**settings: str) -> AsyncIterator[tuple[Manager, Any]]:
        theirs = await patient_client.connect(process.url)
        js = theirs.jetstream()
        try:
            async with managing(process.url, **settings) as ours:
                yield ours, js
        finally:
            process.await_removals()
            for stream in await js.streams_info():
                await js.delete_stream(stream.config.name)
            process.await_removals()
            await theirs.close()

    return opened
