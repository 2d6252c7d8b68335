"""Leaf nodes between processes, in clear, under TLS and through WebSocket, with natsctl and the reference server."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, StreamSource

from natsctl.testing.certificates import Authority
from natsctl.testing.process import Kind, ServerProcess
from tests.server.leaf.crossing import PAIRS, across
from tests.support import patient_client
from tests.support.leaf_servers import eventually, joined, leaf_port, linked, server
from tests.support.operators import Key, Operator
from tests.support.patient_client import PATIENCE_S
from tests.support.relay import Relay

Pair = tuple[ServerProcess, ServerProcess, Relay]
ACCOUNT = "accounts { A { jetstream: enabled, users: [{user: a, password: a}] } }\n"
HUB = 'leafnodes { listen: "127.0.0.1:-1", no_advertise: true }\njetstream { domain: hub }\n' + ACCOUNT
SPOKE = (
    'leafnodes { reconnect: "100ms", remotes: [ { url: "nats-leaf://a:a@127.0.0.1:%PORT%", account: A } ] }\n'
    "jetstream { domain: leaf }\n" + ACCOUNT
)


@pytest.fixture(scope="module", params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    hub, spoke = request.param
    with joined(tmp_path_factory.mktemp("leaf"), hub, spoke, HUB, SPOKE) as found:
        yield found


@asynccontextmanager
async def clients(pair: Pair) -> AsyncIterator[tuple[Client, Client]]:
    async with await connected(pair[0]) as hub, await connected(pair[1]) as spoke:
        yield hub, spoke


async def connected(process: ServerProcess, user: str = "a", password: str = "a") -> Client:
    return await patient_client.connect(process.url, user=user, password=password, allow_reconnect=False)


async def test_messages_cross_once_with_headers_however_many_want_them(pair: Pair) -> None:
    async with clients(pair) as both:
        for here, there in (both, both[::-1]):
            exact, wide = await there.subscribe("news.eu"), await there.subscribe("news.>")
            await across(here, there)
            await here.publish("news.eu", b"1", headers={"Lang": "de"})
            for sub in (exact, wide):
                message = await sub.next_msg(10)
                assert (message.subject, message.data, message.headers) == ("news.eu", b"1", {"Lang": "de"})
            await across(here, there)
            assert exact.pending_msgs == wide.pending_msgs == 0
            await exact.unsubscribe()
            await wide.unsubscribe()


async def test_one_member_of_a_group_gets_each_message_and_members_near_by_come_first(pair: Pair) -> None:
    async with clients(pair) as both:
        for here, there in (both, both[::-1]):
            far = [await there.subscribe("jobs", "g") for _ in range(2)]
            other = await there.subscribe("jobs", "h")
            await across(here, there)
            for _ in range(20):
                await here.publish("jobs", b"")
            await across(here, there)
            assert sum(sub.pending_msgs for sub in far) == other.pending_msgs == 20
            near = await here.subscribe("jobs", "g")
            for _ in range(10):
                await here.publish("jobs", b"")
            await across(here, there)
            assert (near.pending_msgs, sum(sub.pending_msgs for sub in far), other.pending_msgs) == (10, 20, 30)
            for sub in (*far, other, near):
                await sub.unsubscribe()
            await across(here, there)
            await across(there, here)


async def test_jetstream_is_reached_by_the_name_of_its_domain_and_stays_local_without(pair: Pair) -> None:
    async with clients(pair) as (hub, spoke):
        for here, domain, host in ((spoke, "hub", hub), (hub, "leaf", spoke)):
            far, name = here.jetstream(domain=domain), f"FAR_{domain}"
            await far.add_stream(name=name, subjects=[f"far.{domain}.>"])
            assert (await far.publish(f"far.{domain}.1", b"x")).domain == domain
            push = await far.subscribe(f"far.{domain}.>", durable="push")
            message = await push.next_msg(10)
            assert (message.subject, message.data) == (f"far.{domain}.1", b"x")
            await message.ack()
            pull = await far.pull_subscribe(f"far.{domain}.>", "pull")
            (message,) = await pull.fetch(1, timeout=10)
            assert message.subject == f"far.{domain}.1"
            await message.ack_sync()
            assert (await far.consumer_info(name, "push")).num_ack_pending == 0
            assert [info.config.name for info in await far.streams_info() if info.config.name == name] == [name]
            assert name not in [info.config.name for info in await here.jetstream().streams_info()]
            assert name in [info.config.name for info in await host.jetstream().streams_info()]


async def test_mirrors_and_sources_follow_streams_of_the_other_domain_through_a_cut(pair: Pair) -> None:
    hub_process, spoke_process, cable = pair
    async with clients(pair) as (hub, spoke):
        near, far = spoke.jetstream(), hub.jetstream()
        await far.add_stream(name="ORIGIN", subjects=["origin.>"])
        await far.publish("origin.1", b"1")
        await near.add_stream(name="COPY", mirror=source("ORIGIN", "hub"))
        await near.add_stream(name="OWN", subjects=["own.>"])
        await near.publish("own.1", b"1")
        await far.add_stream(name="GATHER", sources=[source("OWN", "leaf")])
        assert await grown(near, "COPY", 1) == await grown(far, "GATHER", 1) == 1
        before = spoke_process.log().count("JetStream using domains")
        cable.cut(for_good=True)
        await far.publish("origin.2", b"2")
        await near.publish("own.2", b"2")
        cable.heal()
        linked(spoke_process, before + 1)
        linked(hub_process, before + 1)
        assert await grown(near, "COPY", 2) == await grown(far, "GATHER", 2) == 2
        for stream, js in (("COPY", near), ("OWN", near), ("GATHER", far), ("ORIGIN", far)):
            await js.delete_stream(stream)


def source(name: str, domain: str) -> StreamSource:
    return StreamSource(name=name, external=ExternalStream(api=f"$JS.{domain}.API", deliver=""))


async def grown(js: Any, stream: str, count: int) -> int:
    have = 0
    for _ in range(1000):
        have = (await js.stream_info(stream)).state.messages
        if have >= count:
            break
        await asyncio.sleep(0.05)
    return have


@pytest.mark.parametrize("kinds", PAIRS)
async def test_users_of_the_block_decide_the_account_and_denied_subjects_do_not_cross(
    kinds: tuple[Kind, Kind], tmp_path: Path
) -> None:
    hub = (
        'leafnodes { listen: "127.0.0.1:-1", authorization { users: [{user: u, password: p, account: B}] } }\n'
        "jetstream { domain: hub }\n"
        "accounts { A { users: [{user: a, password: a}] }, B { users: [{user: b, password: b}] } }\n"
    )
    spoke = (
        'leafnodes { remotes: [ { url: "nats-leaf://u:p@127.0.0.1:%PORT%", account: A, '
        'deny_imports: ["in.secret"], deny_exports: ["out.secret"] } ] }\n'
        "accounts { A { users: [{user: a, password: a}] } }\n"
    )
    with joined(tmp_path, *kinds, hub, spoke) as (hub_process, spoke_process, _):
        async with (
            await connected(hub_process, "b", "b") as far,
            await connected(hub_process) as stranger,
            await connected(spoke_process) as near,
        ):
            arrived, left = await near.subscribe("in.>"), await far.subscribe("out.>")
            alien = await stranger.subscribe("out.>")
            await stranger.flush()
            await across(near, far)
            await across(far, near)
            for word in ("secret", "open"):
                await far.publish(f"in.{word}", b"")
                await near.publish(f"out.{word}", b"")
            await across(near, far)
            await across(far, near)
            await stranger.flush()
            assert [(await arrived.next_msg(PATIENCE_S)).subject, arrived.pending_msgs] == ["in.open", 0]
            assert [(await left.next_msg(PATIENCE_S)).subject, left.pending_msgs] == ["out.open", 0]
            assert alien.pending_msgs == 0


@pytest.mark.parametrize("kinds", PAIRS)
async def test_a_ring_of_three_is_found_and_broken(kinds: tuple[Kind, Kind], tmp_path: Path) -> None:
    first, other = kinds
    listen = 'leafnodes { reconnect: "100ms", listen: "127.0.0.1:%d"%s }\n'
    remote = ', remotes: [ { url: "nats-leaf://127.0.0.1:%d" } ]'
    # Held open from the start: a port that is only known to be free may be taken by whoever dials it.
    ring = Relay("//127.0.0.1")
    with (
        closing(ring),
        server(tmp_path / "C", other, "C", listen % (-1, remote % ring.port)) as last,
        server(tmp_path / "B", first, "B", listen % (-1, remote % leaf_port(last))) as middle,
        server(tmp_path / "A", other, "A", listen % (-1, remote % leaf_port(middle))) as start,
    ):
        ring.target = ("127.0.0.1", leaf_port(start))
        logs = (last, middle, start)
        eventually(lambda: any("Loop detected for leafnode account" in one.log() for one in logs), "no loop was found")
        found = next(one.log() for one in logs if "Loop detected for leafnode account" in one.log())
        assert 'account="$G". Delaying attempt to reconnect for 30s' in found


@pytest.mark.parametrize("kinds", PAIRS)
async def test_jetstream_of_the_hub_serves_a_leaf_node_without_its_own_by_no_name(
    kinds: tuple[Kind, Kind], tmp_path: Path
) -> None:
    account = "accounts { A { users: [{user: a, password: a}] } }\ndefault_js_domain { A: hub }\n"
    remotes = SPOKE.partition("jetstream")[0]
    with joined(tmp_path, *kinds, HUB, remotes + account) as (hub_process, spoke_process, _):
        async with await connected(hub_process) as far, await connected(spoke_process) as near:
            await across(near, far)
            js = near.jetstream()
            await js.add_stream(name="ORDERS", subjects=["orders.>"])
            await across(near, far)
            for number in range(3):
                assert (await js.publish("orders.new", b"%d" % number)).seq == number + 1
            puller = await js.pull_subscribe("orders.>", "reader")
            messages = await puller.fetch(3, timeout=20)
            assert [message.data for message in messages] == [b"0", b"1", b"2"]
            for message in messages:
                await message.ack_sync()
            bucket = await js.create_key_value(bucket="settings")
            await bucket.put("a.b", b"1")
            assert (await bucket.get("a.b")).value == b"1"


DOMAINS = ("jetstream { domain: hub }\n", "jetstream { domain: leaf }\n")


@pytest.fixture(params=PAIRS)
def kinds(request: pytest.FixtureRequest) -> tuple[Kind, Kind]:
    return request.param


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certs"))


@asynccontextmanager
async def client_of(process: ServerProcess, **options: Any) -> AsyncIterator[Client]:
    client = await patient_client.connect(process.url, allow_reconnect=False, **options)
    try:
        yield client
    finally:
        await client.close()


async def crosses(hub: ServerProcess, spoke: ServerProcess, **hub_options: Any) -> None:
    async with client_of(hub, **hub_options) as far, client_of(spoke) as near:
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
        async with client_of(hub_process, user_credentials=str(other)) as far, client_of(spoke_process) as near:
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


@pytest.mark.parametrize("kinds", PAIRS)
async def test_servers_that_share_the_system_account_count_each_other(tmp_path: Path, kinds: tuple[Kind, Kind]) -> None:
    system = "accounts { SYS { users: [{user: a, password: a}] } }\nsystem_account: SYS\n"
    hub = 'leafnodes { listen: "127.0.0.1:-1", no_advertise: true }\njetstream { domain: hub }\n'
    spoke = 'leafnodes { remotes: [ { url: "nats-leaf://a:a@127.0.0.1:%PORT%", account: SYS } ] }\n'
    spoke += "jetstream { domain: leaf }\n"
    with joined(tmp_path, *kinds, hub + system, spoke + system, wait=False) as (*servers, _):
        for process in servers:
            async with await connected(process) as client:
                await answered_for(client, 2)


@pytest.mark.parametrize("kinds", PAIRS)
async def test_leaf_nodes_are_connections_of_their_own_kind(tmp_path: Path, kinds: tuple[Kind, Kind]) -> None:
    options = json.dumps({"auth": True, "subscriptions": True}).encode()
    system = "SYS { users: [{user: s, password: s}] } }\nsystem_account: SYS\n"
    hub, spoke = (text.rstrip().removesuffix("}") + "\n" + system for text in (HUB, SPOKE))
    with joined(tmp_path, *kinds, hub, spoke) as (*servers, _):
        found = []
        for process in servers:
            async with await connected(process) as client, await connected(process, "s", "s") as asking:
                await client.subscribe("mine")
                await client.flush()
                leaf: dict[str, Any] = {}
                async with asyncio.timeout(PATIENCE_S):  # the other side's interest comes after the link
                    while not leaf.get("subscriptions"):
                        reply = await asking.request("$SYS.REQ.SERVER.PING.CONNZ", options, PATIENCE_S)
                        connections = json.loads(reply.data)["data"]["connections"]
                        (leaf,) = (each for each in connections if each["kind"] == "Leafnode")
                assert leaf["subscriptions"] == len(leaf["subscriptions_list"])
                found.append({key: leaf.get(key) for key in ("name", "type", "authorized_user", "account", "name_tag")})
        common = {"type": None, "account": "A", "name_tag": "A"}
        assert found == [
            {"name": "SPOKE", "authorized_user": "a", **common}, {"name": None, "authorized_user": None, **common}
        ]  # fmt: skip


async def answered_for(client: Client, count: int) -> None:
    """Wait until the server of `client` counts so many servers; nats-server learns of others by their STATSZ."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            inbox = await client.subscribe(client.new_inbox())
            await client.publish("$SYS.REQ.SERVER.PING", b"", reply=inbox.subject)
            answer = json.loads((await inbox.next_msg(PATIENCE_S)).data)
            await inbox.unsubscribe()
            if (
                answer["server"]["name"] == client._server_info["server_name"]
                and answer["statsz"]["active_servers"] == count
            ):
                return
            await asyncio.sleep(0.05)
