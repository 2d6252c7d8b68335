"""Backups of whole accounts, side by side with nothing left behind, and of configurations in the layout of 2020."""

import asyncio
import base64
import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import UsageError
from natsctl.client.backup.account_backup import Overall, restore_account_data, save_account_data
from natsctl.client.backup.configuration import restore_account, save_account
from natsctl.client.backup.restore import RestoreOptions
from natsctl.client.backup.save import SaveOptions
from natsctl.client.backup.transfer import RetryingManager, TransferProgress
from natsctl.client.manager import Manager
from natsctl.client.messaging import messages

NAMES = ["A", "B", "C", "D", "E"]


async def _fill(manager: Manager) -> None:
    for name in NAMES:
        await manager.stream_create({"name": name, "subjects": [name]})
        await asyncio.gather(*(messages.publish(manager, name, b"x" * 100) for _ in range(20)))


@pytest.mark.both
async def test_the_bar_of_all_streams_only_grows_and_ends_at_the_sum(manager: Manager, tmp_path: Path) -> None:
    seen: list[tuple[float, float]] = []
    await _fill(manager)
    done = await save_account_data(
        RetryingManager(manager), tmp_path / "b", SaveOptions(), parallel=2, on_change=lambda *at: seen.append(at)
    )
    assert [one.stream for one in done.streams] == NAMES
    assert seen[-1][0] == seen[-1][1] == sum(one.bytes for one in done.streams)
    assert all(before[0] <= after[0] for before, after in itertools.pairwise(seen))
    for name in NAMES:
        await manager.stream_delete(name)
    await restore_account_data(RetryingManager(manager), tmp_path / "b", RestoreOptions(), parallel=2)
    assert sorted(await manager.stream_names()) == NAMES


@pytest.mark.both
async def test_an_account_backup_that_is_cancelled_leaves_nothing(manager: Manager, tmp_path: Path) -> None:
    await _fill(manager)
    begun = asyncio.Event()
    saving = save_account_data(
        RetryingManager(manager), tmp_path / "out" / "b", SaveOptions(), parallel=1, on_change=lambda *at: begun.set()
    )
    work = asyncio.ensure_future(saving)
    await begun.wait()
    assert len(list((tmp_path / "out").iterdir())) == 1
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.both
async def test_a_stream_that_goes_meanwhile_is_told_and_the_others_are_saved(manager: Manager, tmp_path: Path) -> None:
    await _fill(manager)
    listed = manager.stream_list

    async def then_gone() -> Any:
        found = await listed()
        await manager.stream_delete("C")
        return found

    manager.stream_list = then_gone  # type: ignore[assignment,method-assign]  # the moment between two requests
    done = await save_account_data(RetryingManager(manager), tmp_path / "b", SaveOptions())
    assert [(one.stream, "not found" in one.error) for one in done.failed] == [("C", True)]
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["A", "B", "D", "E"]


def test_an_archive_that_is_larger_than_its_stream_does_not_pass_its_share() -> None:
    seen: list[tuple[float, float]] = []
    overall = Overall({"A": 100, "B": 300}, lambda *at: seen.append(at))
    overall.step("A")(TransferProgress("A", 50, archive_bytes=25))
    overall.step("A")(TransferProgress("A", 50, archive_bytes=500))
    overall.finished("B")
    assert seen == [(50, 400), (100, 400), (400, 400)]


@pytest.mark.both
async def test_the_other_commands_say_which_one_restores_a_folder(manager: Manager, tmp_path: Path) -> None:
    await _fill(manager)
    await save_account_data(RetryingManager(manager), tmp_path / "b", SaveOptions())
    for path, command in ((tmp_path / "b", "account restore"), (tmp_path / "b" / "A", "stream restore")):
        with pytest.raises(UsageError) as raised:
            await restore_account(manager, path, update_streams=False, log=lambda text: None)
        assert command in raised.value.hint


@pytest.mark.both
async def test_streams_and_durables_are_saved_as_the_documents_of_2020(manager: Manager, tmp_path: Path) -> None:
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
async def test_a_folder_in_use_is_refused(manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").touch()
    with pytest.raises(UsageError, match="exists"):
        await save_account(manager, tmp_path / "b", data=False, log=lambda text: None)


@pytest.mark.both
async def test_what_is_no_backup_is_a_usage_error(manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "x"}')
    for source in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError):
            await restore_account(manager, source, update_streams=False, log=lambda text: None)
