"""Commands about messages: a stream to publish to, and somebody who listens or answers meanwhile, in this process."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from natsctl.client.connection import Connection
from natsctl.client.dial import connect
from natsctl.client.message import Message
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.testing.process import ServerProcess
from tests.cli.conftest import eventually
from tests.support.commands import Run

WITHIN_S = 60.0


@pytest.fixture
def stored(natsctl: Run) -> Run:
    assert natsctl("str", "add", "S", "--subjects", "s.*").code == 0
    return natsctl


def until_stored(natsctl: Run, number: int) -> None:
    """Return once S has so many messages: nobody is told when what is published plainly is stored."""
    eventually(lambda: natsctl("str", "info", "S", "-j").json["state"]["last_seq"], lambda held: held >= number)


class Other:
    """Another client, on a loop in a thread of its own."""

    def __init__(self, url: str) -> None:
        self.heard: list[Message] = []
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._tasks: list[asyncio.Task[None]] = []
        target = resolve(Settings(url=url), {}, None, no_context=True)
        self.connection: Connection = self.do(connect(target, name="other"))

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WITHIN_S)

    def listens(self, subject: str, answers: Callable[[Message], list[dict[str, Any]]] = lambda _: []) -> None:
        """Hear what comes on a subject, and answer it; returns when the server knows."""

        async def begin() -> None:
            subscription = await self.connection.subscribe(subject)
            await self.connection.flush()

            async def serve() -> None:
                async for message in subscription:
                    self.heard.append(message)
                    # All at once, so that they arrive together: whoever asked may wait for further ones but briefly.
                    await asyncio.gather(
                        *[self.connection.publish(message.reply, **answer) for answer in answers(message)]
                    )

            self._tasks.append(self.loop.create_task(serve()))

        self.do(begin())

    def publishes(self, subject: str, body: bytes = b"", **more: Any) -> None:
        async def work() -> None:
            await self.connection.publish(subject, body, **more)
            await self.connection.flush()

        self.do(work())

    def sends_once_heard(self, subject: str, *bodies: bytes) -> None:
        """Publish bodies as soon as somebody subscribes there, the first of them as a request; returns at once."""

        async def work() -> None:
            first, *others = bodies
            while not await self._heard_by_somebody(subject, first):
                await asyncio.sleep(0.005)
            for body in others:
                await self.connection.publish(subject, body)

        self._later(work())

    async def _heard_by_somebody(self, subject: str, body: bytes) -> bool:
        """Publish a request; where nobody listens the server says so before it answers the PING that comes behind."""
        answers = await self.connection.subscribe(self.connection.new_inbox())
        await self.connection.publish(subject, body, reply=answers.subject)
        await self.connection.flush()
        answer = answers.now()
        await answers.stop()
        return answer is None or answer.status != 503

    def does(self, work: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        self._later(work(self.connection))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        async def begin() -> None:
            self._tasks.append(self.loop.create_task(work))

        self.do(begin())

    def close(self) -> None:
        async def end() -> None:
            # nats-py may drop one cancellation, so it is told until it listens.
            while left := [task for task in self._tasks if not task.done()]:
                for task in left:
                    task.cancel()
                await asyncio.wait(left, timeout=0.05)
            await self.connection.close()

        self.do(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WITHIN_S)
        self.loop.close()


@pytest.fixture
def other(shared_server: ServerProcess) -> Iterator[Other]:
    one = Other(shared_server.url)
    yield one
    one.close()
