"""nats.py's buckets, unmodified, on both servers: what watchers see and in which order, markers, revisions, objects."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

import pytest
from nats.js import JetStreamContext
from nats.js.errors import BadRequestError, KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore

from natsctl.testing.process import ServerProcess
from tests.support import patient_client
from tests.support.patient_client import PATIENCE_S

pytestmark = pytest.mark.both


@pytest.fixture
async def js(server: ServerProcess) -> AsyncIterator[JetStreamContext]:
    connection = await patient_client.connect(server.url)
    yield connection.jetstream()
    await connection.close()


async def seen(watcher: KeyValue.KeyWatcher, number: int) -> list[tuple[str, str | None, int | None] | None]:
    """Return the next `number` entries of a watcher; None is the end of those that existed at its start."""
    entries = []
    for _ in range(number):
        entry = await watcher.updates(PATIENCE_S)
        entries.append(entry and (entry.key, entry.operation, entry.revision))
    return entries


async def seen_at_start(watcher: KeyValue.KeyWatcher, number: int) -> list[tuple[str, str | None, int | None]]:
    """Return the `number` values that were there at the start.

    nats.py puts the end before them where the server had sent them all before it answered the client's question for
    the consumer's state, and the client had not read them yet.
    """
    entries = await seen(watcher, number + 1)
    assert entries.count(None) == 1
    return [entry for entry in entries if entry is not None]


async def test_watchers_see_the_latest_values_then_an_end_then_every_change(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="B", history=3)
    for value in (b"1", b"2"):
        await bucket.put("a.x", value)
        await bucket.put("b.y", value)
    everything, some = await bucket.watchall(), await bucket.watch("a.*")
    assert await seen_at_start(everything, 2) == [("a.x", None, 3), ("b.y", None, 4)]
    assert await seen_at_start(some, 1) == [("a.x", None, 3)]
    await bucket.delete("a.x")
    await bucket.put("b.y", b"3")
    await bucket.purge("b.y")
    assert await seen(everything, 3) == [("a.x", "DEL", 5), ("b.y", None, 6), ("b.y", "PURGE", 7)]
    assert await seen(some, 1) == [("a.x", "DEL", 5)]


async def test_a_watcher_of_nothing_is_told_the_end_at_once(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="B")
    assert await seen(await bucket.watch("none"), 1) == [None]


async def test_history_keeps_so_many_values_and_a_purge_leaves_one_marker(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="B", history=3)
    for number in range(5):
        await bucket.put("k", b"%d" % number)
    assert [entry.value for entry in await bucket.history("k")] == [b"2", b"3", b"4"]
    assert (await bucket.get("k", revision=4)).value == b"3"
    await bucket.purge("k")
    assert [(entry.operation, entry.revision) for entry in await bucket.history("k")] == [("PURGE", 6)]
    with pytest.raises(KeyNotFoundError):
        await bucket.get("k")
    assert await bucket.create("k", b"again") == 7
    assert (await bucket.status()).values == 2, "the marker and the new value"


async def test_purge_deletes_leaves_values_alone(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="B")
    await bucket.put("kept", b"1")
    await bucket.put("gone", b"1")
    await bucket.delete("gone")
    await bucket.purge_deletes(olderthan=-1)
    assert await bucket.keys() == ["kept"]
    assert (await bucket.status()).values == 1


async def test_a_delete_that_expects_another_revision_is_refused(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="B")
    revision = await bucket.put("k", b"1")
    with pytest.raises(KeyWrongLastSequenceError):
        await bucket.update("k", b"2", last=revision + 1)
    with pytest.raises(BadRequestError) as caught:
        await bucket.delete("k", last=revision + 1)
    assert caught.value.err_code == 10071
    assert (await bucket.get("k")).value == b"1"


async def test_keys_of_a_large_bucket_are_complete(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="B")
    names = [f"key.{number}" for number in range(600)]
    for name in names:
        await bucket.put(name, b"v" * 100)
    assert sorted(await bucket.keys()) == sorted(names)


async def objects(store: ObjectStore) -> list[str | None]:
    """Return the names of what a store holds, sorted."""
    return sorted(info.name for info in await store.list(ignore_deletes=True))


async def test_objects_of_many_chunks_are_replaced_listed_and_sealed(js: JetStreamContext) -> None:
    store = await js.create_object_store("O")
    content = bytes(range(256)) * 3000
    info = await store.put("f", io.BytesIO(content))
    assert (info.size, info.chunks) == (len(content), 6)
    await store.put("f", content[:1000])
    await store.put("g", b"")
    assert (await store.get("f")).data == content[:1000]
    assert (await store.get("g")).data == b""
    assert (await js.stream_info("OBJ_O")).state.messages == 3, "one chunk and two descriptions"
    assert await objects(store) == ["f", "g"]
    await store.delete("g")
    assert await objects(store) == ["f"]
    await store.seal()
    with pytest.raises(BadRequestError):
        await store.put("h", b"1")
    assert (await store.status()).sealed


async def test_object_watchers_see_what_is_there_and_then_changes(js: JetStreamContext) -> None:
    store = await js.create_object_store("O")
    await store.put("a", b"1")
    watcher = await store.watch()
    first = [await watcher.updates(PATIENCE_S), await watcher.updates(PATIENCE_S)]  # nats.py's end mark may come first
    assert [(info.name, info.deleted) for info in first if info] == [("a", False)]
    assert None in first
    await store.delete("a")
    gone = await watcher.updates(PATIENCE_S)
    assert gone is not None
    assert (gone.name, gone.deleted) == ("a", True)
