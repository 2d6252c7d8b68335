"""Transfers whose connection breaks: begun again on another one, and nothing left behind when that does not help."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from natsctl.api.catalogue import ApiError
from natsctl.api.errors import ApiResponseError, ConflictError, ErrCode, NatsctlError, UnreachableError
from natsctl.client.backup import restore, transfer
from natsctl.client.backup.restore import OnExisting, RestoreOptions, RestoreTransfer, StreamLostError, restore_stream
from natsctl.client.backup.save import SaveOptions, save_stream
from natsctl.client.backup.transfer import RetryingManager, TransferInterruptedError
from natsctl.client.manager import Manager
from natsctl.client.messaging import messages
from tests.client.conftest import Listener, connected

BODIES = [os.urandom(4000) for _ in range(150)]
CUT_AT_BYTES = 200_000


class Cutter(Listener):
    """A way to a server that ends after some bytes in one direction, `cuts` times."""

    def __init__(self, url: str, *, down: bool, cuts: int) -> None:
        self.host, self.port = urlsplit(url).hostname, urlsplit(url).port
        self.down = down
        self.cuts = cuts

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection(self.host, self.port)
        ways = [
            asyncio.ensure_future(self._pass(reader, to, not self.down)),
            asyncio.ensure_future(self._pass(there, writer, self.down)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in (to, writer):
            end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: bool) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(16384):
                passed += len(data)
                if cut and self.cuts and passed > CUT_AT_BYTES:
                    self.cuts -= 1
                    return
                writer.write(data)
                await writer.drain()


async def _fill(manager: Manager) -> None:
    await manager.stream_create({"name": "S", "subjects": ["S.*"]})
    await asyncio.gather(*(messages.publish(manager, "S.a", body) for body in BODIES))


async def _save_and_remove(manager: Manager, path: Path) -> None:
    await _fill(manager)
    await save_stream(RetryingManager(manager), "S", path)
    await manager.stream_delete("S")


@asynccontextmanager
async def cut_off(server: Any, **how: Any) -> AsyncIterator[tuple[Manager, Manager, Cutter]]:
    """Yield a manager of the server, and one whose way there is cut."""
    async with (
        await connected(server.url) as direct,
        Cutter(server.url, **how).running() as way,
        await connected(way.url) as cut,
    ):
        yield Manager(direct), Manager(cut), way


@pytest.fixture
async def saved(manager: Manager, tmp_path: Path) -> Manager:
    """A manager whose stream S was saved and removed."""
    await _save_and_remove(manager, tmp_path / "b")
    return manager


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "FIRST_WAIT_S", 0.01)


@pytest.mark.both
async def test_a_backup_whose_connection_breaks_is_begun_again(server: Any, tmp_path: Path) -> None:
    said: list[str] = []
    async with cut_off(server, down=True, cuts=2) as (manager, cut, _):
        await _fill(manager)
        retrying = RetryingManager(cut, say=said.append)
        saved = await save_stream(retrying, "S", tmp_path / "b", SaveOptions(chunk_size=32 * 1024))
        assert (saved.messages, saved.attempts) == (len(BODIES), 3)
        assert ["was lost" in text and "beginning the backup of S again" in text for text in said] == [True, True]
        await manager.stream_delete("S")
        await restore_stream(RetryingManager(manager), tmp_path / "b")
        assert (await manager.message_get("S", seq=150)).value.message.data == BODIES[149]


@pytest.mark.both
async def test_a_backup_is_not_begun_again_for_ever(server: Any, tmp_path: Path) -> None:
    async with cut_off(server, down=True, cuts=99) as (manager, cut, way):
        await _fill(manager)
        retrying = RetryingManager(cut, retries=1)
        with pytest.raises(UnreachableError, match="was lost"):
            await save_stream(retrying, "S", tmp_path / "out" / "b", SaveOptions(chunk_size=32 * 1024))
        assert way.cuts == 97
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.both
async def test_a_restore_whose_connection_breaks_is_begun_again(server: Any, tmp_path: Path) -> None:
    said: list[str] = []
    async with cut_off(server, down=False, cuts=2) as (manager, cut, _):
        await _save_and_remove(manager, tmp_path / "b")
        # The reference sometimes leaves a restore unanswered that follows one that was given up: some attempts more.
        retrying = RetryingManager(cut, retries=8, say=said.append)
        done = await restore_stream(retrying, tmp_path / "b", RestoreOptions(idle_s=10.0))
        assert done.progress.attempt == len(said) + 1 >= 3
        assert (await manager.stream_info("S")).value.state.messages == len(BODIES)


@pytest.mark.both
async def test_a_restore_that_never_succeeds_leaves_no_stream(server: Any, tmp_path: Path) -> None:
    async with cut_off(server, down=False, cuts=99) as (manager, cut, _):
        await _save_and_remove(manager, tmp_path / "b")
        retrying = RetryingManager(cut, retries=1)
        with pytest.raises(NatsctlError):
            await restore_stream(retrying, tmp_path / "b")
        assert list(await manager.stream_names()) == []


@pytest.mark.both
async def test_a_restore_that_is_interrupted_leaves_no_stream(saved: Manager, tmp_path: Path) -> None:
    def interrupt(progress: Any) -> None:
        if progress.chunks >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await restore_stream(RetryingManager(saved), tmp_path / "b", RestoreOptions(), interrupt)
    assert list(await saved.stream_names()) == []
    done = await restore_stream(RetryingManager(saved), tmp_path / "b")
    assert done.answer.value.state.messages == len(BODIES)


def _first(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[object]]) -> None:
    """Have something happen once a restore was begun, before its first piece is sent."""
    pieces = RestoreTransfer._pieces

    async def late(self: RestoreTransfer, manager: Manager, deliver: str) -> dict[str, Any] | None:
        monkeypatch.setattr(RestoreTransfer, "_pieces", pieces)
        await happens()
        return await pieces(self, manager, deliver)

    monkeypatch.setattr(RestoreTransfer, "_pieces", late)


@pytest.mark.both
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_stream_that_somebody_makes_meanwhile_is_theirs(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    await _fill(manager)
    await save_stream(RetryingManager(manager), "S", tmp_path / "b")
    if not replaced:
        await manager.stream_delete("S")

    async def made() -> None:
        await manager.stream_create({"name": "S", "subjects": ["theirs"]})
        await messages.publish(manager, "theirs", b"x")

    _first(monkeypatch, made)
    options = RestoreOptions(on_existing=OnExisting.REPLACE if replaced else OnExisting.FAIL)
    with pytest.raises(StreamLostError if replaced else ApiResponseError, match="already in use"):
        await restore_stream(RetryingManager(manager), tmp_path / "b", options)
    there = (await manager.stream_info("S")).value
    assert (there.config.subjects, there.state.messages) == (["theirs"], 1)


@pytest.mark.both
async def test_a_stream_that_somebody_makes_before_a_restore_is_begun_again_is_theirs(
    saved: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        await saved.stream_create({"name": "S", "subjects": ["theirs"]})
        raise TransferInterruptedError("broken off")

    _first(monkeypatch, broken)
    with pytest.raises(ConflictError, match="was created during its restore"):
        await restore_stream(RetryingManager(saved), tmp_path / "b")
    assert (await saved.stream_info("S")).value.config.subjects == ["theirs"]


@pytest.mark.both
@pytest.mark.parametrize("alone", [False, True])
async def test_a_restore_that_is_refused_is_begun_again_only_where_there_is_no_other_stream(
    saved: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """nats-server may remove the folder of all streams while one comes in, and its words are the system's."""
    said: list[str] = []
    others = [] if alone else ["OTHER"]
    for name in others:
        await saved.stream_create({"name": name, "subjects": ["other"]})

    async def failed() -> None:
        raise ApiResponseError(
            ApiError(code=500, err_code=10062, description="restore failed: for some reason"), "there"
        )

    _first(monkeypatch, failed)
    ends = contextlib.nullcontext() if alone else pytest.raises(ApiResponseError, match="for some reason")
    with ends:
        await restore_stream(RetryingManager(saved, say=said.append), tmp_path / "b")
    left = sorted(await saved.stream_names())
    assert ("again" in "".join(said), left) == (alone, ["S"] if alone else others)


@pytest.mark.both
async def test_a_name_that_is_held_though_no_stream_has_it_is_tried_again(
    saved: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "NAME_HELD_S", 0.01)
    said: list[str] = []

    async def held() -> None:
        raise ApiResponseError(
            ApiError(
                code=400,
                err_code=ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED,
                description="stream name already in use, cannot restore",
            ),
            "there",
        )

    _first(monkeypatch, held)
    done = await restore_stream(RetryingManager(saved, say=said.append), tmp_path / "b")
    assert done.answer.value.state.messages == len(BODIES)
    assert "beginning the restore of S again" in "".join(said)


async def test_a_server_that_has_gone_is_waited_for_a_few_times(fake: Any, tmp_path: Path) -> None:
    fake.fatal.add("$JS.API.STREAM.SNAPSHOT.S")
    async with fake.running(), await connected(fake.url) as connection:
        retrying = RetryingManager(Manager(connection), retries=2)
        with pytest.raises(UnreachableError):
            await save_stream(retrying, "S", tmp_path / "out" / "b")
    assert len(fake.connects) == 3
    assert list((tmp_path / "out").iterdir()) == []
