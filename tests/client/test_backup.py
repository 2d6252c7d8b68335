"""Snapshot and restore over the wire, on live servers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import ApiFailure, NatsctlError, UsageError
from natsctl.client import messages
from natsctl.client.archive import open_archive
from natsctl.client.backup import Progress, backup, restore
from natsctl.client.connection import Connection
from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.testing.process import ServerProcess

BODIES = [os.urandom(400) for _ in range(2000)]


async def _connect(url: str) -> Connection:
    return await connect(resolve(Settings(url=url), {"HOME": "/nowhere"}), name="test")


async def _fill(manager: Manager) -> None:
    await manager.stream_create({"name": "ORDERS", "subjects": ["ORDERS.*"], "storage": "file"})
    for start in range(0, len(BODIES), 500):
        batch = BODIES[start : start + 500]
        await asyncio.gather(*(messages.publish(manager, "ORDERS.new", body, headers={"K": "v"}) for body in batch))
    await manager.message_delete("ORDERS", 7)
    await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit"})
    async for message in messages.pull(manager, "ORDERS", "NEW", batch=3, expires_s=1):
        await messages.acknowledge(manager, message)


async def _stored(manager: Manager) -> list[tuple[int, str, bytes | None, bytes | None, str]]:
    found = []
    for seq in (1, 6, 8, 1000, 2000):
        message = (await manager.message_get("ORDERS", seq=seq)).value.message
        found.append((message.seq, message.subject, message.hdrs, message.data, message.time))
    return found


@pytest.mark.both
@pytest.mark.parametrize("name", ["ORDERS", "ORDERS.tgz"])
async def test_a_stream_comes_back_with_messages_gaps_and_consumers(server: Any, tmp_path: Path, name: str) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        before = await _stored(manager)
        seen: list[int] = []
        made = await backup(manager, "ORDERS", tmp_path / name, on_progress=lambda p: seen.append(p.archive_bytes))
        assert seen[0] == 0
        assert seen[-1] == made.archive_bytes > 0
        await manager.stream_delete("ORDERS")
        restored = await restore(manager, tmp_path / name, stream="ORDERS")
        assert restored.value.state.messages == len(BODIES) - 1
        assert await _stored(manager) == before
        consumer = (await manager.consumer_info("ORDERS", "NEW")).value
        assert (consumer.ack_floor.stream_seq, consumer.num_pending) == (3, len(BODIES) - 4)


@pytest.mark.both
async def test_a_failed_backup_leaves_nothing(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        with pytest.raises(ApiFailure):
            await backup(Manager(connection), "NONE", tmp_path / "b")
    assert [entry for entry in tmp_path.iterdir() if entry.name.endswith(".part") or entry.name == "b"] == []


@pytest.mark.both
async def test_a_backup_that_is_cancelled_leaves_nothing(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)

        def cancel(progress: Progress) -> None:
            if progress.chunks == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await backup(manager, "ORDERS", tmp_path / "out" / "b", chunk_size=32 * 1024, on_progress=cancel)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.both
async def test_a_restore_onto_an_existing_stream_is_a_conflict_and_changes_nothing(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        await backup(manager, "ORDERS", tmp_path / "b")
        with pytest.raises(ApiFailure) as raised:
            await restore(manager, tmp_path / "b")
        assert raised.value.exit_code == 4
        assert (await manager.stream_info("ORDERS")).value.state.messages == len(BODIES) - 1


@pytest.mark.both
async def test_a_restore_into_another_name_is_refused_before_anything_is_sent(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await manager.stream_create({"name": "ORDERS", "subjects": ["ORDERS.*"], "storage": "file"})
        await backup(manager, "ORDERS", tmp_path / "b")
        with pytest.raises(UsageError, match="holds stream ORDERS, not COPY"):
            await restore(manager, tmp_path / "b", stream="COPY")


@pytest.mark.both
async def test_data_that_is_damaged_is_refused_by_the_server(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        await backup(manager, "ORDERS", tmp_path / "b")
        await manager.stream_delete("ORDERS")
        data = tmp_path / "b" / "stream.tar.s2"
        whole = data.read_bytes()
        data.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(NatsctlError):
            await restore(manager, tmp_path / "b")
        assert list(await manager.stream_names()) == []


@pytest.mark.both
async def test_consumers_can_be_left_out(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        await backup(manager, "ORDERS", tmp_path / "b", consumers=False)
        await manager.stream_delete("ORDERS")
        await restore(manager, tmp_path / "b")
        assert list(await manager.consumer_names("ORDERS")) == []


async def test_a_server_that_falls_silent_breaks_the_backup_off(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("natsctl.client.backup.MIN_IDLE_S", 0.1)
    fake.answers["$JS.API.STREAM.SNAPSHOT.ORDERS"] = b'{"config":{"name":"ORDERS"},"state":{}}'
    async with fake.running(), await _connect(fake.url) as connection:
        connection.timeout_s = 0.1
        with pytest.raises(NatsctlError, match=r"broke off after 0 chunks: nothing came for 0\.1s"):
            await backup(Manager(connection), "ORDERS", tmp_path / "out" / "b")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.reference
async def test_the_reference_servers_backup_says_what_it_holds(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        await backup(manager, "ORDERS", tmp_path / "b")
    with open_archive(tmp_path / "b") as archive:
        assert archive.state["messages"] == len(BODIES) - 1


@pytest.mark.reference
async def test_a_stream_moves_between_the_two_servers(server: Any, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "other") as other:
        async with await _connect(server.url) as here, await _connect(other.url) as there:
            await _fill(Manager(here))
            before = await _stored(Manager(here))
            await backup(Manager(here), "ORDERS", tmp_path / "out")
            await restore(Manager(there), tmp_path / "out")
            assert await _stored(Manager(there)) == before
            await Manager(here).stream_delete("ORDERS")
            await backup(Manager(there), "ORDERS", tmp_path / "back.tgz")
            await restore(Manager(here), tmp_path / "back.tgz")
            assert await _stored(Manager(here)) == before
            consumer = (await Manager(here).consumer_info("ORDERS", "NEW")).value
            assert consumer.ack_floor.stream_seq == 3
