"""Streams replaced with their messages, and what a later run makes of a replacement that was cut short; on servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from natsctl.api import endpoints
from natsctl.api.catalogue import error
from natsctl.api.errors import ApiFailure, NatsctlError
from natsctl.client.backup.attempts import Lifeline
from natsctl.client.backup.send import Sending
from natsctl.client.manager import Manager
from natsctl.client.messaging import messages
from natsctl.client.messaging.pull import pull
from natsctl.plan.apply import keeping
from natsctl.plan.apply.carry import ApplyOptions, carry_out, preview
from natsctl.plan.apply.keeping import Keeping
from natsctl.plan.apply.leftovers import PREFIX
from natsctl.plan.apply.recovery import pending, recover
from natsctl.plan.apply.safekeeping import Safekeeping, begin, found_in
from natsctl.plan.change import Action, Change, Plan
from natsctl.plan.labels import without_server_made
from natsctl.testing.process import ServerProcess

pytestmark = pytest.mark.both

LIVE = {"name": "ORDERS", "subjects": ["ORDERS.*"], "storage": "file"}
WANTED = {"name": "ORDERS", "subjects": ["ORDERS.*"], "storage": "memory"}
COUNT = 50
ACKED = 7


@pytest.fixture
async def manager(
    server: ServerProcess, connected: Callable[[str], AbstractAsyncContextManager[Manager]]
) -> AsyncIterator[Manager]:
    """A connection to a server with ORDERS: `COUNT` messages, of which the consumer NEW has acknowledged `ACKED`."""
    async with connected(server.url) as manager:
        await manager.stream_create(LIVE)
        await asyncio.gather(*(messages.publish(manager, "ORDERS.new", b"%d" % n) for n in range(COUNT)))
        await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit"})
        async for message in pull(manager, "ORDERS", "NEW", {"batch": ACKED, "expires": 30_000_000_000}):
            await manager.connection.request(message.reply, b"+ACK")
        yield manager


async def replacement(manager: Manager, config: dict[str, Any] = WANTED) -> Plan:
    before = without_server_made((await manager.stream_info("ORDERS")).raw["config"])
    change = Change(action=Action.REPLACE, kind="Stream", stream="ORDERS", config=config, before=before)
    return Plan(owner="default", changes=[change], keep_messages=True)


async def saved(manager: Manager, folder: Path, config: dict[str, Any] = WANTED) -> Safekeeping:
    """A replacement as far as its backup."""
    doing = Keeping(Lifeline(manager), folder)
    change = (await replacement(manager, config)).changes[0]
    marker = await doing._marker(change, (await manager.stream_info("ORDERS")).raw)
    kept = begin(folder, marker)
    await doing._save(kept)
    return kept


async def is_whole(manager: Manager, storage: str) -> None:
    info = (await manager.stream_info("ORDERS")).raw
    assert (info["config"]["storage"], info["config"]["subjects"]) == (storage, LIVE["subjects"])
    assert (info["state"]["messages"], info["state"]["last_seq"]) == (COUNT, COUNT)
    consumer = (await manager.consumer_info("ORDERS", "NEW")).raw
    assert consumer["ack_floor"]["stream_seq"] == ACKED
    assert consumer["num_pending"] == COUNT - ACKED


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(f"{PREFIX}*")]


async def test_messages_and_consumers_come_through_a_replacement_and_nothing_is_left(
    manager: Manager, tmp_path: Path
) -> None:
    plan = await replacement(manager)
    outcome = await carry_out(manager, plan, ApplyOptions(backup_folder=tmp_path))
    assert [(one.error, one.detail, one.warnings) for one in outcome.results] == [(None, f"kept {COUNT} messages", [])]
    await is_whole(manager, "memory")
    assert left(tmp_path) == []
    await messages.publish(manager, "ORDERS.new", b"more")


async def test_the_backup_stays_where_that_is_asked_and_nobody_takes_it_for_an_interrupted_replacement(
    manager: Manager, tmp_path: Path
) -> None:
    plan = await replacement(manager)
    outcome = await carry_out(manager, plan, ApplyOptions(backup_folder=tmp_path, keep_backup=True))
    (name,) = left(tmp_path)
    assert f"the backup is in {tmp_path / name / 'stream'}" in outcome.results[0].detail
    assert await recover(Lifeline(manager), tmp_path) == []
    assert left(tmp_path) == [name]


async def test_a_configuration_that_the_server_refuses_leaves_the_stream_as_it_was(
    manager: Manager, tmp_path: Path
) -> None:
    plan = await replacement(manager, {**WANTED, "num_replicas": 7})
    outcome = await carry_out(manager, plan, ApplyOptions(backup_folder=tmp_path))
    assert outcome.results[0].error is not None
    await is_whole(manager, "file")
    assert left(tmp_path) == []
    await messages.publish(manager, "ORDERS.new", b"more")


async def test_a_restore_that_the_server_fails_once_is_begun_again(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, failures = Sending.send, [ApiFailure(error(10062, err="no such folder"))]

    async def fails_once(sending: Sending, manager: Manager) -> Any:
        if failures:
            raise failures.pop()
        return await send(sending, manager)

    monkeypatch.setattr(Sending, "send", fails_once)
    outcome = await carry_out(manager, await replacement(manager), ApplyOptions(backup_folder=tmp_path))
    assert outcome.results[0].error is None
    await is_whole(manager, "memory")


async def test_a_dry_run_names_the_requests_and_writes_nothing(manager: Manager, tmp_path: Path) -> None:
    plan = await replacement(manager)
    manager.connection.dry_run = True
    planned = await preview(manager, plan, ApplyOptions(backup_folder=tmp_path))
    manager.connection.dry_run = False
    assert [one.subject.removeprefix("$JS.API.STREAM.") for one in planned] == [
        "UPDATE.ORDERS",
        "SNAPSHOT.ORDERS",
        "DELETE.ORDERS",
        "RESTORE.ORDERS",
    ]
    assert list(tmp_path.glob(f"{PREFIX}*")) == []
    await is_whole(manager, "file")


async def test_ctrl_c_while_it_is_saved_leaves_the_stream_as_it_was(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*arguments: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(keeping, "save_stream", interrupted)
    outcome = await carry_out(manager, await replacement(manager), ApplyOptions(backup_folder=tmp_path))
    assert outcome.results[0].error is not None
    await is_whole(manager, "file")
    assert left(tmp_path) == []


async def test_while_a_stream_is_saved_nobody_gets_an_ack_for_what_would_be_lost(
    manager: Manager, tmp_path: Path
) -> None:
    kept = await saved(manager, tmp_path)
    with pytest.raises(NatsctlError):
        await messages.publish(manager, "ORDERS.new", b"lost")
    kept.release()
    (told,) = await recover(Lifeline(manager), tmp_path)
    assert "it takes messages again as before" in told
    await messages.publish(manager, "ORDERS.new", b"kept")


async def test_killed_before_the_removal_the_stream_gets_its_subjects_back(manager: Manager, tmp_path: Path) -> None:
    (await saved(manager, tmp_path)).release()
    assert "interrupted" in pending(tmp_path)[0]
    await recover(Lifeline(manager), tmp_path)
    await is_whole(manager, "file")
    assert left(tmp_path) == []


async def test_killed_after_the_removal_the_stream_is_restored_under_the_new_configuration(
    manager: Manager, tmp_path: Path
) -> None:
    (await saved(manager, tmp_path)).release()
    await manager.stream_delete("ORDERS")
    (told,) = await recover(Lifeline(manager), tmp_path)
    assert f"restored with {COUNT} messages, under its new configuration" in told
    await is_whole(manager, "memory")
    assert left(tmp_path) == []


async def test_a_new_configuration_that_is_refused_then_brings_the_old_stream_back(
    manager: Manager, tmp_path: Path
) -> None:
    (await saved(manager, tmp_path, {**WANTED, "num_replicas": 7})).release()
    await manager.stream_delete("ORDERS")
    (told,) = await recover(Lifeline(manager), tmp_path)
    assert "as it was before" in told
    await is_whole(manager, "file")


async def test_a_half_written_backup_is_told_and_removed(manager: Manager, tmp_path: Path) -> None:
    kept = await saved(manager, tmp_path)
    kept.copy.rename(kept.folder / ".natsctl-x.part")
    kept.release()
    await manager.stream_update(LIVE)
    (told,) = await recover(Lifeline(manager), tmp_path)
    assert "a half-written backup was removed" in told
    assert left(tmp_path) == []
    await is_whole(manager, "file")


async def test_what_somebody_else_has_made_meanwhile_is_left_alone_and_the_backup_stays(
    manager: Manager, tmp_path: Path
) -> None:
    kept = await saved(manager, tmp_path)
    kept.release()
    await manager.stream_delete("ORDERS")
    await manager.stream_create(LIVE)
    (told,) = await recover(Lifeline(manager), tmp_path)
    assert "somebody else has made ORDERS meanwhile" in told
    assert kept.is_saved
    assert (await manager.stream_info("ORDERS")).raw["state"]["messages"] == 0
    assert await recover(Lifeline(manager), tmp_path) == []


async def test_killed_when_all_was_done_the_backup_is_removed(manager: Manager, tmp_path: Path) -> None:
    kept = await saved(manager, tmp_path)
    await Keeping(Lifeline(manager), tmp_path)._restore(kept)
    kept.release()
    (told,) = await recover(Lifeline(manager), tmp_path)
    assert "when it was done" in told
    assert left(tmp_path) == []
    await is_whole(manager, "memory")


async def test_a_folder_without_a_marker_is_removed_and_nothing_else_is(manager: Manager, tmp_path: Path) -> None:
    """The one of a process that ended before it had begun, and the one that it was removing."""
    unbegun, ending, other = (tmp_path / f"{PREFIX}{name}-1" for name in "ABC")
    for folder, name in ((unbegun, ".replacement.json"), (ending, ".replacement.json"), (other, "mine.txt")):
        folder.mkdir()
        (folder / name).write_text("")
    (ending / "stream").mkdir()
    (ending / "stream" / "backup.json").write_text("{}")
    assert await recover(Lifeline(manager), tmp_path) == []
    assert left(tmp_path) == [other.name]


async def test_a_replacement_that_another_process_works_on_is_none_of_ours(manager: Manager, tmp_path: Path) -> None:
    kept = await saved(manager, tmp_path)
    assert list(found_in(tmp_path)) == []
    kept.discard()


async def test_a_folder_of_another_server_is_told_and_left_unless_it_is_named(manager: Manager, tmp_path: Path) -> None:
    kept = await saved(manager, tmp_path)
    text = (kept.folder / "replacement.json").read_text()
    for name in ("server_id", "server_name"):
        text = text.replace(str(manager.connection.info[name]), "ELSEWHERE")
    (kept.folder / "replacement.json").write_text(text.replace("127.0.0.1", "elsewhere"))
    kept.release()
    (told,) = await recover(Lifeline(manager), tmp_path)
    assert "on another server" in told
    (told,) = await recover(Lifeline(manager), kept.folder)
    assert "takes messages again" in told
    await is_whole(manager, "file")


async def test_a_restore_that_a_kill_cut_off_does_not_keep_the_next_one_out(manager: Manager, tmp_path: Path) -> None:
    """The server still waits for the rest of what the killed process was sending."""
    (await saved(manager, tmp_path)).release()
    await manager.stream_delete("ORDERS")
    await manager.requests.ask(endpoints.STREAM_RESTORE, "ORDERS", body={"config": WANTED, "state": {}})
    (told,) = await recover(Lifeline(manager), tmp_path)
    assert "restored with" in told


async def test_a_consumer_that_did_not_come_back_is_told_and_the_backup_stays(manager: Manager, tmp_path: Path) -> None:
    kept = await saved(manager, tmp_path)
    answer, _ = await Keeping(Lifeline(manager), tmp_path)._restore(kept)
    await manager.consumer_delete("ORDERS", "NEW")
    lost = await keeping.lost_consumers(Lifeline(manager), kept.marker)
    assert lost == ["consumer NEW did not come back"]
    await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit"})
    behind = await keeping.lost_consumers(Lifeline(manager), kept.marker)
    assert behind == [f"consumer NEW was at message {ACKED}, it is at 0"]
    done = Keeping(Lifeline(manager), tmp_path)._ended(kept, answer, behind, [])
    assert done.warnings == tuple(behind)
    assert str(kept.copy) in done.detail
    assert kept.copy.is_dir()


async def test_a_stream_that_somebody_else_replaces_is_not_changed(manager: Manager, tmp_path: Path) -> None:
    """Another machine would give it its subjects back while it is saved: messages would get acks and be lost."""
    kept = await saved(manager, tmp_path)
    plan = await replacement(manager)
    for action in (Action.UPDATE, Action.REPLACE, Action.DELETE):
        plan.changes[0].action = action
        outcome = await carry_out(manager, plan, ApplyOptions(backup_folder=tmp_path / "other"))
        assert outcome.results[0].error is not None
        assert "is being replaced, or that was interrupted" in outcome.results[0].error.description
    await Keeping(Lifeline(manager), tmp_path)._take_back(kept)
    await is_whole(manager, "file")


async def test_messages_that_come_in_spite_of_it_keep_a_stream_from_being_replaced(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = keeping.save_stream

    async def disturbed(*arguments: Any) -> None:
        await save(*arguments)
        await manager.stream_update(LIVE)
        await messages.publish(manager, "ORDERS.new", b"late")

    monkeypatch.setattr(keeping, "save_stream", disturbed)
    outcome = await carry_out(manager, await replacement(manager), ApplyOptions(backup_folder=tmp_path))
    assert outcome.results[0].error is not None
    assert "somebody else has changed ORDERS while it was saved" in outcome.results[0].error.description
    assert (await manager.stream_info("ORDERS")).raw["state"]["messages"] == COUNT + 1
    assert left(tmp_path) == []
