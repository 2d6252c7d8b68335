"""Object buckets beside nats-py: what one puts the other gets, and broken transfers leave nothing."""

import asyncio
import io
import os
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import ObjectMeta, ObjectMetaOptions

from natsctl.api.errors import StorageError
from natsctl.client.asset_config import new_object_bucket
from natsctl.client.buckets import OBJECTS, bucket_names
from natsctl.client.manager import Manager
from natsctl.client.object_store import Meta, ObjectBucket, ObjectNotFoundError, beside, get, objects, put


def ignore(done: int) -> None:
    """Progress that nobody looks at."""


async def make(manager: Manager, name: str) -> ObjectBucket:
    await manager.stream_create(new_object_bucket(name))
    return await ObjectBucket.open(manager, name)


async def fetched(bucket: ObjectBucket, name: str) -> bytes:
    holder, found = await bucket.resolve(name)
    target = io.BytesIO()
    await get(holder, found, target, ignore)
    return target.getvalue()


async def test_nats_py_gets_what_is_put_here(clients: Any) -> None:
    body = os.urandom(500_000)
    async with clients() as (manager, js):
        bucket = await make(manager, "B")
        meta = Meta("dir/näme", "about", {"K": ["V"]}, chunk_bytes=100_000)
        made = await put(bucket, meta, io.BytesIO(body), ignore)
        assert (made.size, made.chunks) == (500_000, 5)
        store = await js.object_store("B")
        result = await store.get("dir/näme")
        assert result.data == body
        assert (result.info.description, result.info.headers) == ("about", {"K": ["V"]})
        assert result.info.options.max_chunk_size == 100_000
        await bucket.delete(made)
        assert [one.deleted for one in await objects(bucket, deletes=True)] == [True]
        assert (await store.get_info("dir/näme", show_deleted=True)).deleted


async def test_what_nats_py_puts_is_got_here(clients: Any) -> None:
    body = os.urandom(300_000)
    async with clients() as (manager, js):
        store = await js.create_object_store("B")
        options = ObjectMetaOptions(max_chunk_size=65536)
        await store.put("f", body, meta=ObjectMeta(description="d", options=options))
        await store.put("empty", b"")
        bucket = await ObjectBucket.open(manager, "B")
        assert await fetched(bucket, "f") == body
        assert await fetched(bucket, "empty") == b""
        assert [(one.name, one.size) for one in await objects(bucket)] == [("empty", 0), ("f", 300_000)]
        await put(bucket, Meta("f"), io.BytesIO(b"new"), ignore)
        assert (await store.get("f")).data == b"new"
        await store.delete("f")
        with pytest.raises(ObjectNotFoundError):
            await bucket.info_of("f")
        assert await bucket_names(manager, OBJECTS) == ["B"]


async def test_a_chunk_that_comes_late_to_the_server_that_reads_is_waited_for(clients: Any) -> None:
    async with clients() as (manager, js):
        bucket = await make(manager, "B")
        made = await put(bucket, Meta("f", chunk_bytes=10), io.BytesIO(b"x" * 25), ignore)
        await manager.message_delete("OBJ_B", 3)
        target, late = io.BytesIO(), asyncio.Event()
        reading = asyncio.ensure_future(get(bucket, made, target, lambda done: late.set() if done == 20 else None))
        await late.wait()
        await js.publish(bucket.chunk_subject(made.nuid), b"x" * 5)
        await reading
        assert target.getvalue() == b"x" * 25


def test_a_file_that_is_not_finished_leaves_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    target = folder / "f"
    target.write_text("old")
    with pytest.raises(StorageError), beside(target) as file:
        file.write(b"new")
        raise OSError("the disk is full")
    assert (target.read_text(), list(folder.iterdir())) == ("old", [target])
    with beside(target) as file:
        file.write(b"new")
        assert target.read_text() == "old"
    assert (target.read_text(), list(folder.iterdir())) == ("new", [target])
