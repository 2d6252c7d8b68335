"""Configuration backups in the layout of 2020."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import StorageError, UsageError
from natsctl.client.backup.configuration import restore_account, save_account
from natsctl.client.backup.restore import StreamExistsError
from natsctl.client.connection import Connection
from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings


async def _connect(url: str) -> Connection:
    return await connect(resolve(Settings(url=url), {"HOME": "/nowhere"}), name="test")


async def _make(manager: Manager) -> None:
    await manager.stream_create({"name": "ORDERS", "subjects": ["ORDERS.*"], "max_msgs": 5})
    await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit", "max_deliver": 3})
    await manager.consumer_create("ORDERS", {"ack_policy": "none", "inactive_threshold": 60_000_000_000})


@pytest.mark.both
async def test_streams_and_durables_are_saved_and_come_back(server: Any, tmp_path: Path) -> None:
    said: list[str] = []
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _make(manager)
        folder = tmp_path / "js-backup"
        saved = await save_account(manager, folder, data=False, log=said.append)
        assert (saved.streams, saved.consumers) == (["ORDERS"], ["ORDERS > NEW"])
        assert said == [
            f"Creating JetStream backup into {folder}",
            f"Stream ORDERS to {folder}/stream_ORDERS.json",
            f"Consumer ORDERS > NEW to {folder}/stream_ORDERS_consumer_NEW.json",
            "Configuration backup complete",
        ]
        await manager.stream_delete("ORDERS")
        said.clear()
        await restore_account(manager, folder, update_streams=False, log=said.append)
        assert said[-2:] == ["Restoring Stream ORDERS", "Restoring Consumer ORDERS > NEW"]
        assert (await manager.stream_info("ORDERS")).value.config.max_msgs == 5
        assert (await manager.consumer_info("ORDERS", "NEW")).value.config.max_deliver == 3


@pytest.mark.both
async def test_an_existing_stream_is_changed_only_when_asked(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _make(manager)
        await save_account(manager, tmp_path / "b", data=False, log=lambda text: None)
        await manager.stream_update({"name": "ORDERS", "subjects": ["ORDERS.*"], "max_msgs": 9})
        with pytest.raises(StreamExistsError, match="stream ORDERS exists"):
            await restore_account(manager, tmp_path / "b", update_streams=False, log=lambda text: None)
        assert (await manager.stream_info("ORDERS")).value.config.max_msgs == 9
        said: list[str] = []
        await restore_account(manager, tmp_path / "b", update_streams=True, log=said.append)
        assert "Updating Stream ORDERS configuration" in said
        assert (await manager.stream_info("ORDERS")).value.config.max_msgs == 5


@pytest.mark.both
async def test_a_file_is_the_document_of_2020(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _make(manager)
        await save_account(manager, tmp_path / "b", data=False, log=lambda text: None)
    document = json.loads((tmp_path / "b" / "stream_ORDERS_consumer_NEW.json").read_text())
    content = base64.b64decode(document["configuration"])
    assert document["type"] == "consumer"
    assert document["checksum"] == hashlib.sha256(content).hexdigest()
    configuration = json.loads(content)
    assert (configuration["name"], configuration["stream"]) == ("NEW", "ORDERS")
    assert not any(key.startswith("_nats.") for key in configuration["config"].get("metadata") or {})


@pytest.mark.both
async def test_data_is_saved_beside_the_configuration(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _make(manager)
        saved = await save_account(manager, tmp_path / "b", data=True, log=lambda text: None)
    assert saved.data == ["ORDERS"]
    assert (tmp_path / "b" / "stream_ORDERS.tgz").is_file()


@pytest.mark.both
async def test_a_folder_in_use_is_refused(server: Any, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").touch()
    async with await _connect(server.url) as connection:
        with pytest.raises(UsageError, match="exists"):
            await save_account(Manager(connection), tmp_path / "b", data=False, log=lambda text: None)


@pytest.mark.both
async def test_a_changed_file_is_found_by_its_checksum_before_anything_is_restored(server: Any, tmp_path: Path) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await _make(manager)
        await save_account(manager, tmp_path / "b", data=False, log=lambda text: None)
        await manager.stream_delete("ORDERS")
        path = tmp_path / "b" / "stream_ORDERS_consumer_NEW.json"
        document = json.loads(path.read_text())
        document["configuration"] = base64.b64encode(b'{"name":"EVIL"}').decode()
        path.write_text(json.dumps(document))
        with pytest.raises(StorageError, match="checksum"):
            await restore_account(manager, tmp_path / "b", update_streams=False, log=lambda text: None)
        assert list(await manager.stream_names()) == []


@pytest.mark.both
async def test_what_is_no_backup_is_a_usage_error(server: Any, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "x"}')
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        for source in (tmp_path, tmp_path / "missing"):
            with pytest.raises(UsageError):
                await restore_account(manager, source, update_streams=False, log=lambda text: None)
