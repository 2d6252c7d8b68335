"""An ordered reader goes on where it was, whatever becomes of its consumer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from natsctl.api.errors import ApiResponseError
from natsctl.client.manager import Manager
from natsctl.client.messaging import consumers, messages
from natsctl.client.messaging.consumers import OrderedReader


@pytest.fixture(autouse=True)
def soon_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats come, and are missed, before anybody waits for them."""
    monkeypatch.setattr(consumers, "ORDERED_HEARTBEAT_S", 0.1)
    monkeypatch.setattr(consumers, "MISSED_S", 0.3)


@pytest.fixture
async def filled(manager: Manager) -> Manager:
    """A stream with the bodies 1 to 5."""
    await manager.stream_create({"name": "S", "subjects": ["s.*"], "storage": "memory"})
    await publish(manager, 1, 5)
    return manager


async def publish(manager: Manager, first: int, last: int) -> None:
    for number in range(first, last + 1):
        await messages.publish(manager, "s.a", b"%d" % number)


async def bodies(reader: OrderedReader, count: int) -> list[int]:
    found = []
    async with asyncio.timeout(30):
        while len(found) < count:
            delivered = await reader.next()
            assert delivered is not None
            found.append(int(delivered.message.body))
    return found


async def removed(manager: Manager, consumer: str) -> None:
    await manager.consumer_delete("S", consumer)


async def began_anew(manager: Manager, consumer: str) -> None:
    """Another one of that name, numbered from 1 again, in place of the reader's."""
    config = (await manager.consumer_info("S", consumer)).raw["config"]
    await manager.consumer_delete("S", consumer)
    await manager.consumer_create("S", {**config, "deliver_policy": "all", "headers_only": False})


@pytest.mark.both
@pytest.mark.parametrize("happens", (removed, began_anew))
async def test_reading_goes_on_behind_the_last_message(
    filled: Manager, happens: Callable[[Manager, str], Awaitable[None]]
) -> None:
    async with OrderedReader(filled, "S", "s.*") as reader:
        assert await bodies(reader, 5) == [1, 2, 3, 4, 5]
        (consumer,) = await filled.consumer_names("S")
        await happens(filled, consumer)
        await publish(filled, 6, 8)
        assert await bodies(reader, 3) == [6, 7, 8]
        assert len(await filled.consumer_names("S")) == 1


@pytest.mark.both
async def test_a_message_that_is_missing_is_read_again_with_those_behind_it(
    filled: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "MISSED_S", 60.0)  # only what is missing may have the consumer made anew
    async with OrderedReader(filled, "S", "s.*") as reader:
        assert reader._subscription is not None
        whole, lost = reader._subscription.next, []

        async def lossy(timeout_s: float | None = None) -> Any:
            message = await whole(timeout_s)
            if message is not None and message.body == b"3" and not lost:
                lost.append(message)
                message = await whole(timeout_s)
            return message

        monkeypatch.setattr(reader._subscription, "next", lossy)
        assert await bodies(reader, 5) == [1, 2, 3, 4, 5]
        assert len(lost) == 1


@pytest.mark.both
async def test_a_stream_that_is_removed_ends_the_reading(filled: Manager) -> None:
    async with OrderedReader(filled, "S", "s.*") as reader:
        assert await bodies(reader, 5) == [1, 2, 3, 4, 5]
        await filled.stream_delete("S")
        with pytest.raises(ApiResponseError, match="stream not found"):
            await bodies(reader, 1)
