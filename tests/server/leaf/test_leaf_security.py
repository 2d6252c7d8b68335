"""Leaf nodes under TLS, through WebSocket, and with the credentials of an operator's user, with both servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from natsctl.testing.certificates import Authority
from natsctl.testing.process import Kind, ServerProcess
from tests.server.leaf.crossing import PAIRS, across
from tests.support import patient_client
from tests.support.leaf_servers import eventually, joined, linked, server
from tests.support.operators import Key, Operator
from tests.support.patient_client import PATIENCE_S

DOMAINS = ("jetstream { domain: hub }\n", "jetstream { domain: leaf }\n")


@pytest.fixture(params=PAIRS)
def kinds(request: pytest.FixtureRequest) -> tuple[Kind, Kind]:
    return request.param


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certs"))


@asynccontextmanager
async def connected(process: ServerProcess, **options: Any) -> AsyncIterator[Client]:
    client = await patient_client.connect(process.url, allow_reconnect=False, **options)
    try:
        yield client
    finally:
        await client.close()


async def crosses(hub: ServerProcess, spoke: ServerProcess, **hub_options: Any) -> None:
    async with connected(hub, **hub_options) as far, connected(spoke) as near:
        for here, there in ((far, near), (near, far)):
            sub = await there.subscribe("crosses")
            await across(here, there)
            await here.publish("crosses", b"probe")
            await here.flush()
            assert (await sub.next_msg(PATIENCE_S)).data == b"probe"
            await sub.unsubscribe()


@pytest.mark.parametrize("first", [False, True], ids=["info first", "handshake first"])
async def test_a_link_under_tls_with_certificates_on_both_sides(
    kinds: tuple[Kind, Kind], authority: Authority, tmp_path: Path, first: bool
) -> None:
    hub = authority.issue("hub", addresses=["127.0.0.1"])
    spoke = authority.issue("spoke", addresses=["127.0.0.1"])
    more = ", handshake_first: true" if first else ""
    block = 'tls { cert_file: "%s", key_file: "%s", ca_file: "%s"%s%s }'
    accepts = block % (hub.cert, hub.key, authority.cert, ", verify: true", more)
    shows = block % (spoke.cert, spoke.key, authority.cert, "", more)
    config = f'{DOMAINS[0]}leafnodes {{ listen: "127.0.0.1:-1", {accepts} }}\n'
    remote = f'{DOMAINS[1]}leafnodes {{ remotes: [ {{ url: "tls://127.0.0.1:%PORT%", {shows} }} ] }}\n'
    with joined(tmp_path, *kinds, config, remote) as (hub_process, spoke_process, _):
        await crosses(hub_process, spoke_process)


async def test_a_hub_whose_certificate_nobody_vouches_for_is_not_joined(
    kinds: tuple[Kind, Kind], authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger", "stranger").issue("hub", addresses=["127.0.0.1"])
    config = (
        f'leafnodes {{ listen: "127.0.0.1:-1", tls {{ cert_file: "{stranger.cert}", key_file: "{stranger.key}" }} }}\n'
    )
    remote = (
        'leafnodes { reconnect: "100ms", remotes: [ { url: "tls://127.0.0.1:%PORT%", '
        f'tls {{ ca_file: "{authority.cert}" }} }} ] }}\n'
    )
    with joined(tmp_path, *kinds, config, remote, wait=False) as (_, spoke_process, _):
        eventually(lambda: "TLS leafnode handshake error" in spoke_process.log(), "the spoke says nothing")
        assert "failed to verify certificate" in spoke_process.log()
        assert "domains" not in spoke_process.log()


@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
async def test_a_link_through_the_websocket_listener(
    kinds: tuple[Kind, Kind], authority: Authority, tmp_path: Path, secure: bool
) -> None:
    issued = authority.issue("ws", addresses=["127.0.0.1"])
    tls = f'tls {{ cert_file: "{issued.cert}", key_file: "{issued.key}" }}' if secure else "no_tls: true"
    config = (
        f'{DOMAINS[0]}leafnodes {{ listen: "127.0.0.1:-1" }}\n'
        f'websocket {{ listen: "127.0.0.1:-1", compression: true, {tls} }}\n'
    )
    with server(tmp_path / "hub", kinds[0], "HUB", config) as hub_process:
        (ports,) = hub_process.store_dir.glob("*.ports")
        port = eventually(lambda: json.loads(ports.read_text()).get("websocket"), "no websocket")[0].rpartition(":")[2]
        trust = f', tls {{ ca_file: "{authority.cert}" }}' if secure else ""
        scheme = "wss" if secure else "ws"
        remote = (
            f'{DOMAINS[1]}leafnodes {{ remotes: [ {{ url: "{scheme}://127.0.0.1:{port}", '
            f"ws_compression: true{trust} }} ] }}\n"
        )
        with server(tmp_path / "spoke", kinds[1], "SPOKE", remote) as spoke_process:
            linked(spoke_process)
            await crosses(hub_process, spoke_process)


async def test_a_link_with_the_creds_file_of_an_operators_user(kinds: tuple[Kind, Kind], tmp_path: Path) -> None:
    operator = Operator()
    account = operator.account("A")
    creds = tmp_path / "leaf.creds"
    login = operator.user(account)
    creds.write_text(login.creds)
    other = tmp_path / "client.creds"
    other.write_text(operator.user(account).creds)
    config = operator.conf('leafnodes { listen: "127.0.0.1:-1" }')
    remote = f'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:%PORT%", credentials: "{creds}" }} ] }}\n'
    with joined(tmp_path, *kinds, config, remote, wait=False) as (hub_process, spoke_process, _):
        async with connected(hub_process, user_credentials=str(other)) as far, connected(spoke_process) as near:
            sub = await near.subscribe("crosses")
            await across(far, near)
            await far.publish("crosses", b"x")
            assert (await sub.next_msg(PATIENCE_S)).data == b"x"
        seed = login.key.seed.decode()
        for log in (hub_process.log(), spoke_process.log()):
            assert seed not in log and login.jwt not in log


async def test_a_link_with_a_seed(kinds: tuple[Kind, Kind], tmp_path: Path) -> None:
    key = Key("user")
    seed = key.seed.decode()
    config = f'{DOMAINS[0]}leafnodes {{ listen: "127.0.0.1:-1", authorization {{ nkey: {key.public} }} }}\n'
    remote = f'{DOMAINS[1]}leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:%PORT%", nkey: {seed} }} ] }}\n'
    with joined(tmp_path, *kinds, config, remote) as (hub_process, spoke_process, _):
        await crosses(hub_process, spoke_process)
        assert seed not in spoke_process.log() + hub_process.log()
