"""What tests of desired state look at: the audit advisories of a server, and documents on disk."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.testing.process import ServerProcess
from tests.support.servers import managing

API = "$JS.API."
_READING = ("INFO", "NAMES", "LIST", "MSG.GET")
WITHIN_S = 10.0
MARKS = 5


class Audit:
    """The API requests of all clients, from the server's audit advisories."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._connection = self._run(connect(resolve(Settings(url=url), {"HOME": "/nowhere"}), name="audit"))
        self._heard = self._run(self._connection.subscribe("$JS.EVENT.ADVISORY.API"))
        self._run(self._connection.flush())

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    def changes(self) -> list[str]:
        """The requests since the last look that may have changed something, without their prefix."""
        return self._run(self._until_now())

    async def _until_now(self) -> list[str]:
        # Advisories come about in the order of the requests: what is before those of the last ones is all there is.
        # One would not do: nats-server answers a request before it tells of it, and meanwhile may tell of another's.
        mark = f"{API}STREAM.DELETE.AUDIT_MARK"
        for _ in range(MARKS):
            await self._connection.request(mark)
        found: list[str] = []
        marks = 0
        while True:
            message = await self._heard.next(WITHIN_S)
            assert message is not None, "the advisory of the last request did not come"
            subject = json.loads(message.body)["subject"]
            marks += subject == mark
            if marks == MARKS:
                return found
            if subject != mark and not any(word in subject for word in _READING):
                found.append(subject.removeprefix(API))

    def close(self) -> None:
        self._run(self._connection.close())
        self._runner.close()


@pytest.fixture
def audit(shared_server: ServerProcess, natsctl: Any) -> Iterator[Audit]:
    listening = Audit(shared_server.url)
    yield listening
    listening.close()


@pytest.fixture
def manage(shared_server: ServerProcess) -> Callable[[Callable[[Manager], Any]], Any]:
    """Asks the server something in place of a command: `manage(lambda manager: manager.stream_info("A"))`."""

    async def ask(work: Callable[[Manager], Any]) -> Any:
        async with managing(shared_server.url) as manager:
            return await work(manager)

    return lambda work: asyncio.run(ask(work))


@pytest.fixture
def document(tmp_path: Path) -> Callable[..., str]:
    def write(*streams: dict[str, Any], name: str = "set.json", **more: Any) -> str:
        path = tmp_path / name
        path.write_text(json.dumps({"streams": list(streams), **more}))
        return str(path)

    return write
