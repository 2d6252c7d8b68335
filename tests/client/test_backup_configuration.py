"""Configuration backups in the layout of 2020."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import UsageError
from natsctl.client.backup.configuration import restore_account, save_account
from natsctl.client.manager import Manager
from tests.client.conftest import connected


@pytest.mark.both
async def test_streams_and_durables_are_saved_as_the_documents_of_2020(server: Any, tmp_path: Path) -> None:
    async with await connected(server.url) as connection:
        manager = Manager(connection)
        await manager.stream_create({"name": "ORDERS", "subjects": ["ORDERS.*"], "max_msgs": 5})
        await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit", "max_deliver": 3})
        await manager.consumer_create("ORDERS", {"ack_policy": "none", "inactive_threshold": 60_000_000_000})
        saved = await save_account(manager, tmp_path / "b", data=False, log=lambda text: None)
        assert (saved.streams, saved.consumers) == (["ORDERS"], ["ORDERS > NEW"])
    document = json.loads((tmp_path / "b" / "stream_ORDERS_consumer_NEW.json").read_text())
    content = base64.b64decode(document["configuration"])
    assert document["type"] == "consumer"
    assert document["checksum"] == hashlib.sha256(content).hexdigest()
    configuration = json.loads(content)
    assert (configuration["name"], configuration["stream"]) == ("NEW", "ORDERS")
    assert not any(key.startswith("_nats.") for key in configuration["config"].get("metadata") or {})


@pytest.mark.both
async def test_a_folder_in_use_is_refused(server: Any, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").touch()
    async with await connected(server.url) as connection:
        with pytest.raises(UsageError, match="exists"):
            await save_account(Manager(connection), tmp_path / "b", data=False, log=lambda text: None)


@pytest.mark.both
async def test_what_is_no_backup_is_a_usage_error(server: Any, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "x"}')
    async with await connected(server.url) as connection:
        manager = Manager(connection)
        for source in (tmp_path, tmp_path / "missing"):
            with pytest.raises(UsageError):
                await restore_account(manager, source, update_streams=False, log=lambda text: None)
