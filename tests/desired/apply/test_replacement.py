"""Streams replaced with their messages, and what a later run makes of a replacement that was cut short; on servers."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest

from natsctl.api import endpoints
from natsctl.api.errors import ConflictError, NatsctlError
from natsctl.client.backup.restore import RestoreTransfer
from natsctl.client.backup.transfer import RetryingManager, TransferInterruptedError
from natsctl.client.connection import Connection
from natsctl.client.manager import Manager
from natsctl.client.messaging import messages
from natsctl.client.messaging.consumers import pull
from natsctl.desired.apply import holding_stream as holding_module
from natsctl.desired.apply import recovery, replacement
from natsctl.desired.apply.apply import ApplyOptions, apply_plan, preview
from natsctl.desired.apply.holding_stream import Heartbeat, Holding, holding_name, is_at_work, names_of
from natsctl.desired.apply.recovery import COPY, finish, recover
from natsctl.desired.apply.recovery import WANTED as AS_WANTED
from natsctl.desired.apply.replacement import Replacement
from natsctl.desired.assets import without_server_made
from natsctl.desired.plan import Action, Change, Plan
from natsctl.testing.process import ServerProcess
from tests.support.servers import managing

pytestmark = pytest.mark.both

LIVE = {"name": "ORDERS", "subjects": ["ORDERS.*"], "storage": "file"}
WANTED = {"name": "ORDERS", "subjects": ["ORDERS.*"], "storage": "memory"}
COUNT = 50
ACKED = 7
MAX_REQUESTS = 60


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "AGAIN_AFTER_S", 0.01)
    monkeypatch.setattr(holding_module, "ANSWER_WAIT_S", 0.1)


@pytest.fixture
async def manager(manager: Manager) -> Manager:
    """A manager of a server with ORDERS: `COUNT` messages, of which the consumer NEW has acknowledged `ACKED`."""
    await manager.stream_create(LIVE)
    await asyncio.gather(*(messages.publish(manager, "ORDERS.new", b"%d" % n) for n in range(COUNT)))
    await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit"})
    async for message in pull(manager, "ORDERS", "NEW", {"batch": ACKED, "expires": 30_000_000_000}):
        await manager.connection.request(message.reply, b"+ACK")
    return manager


async def replacement_plan(manager: Manager, config: dict[str, Any] = WANTED) -> Plan:
    before = without_server_made((await manager.stream_info("ORDERS")).raw["config"])
    change = Change(action=Action.REPLACE, kind="Stream", stream="ORDERS", config=config, before=before)
    return Plan(owner="default", changes=[change], keep_messages=True)


async def saved(manager: Manager, config: dict[str, Any] = WANTED) -> Holding:
    """A replacement as far as its holding stream, whose process is gone."""
    doing = Replacement(RetryingManager(manager), Path())
    change = (await replacement_plan(manager, config)).changes[0]
    marker = await doing._marker(change, (await manager.stream_info("ORDERS")).raw)
    holding = Holding(RetryingManager(manager), marker)
    await holding.create()
    with tempfile.TemporaryDirectory() as folder:
        await doing._save(holding, Path(folder) / COPY)
    return holding


async def is_whole(manager: Manager, storage: str) -> None:
    info = (await manager.stream_info("ORDERS")).raw
    assert (info["config"]["storage"], info["config"]["subjects"]) == (storage, LIVE["subjects"])
    assert (info["state"]["messages"], info["state"]["last_seq"]) == (COUNT, COUNT)
    consumer = (await manager.consumer_info("ORDERS", "NEW")).raw
    assert consumer["ack_floor"]["stream_seq"] == ACKED
    assert consumer["num_pending"] == COUNT - ACKED


async def left(manager: Manager) -> list[str]:
    return list(await names_of(manager))


class Killed(BaseException):
    """The end of a process, as far as its client can tell."""


class Dying:
    """Ends the process at one request: before it is sent, or with its answer unheard; none is sent afterwards."""

    def __init__(self, at: int, heard: bool) -> None:
        self.at, self.heard, self.sent = at, heard, 0

    def __enter__(self) -> Dying:
        self._request, self._publish = Connection.request, Connection.publish

        async def request(connection: Connection, *words: Any, **more: Any) -> Any:
            self.sent += 1
            if self.sent > self.at or (self.sent == self.at and self.heard):
                raise Killed
            answer = await self._request(connection, *words, **more)
            if self.sent >= self.at:
                raise Killed
            return answer

        Connection.request = request  # type: ignore[method-assign]
        return self

    def __exit__(self, *exc: object) -> None:
        Connection.request = self._request  # type: ignore[method-assign]


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("heard", [True, False], ids=["before", "after"])
async def test_killed_at_any_request_the_next_run_finishes_it_from_any_machine(
    server: ServerProcess, manager: Manager, heard: bool, step: int
) -> None:
    storages, runs = ("file", "memory"), 0
    for at in range(1, MAX_REQUESTS, step):
        has = (await manager.stream_info("ORDERS")).raw["config"]["storage"]
        config = {**WANTED, "storage": storages[has == "file"]}
        plan = await replacement_plan(manager, config)
        async with managing(server.url) as doomed:
            with Dying(at, heard) as dying, contextlib.suppress(Killed):
                await Replacement(RetryingManager(doomed), Path()).replace(plan.changes[0], (await info(doomed)))
        runs += dying.sent >= at
        if dying.sent < at:
            break
        await recover(RetryingManager(manager))
        await is_whole(manager, (await manager.stream_info("ORDERS")).raw["config"]["storage"])
        assert await left(manager) == [], at
    assert runs > 15 // step
    await messages.publish(manager, "ORDERS.new", b"more")


async def info(manager: Manager) -> dict[str, Any]:
    return (await manager.stream_info("ORDERS")).raw


async def test_messages_and_consumers_come_through_a_replacement_and_nothing_is_left(manager: Manager) -> None:
    plan = await replacement_plan(manager)
    outcome = await apply_plan(manager, plan)
    assert [(one.error, one.detail, one.warnings) for one in outcome.results] == [(None, f"kept {COUNT} messages", [])]
    await is_whole(manager, "memory")
    assert "metadata" not in without_server_made((await info(manager))["config"])
    assert await left(manager) == []
    await messages.publish(manager, "ORDERS.new", b"more")


async def test_a_backup_stays_where_that_is_asked(manager: Manager, tmp_path: Path) -> None:
    plan = await replacement_plan(manager)
    outcome = await apply_plan(manager, plan, ApplyOptions(backup_folder=tmp_path / "kept", keep_backup=True))
    (path,) = (tmp_path / "kept").iterdir()
    assert f"the backup is {path}" in outcome.results[0].detail
    assert await left(manager) == []


async def test_a_configuration_that_the_server_refuses_leaves_the_stream_as_it_was(manager: Manager) -> None:
    outcome = await apply_plan(manager, await replacement_plan(manager, {**WANTED, "num_replicas": 7}))
    assert outcome.results[0].error is not None
    await is_whole(manager, "file")
    assert await left(manager) == []
    await messages.publish(manager, "ORDERS.new", b"more")


async def test_messages_before_the_first_sequence_that_is_wanted_are_kept_or_the_old_stream_is(
    manager: Manager,
) -> None:
    """nats-server restores a stream in memory empty whose first_seq is beyond its messages."""
    outcome = await apply_plan(manager, await replacement_plan(manager, {**WANTED, "first_seq": 1000}))
    found = (await info(manager))["config"]["storage"]
    assert (outcome.results[0].error is None) == (found == "memory")
    await is_whole(manager, found)
    assert await left(manager) == []


async def test_limits_that_the_plan_lowers_may_remove_messages(manager: Manager) -> None:
    outcome = await apply_plan(manager, await replacement_plan(manager, {**WANTED, "max_msgs": 5}))
    assert outcome.results[0].error is None
    state = (await info(manager))["state"]
    assert (state["messages"], state["last_seq"]) == (5, COUNT)


async def test_a_restore_that_breaks_off_once_is_begun_again(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    send, failures = RestoreTransfer.send, [TransferInterruptedError("broken off")]

    async def fails_once(sending: RestoreTransfer, manager: Manager) -> Any:
        if failures:
            raise failures.pop()
        return await send(sending, manager)

    monkeypatch.setattr(RestoreTransfer, "send", fails_once)
    outcome = await apply_plan(manager, await replacement_plan(manager))
    assert outcome.results[0].error is None
    await is_whole(manager, "memory")


async def test_a_dry_run_names_the_requests_and_changes_nothing(manager: Manager) -> None:
    plan = await replacement_plan(manager)
    manager.connection.dry_run = True
    planned = await preview(manager, plan)
    manager.connection.dry_run = False
    holding = holding_name("ORDERS")
    assert [one.subject.removeprefix("$JS.API.STREAM.") for one in planned] == [
        f"CREATE.{holding}",
        "UPDATE.ORDERS",
        "SNAPSHOT.ORDERS",
        "DELETE.ORDERS",
        "RESTORE.ORDERS",
        f"DELETE.{holding}",
    ]
    assert await left(manager) == []
    await is_whole(manager, "file")


async def test_ctrl_c_while_it_is_saved_leaves_the_stream_as_it_was(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*arguments: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(replacement, "save_stream", interrupted)
    outcome = await apply_plan(manager, await replacement_plan(manager))
    assert outcome.results[0].error is not None
    await is_whole(manager, "file")
    assert await left(manager) == []


async def test_while_a_stream_is_saved_nobody_gets_an_ack_for_what_would_be_lost(manager: Manager) -> None:
    await saved(manager)
    with pytest.raises(NatsctlError):
        await messages.publish(manager, "ORDERS.new", b"lost")
    (told,) = await recover(RetryingManager(manager))
    assert "it is as it was before" in told
    await messages.publish(manager, "ORDERS.new", b"kept")


async def test_a_new_configuration_that_is_refused_after_a_kill_brings_the_old_stream_back(manager: Manager) -> None:
    await saved(manager, {**WANTED, "num_replicas": 7})
    await manager.stream_delete("ORDERS")
    (told,) = await recover(RetryingManager(manager))
    assert "it is as it was before" in told
    assert "the new one was not possible" in told
    await is_whole(manager, "file")


async def test_what_somebody_else_has_made_meanwhile_is_left_alone_until_one_of_both_is_removed(
    manager: Manager,
) -> None:
    await saved(manager)
    await manager.stream_delete("ORDERS")
    await manager.stream_create(LIVE)
    for _ in range(2):
        with pytest.raises(ConflictError, match="another stream ORDERS was made"):
            await recover(RetryingManager(manager))
    assert (await info(manager))["state"]["messages"] == 0
    await manager.stream_delete("ORDERS")
    await recover(RetryingManager(manager))
    await is_whole(manager, "memory")


async def test_a_replacement_that_another_process_works_on_is_none_of_ours(manager: Manager) -> None:
    holding = await saved(manager)
    alive = Heartbeat(RetryingManager(manager), holding.marker.alive)
    await alive.ensure()
    with pytest.raises(ConflictError, match="is being replaced by another"):
        await recover(RetryingManager(manager), {"ORDERS"})
    (told,) = await recover(RetryingManager(manager), {"OTHER"})
    assert "is being replaced by another" in told
    assert await left(manager) == [holding.name]
    await alive.end()
    await recover(RetryingManager(manager))
    await is_whole(manager, "file")


@pytest.mark.parametrize("silent", ["ended", "hangs"])
async def test_a_process_is_at_work_while_its_subscription_stays_whether_it_answers_or_not(
    manager: Manager, silent: str
) -> None:
    """A request that a server passes to a connection that has just ended gets no answer; the next one finds nobody."""
    holding = await saved(manager)
    subscription = await manager.connection.subscribe(holding.marker.alive)
    asking = asyncio.create_task(is_at_work(RetryingManager(manager), holding.marker))
    await subscription.next(1.0)
    if silent == "ended":
        await subscription.stop()
    assert await asking == (silent == "hangs")
    await subscription.stop()
    await recover(RetryingManager(manager))


async def test_a_restore_that_a_kill_cut_off_does_not_keep_the_next_one_out(manager: Manager) -> None:
    """The server still waits for the rest of what the killed process was sending."""
    await saved(manager)
    await manager.stream_delete("ORDERS")
    await manager.requests.ask(endpoints.STREAM_RESTORE, "ORDERS", body={"config": WANTED, "state": {}})
    (told,) = await recover(RetryingManager(manager))
    assert f"finished with {COUNT} messages" in told


@pytest.mark.parametrize("lost", ["consumer", "acks"])
async def test_a_stream_whose_consumers_do_not_come_back_gets_its_old_configuration(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    holding = await saved(manager)
    await manager.stream_delete("ORDERS")
    send, first = RestoreTransfer.send, [True]

    async def losing(sending: RestoreTransfer, manager: Manager) -> Any:
        answer = await send(sending, manager)
        if first:
            first.pop()
            await manager.consumer_delete("ORDERS", "NEW")
            if lost == "acks":
                await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit"})
        return answer

    monkeypatch.setattr(RestoreTransfer, "send", losing)
    done = await finish(RetryingManager(manager), holding, AS_WANTED)
    assert done.refused is not None
    assert "consumer NEW" in done.refused.text
    await is_whole(manager, "file")


async def test_a_stream_that_somebody_else_replaces_is_not_changed(manager: Manager, tmp_path: Path) -> None:
    """Another machine would give it its subjects back while it is saved: messages would get acks and be lost."""
    await saved(manager)
    plan = await replacement_plan(manager)
    for action in (Action.UPDATE, Action.REPLACE, Action.DELETE):
        plan.changes[0].action = action
        outcome = await apply_plan(manager, plan)
        assert outcome.results[0].error is not None
        assert "is being replaced, or that was interrupted" in outcome.results[0].error.description
    await recover(RetryingManager(manager))
    await is_whole(manager, "file")


async def test_messages_that_come_in_spite_of_it_keep_a_stream_from_being_replaced(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = replacement.save_stream

    async def disturbed(*arguments: Any) -> None:
        await save(*arguments)
        await manager.stream_update(LIVE)
        await messages.publish(manager, "ORDERS.new", b"late")

    monkeypatch.setattr(replacement, "save_stream", disturbed)
    outcome = await apply_plan(manager, await replacement_plan(manager))
    assert outcome.results[0].error is not None
    assert "another client has changed ORDERS while it was saved" in outcome.results[0].error.description
    assert (await info(manager))["state"]["messages"] == COUNT + 1
    assert await left(manager) == []
