"""Snapshot and restore over the wire, on live servers."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import ApiResponseError, NatsctlError, StorageError
from natsctl.client.backup.discovery import verify
from natsctl.client.backup.reader import open_backup
from natsctl.client.backup.restore import (
    OnExisting,
    Restored,
    RestoreOptions,
    StreamExistsError,
    SubjectOverlapError,
    restore_stream,
)
from natsctl.client.backup.save import SavedStream, SaveOptions, Snapshot, save_stream
from natsctl.client.backup.transfer import Progress, RetryingManager, ignore_progress
from natsctl.client.connection import Connection
from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.message import DryRunError
from natsctl.client.messaging import messages
from natsctl.client.messaging.consumers import pull
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.testing.process import ServerProcess

BODIES = [os.urandom(400) for _ in range(400)]


async def _connect(url: str) -> Connection:
    return await connect(resolve(Settings(url=url), {"HOME": "/nowhere"}), name="test")


async def backup(
    manager: Manager, stream: str, target: Path, *, on_progress: Any = ignore_progress, **options: Any
) -> SavedStream:
    return await save_stream(RetryingManager(manager, retries=0), stream, target, SaveOptions(**options), on_progress)


async def restore(manager: Manager, source: Path, **options: Any) -> Restored:
    return await restore_stream(RetryingManager(manager, retries=0), source, RestoreOptions(**options))


async def _fill(manager: Manager, storage: str = "file") -> None:
    await manager.stream_create({"name": "ORDERS", "subjects": ["ORDERS.*"], "storage": storage})
    for start in range(0, len(BODIES), 200):
        batch = BODIES[start : start + 200]
        await asyncio.gather(*(messages.publish(manager, "ORDERS.new", body, headers={"K": "v"}) for body in batch))
    await manager.message_delete("ORDERS", 7)
    await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit"})
    async for message in pull(manager, "ORDERS", "NEW", {"batch": 3, "expires": 30_000_000_000}):
        await messages.acknowledge(manager, message)


async def _stored(manager: Manager, stream: str = "ORDERS") -> list[tuple[int, str, bytes | None, bytes | None, str]]:
    found = []
    for seq in (1, 6, 8, 200, 400):
        message = (await manager.message_get(stream, seq=seq)).value.message
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
        assert restored.answer.value.state.messages == len(BODIES) - 1
        assert await _stored(manager) == before
        consumer = (await manager.consumer_info("ORDERS", "NEW")).value
        assert (consumer.ack_floor.stream_seq, consumer.num_pending) == (3, len(BODIES) - 4)


@pytest.mark.both
async def test_a_failed_backup_leaves_nothing(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        with pytest.raises(ApiResponseError):
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
        with pytest.raises(StreamExistsError) as raised:
            await restore(manager, tmp_path / "b")
        assert raised.value.exit_code == 4
        assert (await manager.stream_info("ORDERS")).value.state.messages == len(BODIES) - 1


@pytest.mark.both
@pytest.mark.parametrize("archive", [1, 2])
async def test_a_stream_comes_back_under_another_name_beside_itself(server: Any, tmp_path: Path, archive: int) -> None:
    from natsctl.client.backup.selection import Edit, edit_backup

    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        before = await _stored(manager)
        await backup(manager, "ORDERS", tmp_path / "b")
        edit_backup(tmp_path / "b", tmp_path / "of", Edit(version=archive))
        with pytest.raises(SubjectOverlapError) as raised:
            await restore(manager, tmp_path / "of", stream="COPY")
        assert (raised.value.exit_code, "--subjects" in raised.value.hint) == (4, True)
        done = await restore(manager, tmp_path / "of", stream="COPY", subjects=("COPY.*",))
        assert (done.action, done.stream, bool(done.warnings)) == ("restored", "COPY", archive == 1)
        assert await _stored(manager, "COPY") == before
        consumer = (await manager.consumer_info("COPY", "NEW")).value
        assert (consumer.ack_floor.stream_seq, consumer.num_pending) == (3, len(BODIES) - 4)


@pytest.mark.both
async def test_an_existing_stream_is_left_alone_or_replaced_as_told(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        await backup(manager, "ORDERS", tmp_path / "out" / "b")
        await manager.stream_purge("ORDERS")
        done = await restore(manager, tmp_path / "out" / "b", on_existing=OnExisting.SKIP)
        assert (done.action, (await manager.stream_info("ORDERS")).value.state.messages) == ("skipped", 0)
        done = await restore(manager, tmp_path / "out" / "b", on_existing=OnExisting.REPLACE)
        assert (done.action, done.answer.value.state.messages) == ("replaced", len(BODIES) - 1)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["b"]


@pytest.mark.both
async def test_what_can_not_be_replaced_is_as_it_was(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        await backup(manager, "ORDERS", tmp_path / "out" / "b")
        await manager.stream_update({"name": "ORDERS", "subjects": ["ORDERS.*"], "description": "the old one"})
        before = await _stored(manager)
        wrong = {"name": "ORDERS", "subjects": ["a..b"]}
        with pytest.raises(ApiResponseError):
            await restore(manager, tmp_path / "out" / "b", config=wrong, on_existing=OnExisting.REPLACE)
        assert (await manager.stream_info("ORDERS")).value.config.description == "the old one"
        assert await _stored(manager) == before
        consumer = (await manager.consumer_info("ORDERS", "NEW")).value
        assert consumer.ack_floor.stream_seq == 3
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["b"]


@pytest.mark.both
async def test_a_damaged_backup_replaces_nothing(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        await backup(manager, "ORDERS", tmp_path / "b")
        data = tmp_path / "b" / "stream.arc.s2"
        data.write_bytes(data.read_bytes()[:-40])
        created = (await manager.stream_info("ORDERS")).value.created
        with pytest.raises(StorageError, match="is damaged"):
            await restore(manager, tmp_path / "b", on_existing=OnExisting.REPLACE)
        assert (await manager.stream_info("ORDERS")).value.created == created


@pytest.mark.both
@pytest.mark.parametrize("replay", [False, True])
async def test_a_stream_in_memory_is_saved_and_comes_back(server: Any, tmp_path: Path, replay: bool) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager, "memory")
        before = await _stored(manager)
        saved = await backup(manager, "ORDERS", tmp_path / "b", replay=replay)
        assert (saved.archive, saved.messages) == (2, len(BODIES) - 1)
        assert saved.method == ("replay" if replay else "snapshot")
        await manager.stream_delete("ORDERS")
        await restore(manager, tmp_path / "b")
        assert await _stored(manager) == before
        consumer = (await manager.consumer_info("ORDERS", "NEW")).value
        assert (consumer.ack_floor.stream_seq, consumer.num_pending) == (3, len(BODIES) - 4)


@pytest.mark.both
async def test_a_replay_crosses_wide_gaps_at_once(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await manager.stream_create({"name": "GAPS", "subjects": ["g"], "max_msgs_per_subject": -1})
        for _ in range(300):
            await messages.publish(manager, "g", b"x")
        for seq in range(2, 300):
            await manager.message_delete("GAPS", seq)
        saved = await backup(manager, "GAPS", tmp_path / "b", replay=True)
        assert (saved.messages, saved.first_seq, saved.last_seq) == (2, 1, 300)
        await manager.stream_delete("GAPS")
        done = await restore(manager, tmp_path / "b")
        assert done.answer.value.state.last_seq == 300


@pytest.mark.both
async def test_a_dry_run_tells_what_would_be_made_and_replaced(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        await backup(manager, "ORDERS", tmp_path / "b")
        connection.dry_run = True
        with pytest.raises(DryRunError) as raised:
            await restore(manager, tmp_path / "b", on_existing=OnExisting.REPLACE)
        subjects = [planned.subject for planned in raised.value.planned]
        assert subjects == ["$JS.API.STREAM.DELETE.ORDERS", "$JS.API.STREAM.RESTORE.ORDERS"]
        assert raised.value.effect["replaces_messages"] == len(BODIES) - 1
        with pytest.raises(DryRunError) as raised:
            await backup(manager, "ORDERS", tmp_path / "other")
        assert raised.value.effect["messages"] == len(BODIES) - 1
    assert not (tmp_path / "other").exists()


@pytest.mark.both
async def test_data_that_is_damaged_is_refused_by_the_server(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        await backup(manager, "ORDERS", tmp_path / "b")
        await manager.stream_delete("ORDERS")
        data = tmp_path / "b" / "stream.arc.s2"
        whole = data.read_bytes()
        data.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(NatsctlError):
            await restore(manager, tmp_path / "b", stream="AGAIN")  # the folder of ORDERS may still be in removal
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


async def test_a_server_that_falls_silent_breaks_the_backup_off(fake: Any, tmp_path: Path) -> None:
    fake.answers["$JS.API.STREAM.SNAPSHOT.ORDERS"] = b'{"config":{"name":"ORDERS"},"state":{}}'
    async with fake.running(), await _connect(fake.url) as connection:
        with pytest.raises(NatsctlError, match=r"broke off after 0 chunks: nothing came for 0\.1s"):
            await backup(Manager(connection), "ORDERS", tmp_path / "out" / "b", idle_s=0.1)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.reference
async def test_the_reference_servers_backup_says_what_it_holds(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        await backup(manager, "ORDERS", tmp_path / "b")
    with open_backup(tmp_path / "b") as archive:
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


@pytest.mark.both
async def test_less_than_was_saved_is_told_by_its_cause(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _fill(manager)
        await backup(manager, "ORDERS", tmp_path / "b")
        config = dict((await manager.stream_info("ORDERS")).raw["config"])
        await manager.stream_delete("ORDERS")
        done = await restore(manager, tmp_path / "b", config={**config, "max_msgs": 10})
        assert (done.answer.value.state.messages, "its limits" in done.warnings[0]) == (10, True)
        await manager.stream_delete("ORDERS")
        meta = tmp_path / "b" / "backup.json"
        said = json.loads(meta.read_text())
        said["state"]["messages"] += 1
        (tmp_path / "b" / "manifest.json").unlink()
        meta.write_text(json.dumps(said))
        with pytest.raises(NatsctlError, match=r"messages 399 instead of 400|message count|incomplete"):
            await restore(manager, tmp_path / "b", stream="AGAIN")  # the folder of ORDERS may still be in removal


@pytest.mark.parametrize("lags", [False, True])
async def test_consumers_of_a_cluster_are_saved_as_their_leaders_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lags: bool
) -> None:
    # A cluster before 2.15: version 1, with the consumers that the stream's leader has a copy of, which may lag.
    take = Snapshot.take

    async def of_a_leader(self: Snapshot, manager: Manager) -> tuple[dict[str, Any], dict[str, Any]]:
        self._options = SaveOptions(consumers=lags)
        config, state = await take(self, manager)
        if lags:
            async for message in pull(manager, "ORDERS", "NEW", {"batch": 2, "expires": 30_000_000_000}):
                await messages.acknowledge(manager, message)
        return config, {**state, "consumer_count": int(lags)}

    monkeypatch.setattr(Snapshot, "take", of_a_leader)
    said: list[str] = []
    with ServerProcess(tmp_path / "server", "natsctl", "--archive_version", "1") as server:
        async with await _connect(server.url) as connection:
            manager = Manager(connection)
            await _fill(manager)
            before = await _stored(manager)
            monkeypatch.setattr(Connection, "info", {**connection.info, "cluster": "C"})
            saved = await save_stream(RetryingManager(manager, say=said.append), "ORDERS", tmp_path / "b")
            assert (saved.consumers, saved.archive, "NEW" in "".join(said)) == (1, 1, True)
            assert verify(tmp_path / "b").whole
            await manager.stream_delete("ORDERS")
            await restore_stream(RetryingManager(manager), tmp_path / "b")
            assert await _stored(manager) == before
            floor = (await manager.consumer_info("ORDERS", "NEW")).value.ack_floor
            assert floor.stream_seq == (5 if lags else 3)
            assert ("brought up" in "".join(said), "added" in "".join(said)) == (lags, not lags)
