"""Keys with a lifetime, as nats.py knows them: they go, and watchers are told by a marker."""

import asyncio
from typing import Any

import pytest
from nats.js.api import KeyValueConfig
from nats.js.errors import KeyNotFoundError

from natsctl.testing.process import ServerProcess
from tests.support import patient_client

WITHIN_S = 20.0


@pytest.mark.live
@pytest.mark.both
async def test_a_key_goes_with_its_ttl_and_a_watcher_hears_of_it(server: ServerProcess) -> None:
    client = await patient_client.connect(server.url)
    try:
        js = client.jetstream()
        bucket = await js.create_key_value(KeyValueConfig(bucket="B", limit_marker_ttl=1.0))
        watcher = await bucket.watchall()
        updates: Any = watcher.updates
        assert await updates(timeout=WITHIN_S) is None
        await bucket.put("long", b"2")
        await bucket.create("short", b"1", msg_ttl=1)
        heard = [await updates(timeout=WITHIN_S) for _ in range(3)]
        assert [(e.key, e.operation, e.value) for e in heard if e is not None] == [
            ("long", None, b"2"),
            ("short", None, b"1"),
            ("short", "PURGE", b""),
        ]
        await bucket.create("gone", b"4", msg_ttl=60)
        await bucket.purge("long", msg_ttl=1)
        async with asyncio.timeout(WITHIN_S):  # real time: markers go, that of a purge too, and leave no others
            while (await js.stream_info("KV_B")).state.messages > 1:
                await asyncio.sleep(0.1)
        with pytest.raises(KeyNotFoundError):
            await bucket.get("short")
        state = (await js.stream_info("KV_B")).state
        assert (state.messages, state.last_seq) == (1, 5)
        await bucket.create("short", b"3", msg_ttl=60)
        assert (await bucket.get("short")).value == b"3"
    finally:
        await client.close()
