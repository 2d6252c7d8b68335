"""The system account: whom its users lock out, and a server without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import ServerOptions
from natsctl.testing.process import Kind, ServerProcess
from tests.support import patient_client
from tests.support.conf_server import ConfServer

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


both = pytest.mark.parametrize("kind", ["natsctl", "reference"])
NONE = "no_system_account: true\n"
REQUESTS = [
    "$SYS.REQ.USER.INFO", "$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ",
    "$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.DEBUG.SUBSCRIBERS",
]  # fmt: skip
WITH = [
    ("system_account: S\naccounts { S { users: [{user: s, password: p}] } }\n", "S"),
    ('accounts { "$SYS" { users: [{user: s, password: p}] } }\n', "$SYS"),
    ("jetstream {{ store_dir: {folder} }}\naccounts {{ A {{ users: [{{user: s, password: p}}] }} }}\n", "$SYS"),
]
"""Configurations that have a system account all the same."""


async def answered(client: Client, subject: str) -> dict[str, Any]:
    return json.loads((await client.request(subject)).data)


@both
async def test_nobody_is_answered_and_no_event_is_published(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, NONE, monitoring=True) as server:
        client = await patient_client.connect(server.url)
        for subject in REQUESTS:
            with pytest.raises(NoRespondersError):
                await client.request(subject)
        heard = await client.subscribe(">")
        await client.flush()
        other = await patient_client.connect(server.url)
        await other.publish("own", b"x")
        await other.close()
        assert (await heard.next_msg(20)).subject == "own"
        await client.flush()
        assert heard.pending_msgs == 0
        await client.close()


@both
def test_monitoring_names_no_system_account(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, NONE, monitoring=True) as server:
        assert server.monitor("accountz").keys() == {"server_id", "now", "accounts"}
        assert server.monitor("accountz")["accounts"] == ["$G"]
        assert "imports" not in server.monitor("accountz?acc=$G")["account_detail"]
        assert "system_account" not in server.monitor("varz")
        assert server.monitor("healthz") == {"status": "ok"}


@both
@pytest.mark.parametrize(("text", "system"), WITH)
async def test_one_that_is_named_or_that_jetstream_needs_is_there(
    tmp_path: Path, kind: Kind, text: str, system: str
) -> None:
    text = text.format(folder=json.dumps(str(tmp_path))) if "{folder}" in text else text
    with ConfServer(tmp_path, kind, NONE + text, monitoring=True) as server:
        assert server.monitor("accountz")["system_account"] == system
        client = await patient_client.connect(server.url, user="s", password="p")
        user = await answered(client, "$SYS.REQ.USER.INFO")
        assert user["data"]["user"] == "s"
        await client.close()


@pytest.mark.parametrize("key", ["no_system_account", "no_system", "no_sys_acc"])
def test_every_name_of_the_key_is_taken(key: str) -> None:
    assert apply(load_text(f"{key}: true", {}), ServerOptions()).no_system_account
    assert not apply(load_text(f"{key}: false", {}), ServerOptions()).no_system_account


@both
def test_a_leaf_node_may_not_bind_to_the_account_that_is_not_there(tmp_path: Path, kind: Kind) -> None:
    text = 'leafnodes { listen: "127.0.0.1:-1", authorization { account: "$SYS" } }\n'
    with pytest.raises(RuntimeError, match='cannot find local account "\\$SYS" specified in leafnode authorization'):
        ConfServer(tmp_path, kind, NONE + text).start()


def test_latency_that_nobody_would_publish_is_refused() -> None:
    """nats-server refuses it too where it happens to read the keys in this order."""
    text = "no_system: true\naccounts { A { exports: [{service: a, latency: {subject: b}}] } }\n"
    with pytest.raises(ConfError, match='Error adding service latency sampling for "a": system account not setup'):
        apply(load_text(text, {}), ServerOptions())
