"""Whatever another server sends, the link answers or ends, and the others are served on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from natsctl.broker.leaf.handshake import RemoteOptions
from natsctl.broker.leaf.link import LeafLink
from tests.support.leaf_servers import Servers

WORDS = [
    b"LS+ ", b"LS- ", b"LMSG ", b"HMSG ", b"INFO ", b"CONNECT ", b"PING\r\n", b"PONG\r\n", b"-ERR ", b"+OK\r\n",
    b"\r\n", b"foo", b"foo.*", b">", b" ", b" q 1\r\n", b" 0\r\n\r\n", b" 3\r\nabc\r\n", b"| g", b"+ r g", b"{}",
    b'{"name":1}', b'{"name":"x"}', b'{"server_id":"x","client_id":1,"info_on_connect":true}', b"$LDS.x", b"..",
    b'{"connect_info":true,"import":{"allow":["a b"]},"export":{"deny":[""]}}', b"'Loop detected'", b"$JS.ACK.a@b",
    b"\xff\x00",
]  # fmt: skip


STAGES = ["accepted", "solicited", "just accepted", "just solicited"]


@given(
    st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=20)), max_size=25),
    st.sampled_from(STAGES),
    st.integers(1, 40),
)
@settings(max_examples=300)
def test_no_bytes_of_another_server_are_an_exception(parts: list[bytes], stage: str, size: int) -> None:
    servers = Servers()
    hub, spoke = servers.start("HUB"), servers.start("SPOKE")
    here = spoke if "solicited" in stage else hub
    link: LeafLink
    if stage == "just accepted":
        link = hub.leafs.accept("127.0.0.1", 1)
    elif stage == "just solicited":
        link = spoke.leafs.solicit(RemoteOptions(), "127.0.0.1", 1)
    else:
        cable = servers.join(spoke, hub)
        link = (cable.near if here is spoke else cable.far).link
    client = here.machine.connect()
    sid = client.subscribe("alive")
    data = b"".join(parts)
    for at in range(0, len(data), size):
        link.receive(data[at : at + size])
    here.machine.settle()
    client.publish("alive", b"1")
    assert b"1" in [message.payload for message in client.take(sid)]
    link.closed()
    assert not here.machine.broker.leafs
    assert link.pending_bytes == 0
