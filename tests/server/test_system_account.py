"""Users of the system account: who they lock out, and what they may do."""

from __future__ import annotations

from pathlib import Path

import pytest

from natsctl.testing.process import Kind, ServerProcess
from tests.support import patient_client

pytestmark = pytest.mark.asyncio
KINDS = ["natsctl", "reference"]


def configured(tmp_path: Path, kind: Kind, text: str) -> ServerProcess:
    path = tmp_path / "server.conf"
    path.write_text(text)
    return ServerProcess(tmp_path / "server", kind, "-c", str(path))


@pytest.mark.parametrize("kind", KINDS)
async def test_everybody_else_is_let_in_and_has_jetstream(tmp_path: Path, kind: Kind) -> None:
    with configured(tmp_path, kind, "accounts { $SYS { users: [{ user: s, password: p }] } }\n") as process:
        anyone = await patient_client.connect(process.url)
        system = await patient_client.connect(process.url, user="s", password="p")
        await anyone.jetstream().add_stream(name="S", subjects=["s"])
        refused = await system.request("$JS.API.INFO")
        assert b'"err_code":10039' in refused.data
        purged = await system.request("$JS.API.ACCOUNT.PURGE.$G")
        assert purged.data == b'{"type":"io.nats.jetstream.api.v1.account_purge_response","initiated":true}'
        assert await anyone.jetstream().streams_info() == []
        await anyone.close()
        await system.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_an_account_without_jetstream_is_told_so(tmp_path: Path, kind: Kind) -> None:
    text = "accounts { A { users: [{ user: a, password: p }] } }\nno_auth_user: a\n"
    with configured(tmp_path, kind, text) as process:
        client = await patient_client.connect(process.url)
        answer = await client.request("$JS.API.STREAM.NAMES")
        assert answer.data == (
            b'{"type":"io.nats.jetstream.api.v1.stream_names_response","error":{"code":503,"err_code":10039,'
            b'"description":"JetStream not enabled for account"},"total":0,"offset":0,"limit":0,"streams":null}'
        )
        await client.close()
