"""Key-value buckets beside nats-py: what one writes the other reads, and what readers are promised."""

import asyncio
from typing import Any

import pytest
from nats.js.api import KeyValueConfig
from nats.js.errors import KeyNotFoundError as NatsKeyNotFoundError

from natsctl.client.asset_config import new_kv_bucket, set_history
from natsctl.client.kv import KeyValueBucket, compact, entries, removals
from natsctl.client.manager import Manager
from tests.support.patient_client import history_of, keys_of

LATER_NS = 2**62


async def make(manager: Manager, name: str, history: int = 5) -> KeyValueBucket:
    config = new_kv_bucket(name)
    set_history(config, history)
    await manager.stream_create(config)
    return await KeyValueBucket.open(manager, name)


async def test_nats_py_reads_what_is_written_here(clients: Any) -> None:
    async with clients() as (manager, js):
        bucket = await make(manager, "B")
        await bucket.put("a", b"\x00\xff")
        revision = (await bucket.update("a", b"two", 1)).value.seq
        await bucket.put("gone", b"x")
        await bucket.delete("gone")
        await bucket.put("purged", b"x")
        await bucket.purge("purged")
        kv = await js.key_value("B")
        entry = await kv.get("a")
        assert (entry.value, entry.revision) == (b"two", revision)
        assert (await kv.get("a", 1)).value == b"\x00\xff"
        for key in ("gone", "purged"):
            with pytest.raises(NatsKeyNotFoundError):
                await kv.get(key)
        assert await keys_of(kv) == ["a"]
        assert [one.operation for one in await history_of(kv, "gone")] == [None, "DEL"]
        assert [one.operation for one in await history_of(kv, "purged")] == ["PURGE"]
        status = await kv.status()
        assert (status.history, status.ttl) == (5, 0)


async def test_what_nats_py_writes_is_read_here(clients: Any) -> None:
    async with clients() as (manager, js):
        kv = await js.create_key_value(KeyValueConfig(bucket="B", history=5))
        await kv.put("a", b"one")
        await kv.put("a", b"two")
        await kv.put("gone", b"x")
        await kv.delete("gone")
        await kv.put("purged", b"x")
        await kv.purge("purged")
        bucket = await KeyValueBucket.open(manager, "B")
        assert (await bucket.get("a")).value == b"two"
        assert (await bucket.get("a", 1)).value == b"one"
        assert [one.key for one in await entries(bucket)] == ["a"]
        found = await entries(bucket, history=True, deletes=True)
        assert [(one.key, one.operation) for one in found] == [
            ("a", "PUT"),
            ("a", "PUT"),
            ("gone", "PUT"),
            ("gone", "DEL"),
            ("purged", "PURGE"),
        ]
        assert (await bucket.create("gone", b"back")).value.seq == 7
        assert (await kv.get("gone")).value == b"back"


async def test_a_bucket_made_here_is_the_one_that_nats_py_makes(clients: Any) -> None:
    async with clients() as (manager, js):
        await js.create_key_value(KeyValueConfig(bucket="THEIRS", history=3))
        theirs = (await manager.stream_info("KV_THEIRS")).raw["config"]
        ours = (await make(manager, "OURS", 3)).info.raw["config"]
        # nats-py asks for no direct gets; newer ones let keys have a time to live without markers.
        apart = ("name", "subjects", "allow_direct", "allow_msg_ttl", "metadata")
        assert {key for key in ours if ours[key] != theirs.get(key) and key not in apart} == set()
        assert ours["subjects"] == ["$KV.OURS.>"]


async def test_many_keys_are_read_whole_whatever_happens_meanwhile(clients: Any) -> None:
    async with clients() as (manager, _):
        bucket = await make(manager, "B", 1)
        keys = [f"k.{number:04}" for number in range(1000)]
        await asyncio.gather(*(bucket.put(key, b"x" * 300) for key in keys))

        async def churn() -> None:
            for key in keys[:100]:
                await bucket.put(key, b"y" * 300)

        found, _ = await asyncio.gather(entries(bucket), churn())
        assert sorted(one.key for one in found) == keys
        assert {one.length for one in await entries(bucket, values=False)} == {300}
        assert list(await manager.consumer_names("KV_B")) == []


async def test_a_key_that_is_written_all_the_time_is_never_absent(clients: Any) -> None:
    async with clients() as (writer, _), clients() as (reader, _):
        bucket = await make(writer, "B", 1)
        await bucket.put("k", b"0")
        seen = await KeyValueBucket.open(reader, "B")
        writing = asyncio.create_task(_write_often(bucket, 200))
        found: list[object] = []
        while not writing.done():
            found += await asyncio.gather(seen.last("k"), seen.last("k", fresh=True))
        await writing
        assert len(found) > 20
        assert None not in found


async def _write_often(bucket: KeyValueBucket, times: int) -> None:
    for number in range(times):
        await bucket.put("k", b"%d" % number)


async def test_compact_spares_a_key_that_is_set_meanwhile(clients: Any) -> None:
    async with clients() as (manager, _):
        bucket = await make(manager, "B")
        await bucket.put("k", b"old")
        await bucket.delete("k")
        found = await removals(bucket, 0, LATER_NS)
        await bucket.put("k", b"new")
        assert await compact(bucket, found, lambda done: None) == 2
        assert (await bucket.get("k")).value == b"new"


async def test_behind_an_api_prefix_writes_have_it_too(clients: Any) -> None:
    async with clients() as (manager, _):
        info = (await make(manager, "B")).info
        async with clients(jetstream_domain="D") as (elsewhere, _):
            bucket = KeyValueBucket(elsewhere, "B", info)
            assert (bucket.reads, bucket.writes) == ("$KV.B.", "$JS.D.API.$KV.B.")
