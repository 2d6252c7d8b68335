import errno
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from natsctl.api.errors import ApiResponseError
from natsctl.client.checks import MonitoringCheck, check_stream
from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.server.instance import ServerInstance
from natsctl.server.monitor.healthz import HealthzOptions, healthz
from natsctl.server.options import ServerOptions
from natsctl.store.disk import File, PosixDisk, PosixFile
from tests.support import patient_client


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerInstance]:
    options = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path)
    async with ServerInstance(options) as running:
        client = await patient_client.connect(running.url)
        await client.jetstream().add_stream(name="GOOD", subjects=["good"])
        await client.close()
        yield running


def asked(server: ServerInstance, **options: object) -> dict[str, Any]:
    return healthz(server, msgspec.convert(options, HealthzOptions))


def break_stream(server: ServerInstance, key: str) -> None:
    server.engine._leave_offline(key, "made by a newer version")


async def test_a_stream_that_is_not_served_makes_the_server_unavailable(server: ServerInstance) -> None:
    assert asked(server) == {"status": "ok", "status_code": 200}
    break_stream(server, "$G/BAD")
    text = "JetStream stream '$G > BAD' could not be recovered"
    assert asked(server) == {"status": "unavailable", "status_code": 503, "error": text}
    for key in ("js-server-only", "js-enabled-only", "js-enabled"):
        assert asked(server, **{key: True})["status"] == "ok"
    assert asked(server, account="$G", stream="GOOD")["status"] == "ok"
    assert asked(server, account="$G", stream="BAD")["error"] == text


async def test_details_list_everything_that_is_wrong(server: ServerInstance) -> None:
    break_stream(server, "$G/BAD")
    server.engine.accounts["$G"].streams["GOOD"].store.fault = "no space left on device"
    found = asked(server, details=True)
    write = "JetStream stream '$G > GOOD' write error: no space left on device"
    assert (found["status"], found["status_code"]) == ("error", 503)
    assert found["errors"] == [
        {
            "type": "STREAM",
            "account": "$G",
            "stream": "BAD",
            "error": "JetStream stream '$G > BAD' could not be recovered",
        },
        {"type": "STREAM", "account": "$G", "stream": "GOOD", "error": write},
    ]
    server.engine.accounts["$G"].streams["GOOD"].store.fault = None


async def test_a_fault_of_the_store_that_is_no_stream_s_is_told(server: ServerInstance) -> None:
    server.store.report_fault("the journal cannot be written")
    assert asked(server)["error"] == "the journal cannot be written"


async def checked(server: ServerInstance, stream: str) -> list[str]:
    """Return what `server check stream` finds critical."""
    async with await connect(resolve(Settings(url=server.url), {"HOME": "/nowhere"}), name="check") as connection:
        check = MonitoringCheck("stream", stream)
        await check_stream(Manager(connection), check, {}, {})
        return check.critical


async def test_a_check_reports_a_stream_that_is_not_written_to_or_not_served(server: ServerInstance) -> None:
    assert await checked(server, "GOOD") == []
    store = server.engine.accounts["$G"].streams["GOOD"].store
    with patch.object(store, "fault", "the disk failed"):
        assert await checked(server, "GOOD") == ["write error: the disk failed"]
    with patch.object(store, "full", True), patch.object(PosixDisk, "free_bytes", return_value=1000):
        assert await checked(server, "GOOD") == ["write error: no space left on the store's disk"]
    assert await checked(server, "GOOD") == []
    break_stream(server, "$G/BAD")
    with pytest.raises(ApiResponseError, match="made by a newer version") as refused:
        await checked(server, "BAD")
    assert refused.value.err_code == 10194


def full_disk(file: File, data: bytes, offset: int) -> None:
    if data:
        raise OSError(errno.ENOSPC, "full")


async def test_a_full_disk_is_unhealthy_until_there_is_room(server: ServerInstance) -> None:
    store = server.engine.store
    stream = server.engine.accounts["$G"].streams["GOOD"].store
    with patch.object(PosixDisk, "free_bytes", return_value=1000):
        assert asked(server)["status_code"] == 200
        no_descriptor = patch.object(PosixFile, "fileno", return_value=-1)  # native threads would write all the same
        with patch("natsctl.store.file_commit.write_all", full_disk), no_descriptor:
            store.reserve.release()
            client = await patient_client.connect(server.url)
            answer = await client.request("good", b"x" * 100, timeout=30)
            assert msgspec.json.decode(answer.data)["error"]["err_code"] == 10047
        health = asked(server, details=True)
        assert (health["status_code"], [each["stream"] for each in health["errors"]]) == (503, ["GOOD"])
        assert "no space left" in health["errors"][0]["error"] and stream.healthy
        assert asked(server, **{"js-server-only": True})["status_code"] == 200
    assert asked(server)["status_code"] == 200
    await client.request("good", b"y", timeout=30)
    assert not stream.full
    await client.close()


async def test_a_loop_that_stood_still_is_unhealthy_for_a_minute(server: ServerInstance) -> None:
    shell = server._shell
    ticker, now = shell._ticker, shell.loop.time()
    with patch.object(shell, "_ticker", SimpleNamespace(when=lambda: now - 11)):
        shell._note_lag()
    assert shell._ticker is ticker
    assert asked(server)["error"].startswith("The event loop stood still for 11.")
    assert asked(server, **{"js-enabled-only": True})["status_code"] == 200
    shell._lag = (11.0, shell.loop.time() - 61)
    assert asked(server)["status_code"] == 200
