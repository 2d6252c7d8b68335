"""Snapshot and restore over the wire, on live servers."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import ApiResponseError, ConflictError, NatsctlError, StorageError
from natsctl.client.backup.discovery import verify
from natsctl.client.backup.restore import OnExisting, Restored, RestoreOptions, restore_stream
from natsctl.client.backup.save import BackupSnapshot, SavedStream, SaveOptions, save_stream
from natsctl.client.backup.transfer import RetryingManager, ignore_progress
from natsctl.client.connection import Connection
from natsctl.client.manager import Manager
from natsctl.client.message import DryRunError
from natsctl.client.messaging import messages
from natsctl.client.messaging.consumers import pull
from natsctl.testing.process import ServerProcess
from tests.client.conftest import connected
from tests.support.servers import managing

BODIES = [os.urandom(400) for _ in range(200)]


async def backup(
    manager: Manager, stream: str, target: Path, *, on_progress: Any = ignore_progress, **options: Any
) -> SavedStream:
    return await save_stream(RetryingManager(manager, retries=0), stream, target, SaveOptions(**options), on_progress)


async def restore(manager: Manager, source: Path, **options: Any) -> Restored:
    return await restore_stream(RetryingManager(manager, retries=0), source, RestoreOptions(**options))


async def _fill(manager: Manager, storage: str = "file") -> None:
    await manager.stream_create({"name": "ORDERS", "subjects": ["ORDERS.*"], "storage": storage})
    await asyncio.gather(*(messages.publish(manager, "ORDERS.new", body, headers={"K": "v"}) for body in BODIES))
    await manager.message_delete("ORDERS", 7)
    await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit"})
    async for message in pull(manager, "ORDERS", "NEW", {"batch": 3, "expires": 30_000_000_000}):
        await messages.acknowledge(manager, message)


@pytest.fixture
async def filled(manager: Manager) -> Manager:
    await _fill(manager)
    return manager


async def _stored(manager: Manager, stream: str = "ORDERS") -> list[tuple[int, str, bytes | None, bytes | None, str]]:
    found = []
    for seq in (1, 6, 8, 100, 200):
        message = (await manager.message_get(stream, seq=seq)).value.message
        found.append((message.seq, message.subject, message.hdrs, message.data, message.time))
    return found


@pytest.mark.both
@pytest.mark.parametrize(
    ("name", "storage", "replay"),
    [("ORDERS", "file", False), ("ORDERS.tgz", "file", False), ("b", "memory", False), ("b", "memory", True)],
)
async def test_a_stream_comes_back_with_messages_gaps_and_consumers(
    manager: Manager, tmp_path: Path, name: str, storage: str, replay: bool
) -> None:
    await _fill(manager, storage)
    before = await _stored(manager)
    seen: list[int] = []
    made = await backup(
        manager, "ORDERS", tmp_path / name, replay=replay, on_progress=lambda p: seen.append(p.archive_bytes)
    )
    assert seen[0] == 0 < made.archive_bytes
    assert replay or seen[-1] == made.archive_bytes
    assert (made.archive, made.messages) == (2, len(BODIES) - 1)
    assert made.method == ("replay" if replay else "snapshot")
    await manager.stream_delete("ORDERS")
    restored = await restore(manager, tmp_path / name, stream="ORDERS")
    assert restored.answer.value.state.messages == len(BODIES) - 1
    assert await _stored(manager) == before
    consumer = (await manager.consumer_info("ORDERS", "NEW")).value
    assert (consumer.ack_floor.stream_seq, consumer.num_pending) == (3, len(BODIES) - 4)


@pytest.mark.both
@pytest.mark.parametrize("archive", [1, 2])
async def test_a_stream_comes_back_under_another_name_beside_itself(
    filled: Manager, tmp_path: Path, archive: int
) -> None:
    from natsctl.client.backup.selection import Edit, edit_backup

    before = await _stored(filled)
    await backup(filled, "ORDERS", tmp_path / "b")
    edit_backup(tmp_path / "b", tmp_path / "of", Edit(version=archive))
    with pytest.raises(ConflictError) as raised:
        await restore(filled, tmp_path / "of", stream="COPY")
    assert (raised.value.exit_code, "--subjects" in raised.value.hint) == (4, True)
    done = await restore(filled, tmp_path / "of", stream="COPY", subjects=("COPY.*",))
    assert (done.action, done.stream, bool(done.warnings)) == ("restored", "COPY", archive == 1)
    assert await _stored(filled, "COPY") == before
    consumer = (await filled.consumer_info("COPY", "NEW")).value
    assert (consumer.ack_floor.stream_seq, consumer.num_pending) == (3, len(BODIES) - 4)


@pytest.mark.both
async def test_what_can_not_be_replaced_is_as_it_was(
    filled: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backup(filled, "ORDERS", tmp_path / "out" / "b")
    await filled.stream_update({"name": "ORDERS", "subjects": ["ORDERS.*"], "description": "the old one"})
    before = await _stored(filled)
    wrong = {"name": "ORDERS", "subjects": ["a..b"]}
    with pytest.raises(ApiResponseError):
        await restore(filled, tmp_path / "out" / "b", config=wrong, on_existing=OnExisting.REPLACE)
    assert (await filled.stream_info("ORDERS")).value.config.description == "the old one"
    assert await _stored(filled) == before
    consumer = (await filled.consumer_info("ORDERS", "NEW")).value
    assert consumer.ack_floor.stream_seq == 3
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["b"]


@pytest.mark.both
async def test_a_damaged_backup_replaces_nothing(filled: Manager, tmp_path: Path) -> None:
    await backup(filled, "ORDERS", tmp_path / "b")
    data = tmp_path / "b" / "stream.arc.s2"
    data.write_bytes(data.read_bytes()[:-40])
    created = (await filled.stream_info("ORDERS")).value.created
    with pytest.raises(StorageError, match="is damaged"):
        await restore(filled, tmp_path / "b", on_existing=OnExisting.REPLACE)
    assert (await filled.stream_info("ORDERS")).value.created == created


@pytest.mark.both
async def test_a_replay_crosses_wide_gaps_at_once(manager: Manager, tmp_path: Path) -> None:
    await manager.stream_create({"name": "GAPS", "subjects": ["g"], "max_msgs_per_subject": -1})
    await asyncio.gather(*(messages.publish(manager, "g", b"x") for _ in range(100)))
    await asyncio.gather(*(manager.message_delete("GAPS", seq) for seq in range(2, 100)))
    saved = await backup(manager, "GAPS", tmp_path / "b", replay=True)
    assert (saved.messages, saved.first_seq, saved.last_seq) == (2, 1, 100)
    await manager.stream_delete("GAPS")
    done = await restore(manager, tmp_path / "b")
    assert done.answer.value.state.last_seq == 100


@pytest.mark.both
async def test_a_dry_run_tells_what_would_be_made_and_replaced(filled: Manager, tmp_path: Path) -> None:
    await backup(filled, "ORDERS", tmp_path / "b")
    filled.connection.dry_run = True
    with pytest.raises(DryRunError) as raised:
        await restore(filled, tmp_path / "b", on_existing=OnExisting.REPLACE)
    subjects = [planned.subject for planned in raised.value.planned]
    assert subjects == ["$JS.API.STREAM.DELETE.ORDERS", "$JS.API.STREAM.RESTORE.ORDERS"]
    assert raised.value.effect["replaces_messages"] == len(BODIES) - 1
    with pytest.raises(DryRunError) as raised:
        await backup(filled, "ORDERS", tmp_path / "other")
    assert raised.value.effect["messages"] == len(BODIES) - 1
    assert not (tmp_path / "other").exists()


@pytest.mark.both
async def test_consumers_can_be_left_out(filled: Manager, tmp_path: Path) -> None:
    await backup(filled, "ORDERS", tmp_path / "b", consumers=False)
    await filled.stream_delete("ORDERS")
    await restore(filled, tmp_path / "b")
    assert list(await filled.consumer_names("ORDERS")) == []


async def test_a_server_that_falls_silent_breaks_the_backup_off(fake: Any, tmp_path: Path) -> None:
    fake.answers["$JS.API.STREAM.SNAPSHOT.ORDERS"] = b'{"config":{"name":"ORDERS"},"state":{}}'
    async with fake.running(), await connected(fake.url) as connection:
        with pytest.raises(NatsctlError, match=r"broke off after 0 chunks: nothing came for 0\.1s"):
            await backup(Manager(connection), "ORDERS", tmp_path / "out" / "b", idle_s=0.1)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("lags", [False, True])
async def test_consumers_of_a_cluster_are_saved_as_their_leaders_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lags: bool
) -> None:
    # A cluster before 2.15: version 1, with the consumers that the stream's leader has a copy of, which may lag.
    take = BackupSnapshot.take

    async def of_a_leader(self: BackupSnapshot, manager: Manager) -> tuple[dict[str, Any], dict[str, Any]]:
        self._options = SaveOptions(consumers=lags)
        config, state = await take(self, manager)
        if lags:
            async for message in pull(manager, "ORDERS", "NEW", {"batch": 2, "expires": 30_000_000_000}):
                await messages.acknowledge(manager, message)
        return config, {**state, "consumer_count": int(lags)}

    monkeypatch.setattr(BackupSnapshot, "take", of_a_leader)
    said: list[str] = []
    with ServerProcess(tmp_path / "server", "natsctl", "--archive_version", "1") as server:
        async with managing(server.url) as manager:
            await _fill(manager)
            before = await _stored(manager)
            monkeypatch.setattr(Connection, "info", {**manager.connection.info, "cluster": "C"})
            saved = await save_stream(RetryingManager(manager, say=said.append), "ORDERS", tmp_path / "b")
            assert (saved.consumers, saved.archive, "NEW" in "".join(said)) == (1, 1, True)
            assert verify(tmp_path / "b").whole
            await manager.stream_delete("ORDERS")
            await restore_stream(RetryingManager(manager), tmp_path / "b")
            assert await _stored(manager) == before
            floor = (await manager.consumer_info("ORDERS", "NEW")).value.ack_floor
            assert floor.stream_seq == (5 if lags else 3)
            assert ("brought up" in "".join(said), "added" in "".join(said)) == (lags, not lags)
