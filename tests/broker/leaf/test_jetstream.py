"""JetStream over a link: each domain by its name, the local one by none, and acks to where they belong."""

from __future__ import annotations

import random

import msgspec

from natsctl.testing.simdisk import SimDisk
from tests.support.leaf_servers import Server, Servers


def ask(servers: Servers, server: Server, subject: str, body: bytes = b"") -> bytes:
    """Send a request from one server's client and return the answer's payload, wherever it comes from."""
    client = server.machine.connect()
    sid = client.subscribe("_INBOX.ask")
    servers.settle()
    client.publish(subject, body, "_INBOX.ask")
    servers.settle()
    (answer,) = client.take(sid)
    client.close()
    return answer.payload or answer.status


def test_a_domain_is_reached_by_its_name_and_no_name_stays_here(servers: Servers, hub: Server, spoke: Server) -> None:
    servers.join(spoke, hub)
    for here, domain, mine in ((hub, b"leaf", b"hub"), (spoke, b"hub", b"leaf")):
        assert b'"domain":"%b"' % domain in ask(servers, here, f"$JS.{domain.decode()}.API.INFO")
        assert b'"domain":"%b"' % mine in ask(servers, here, "$JS.API.INFO")
        assert ask(servers, here, "$JS.nowhere.API.INFO").startswith(b"503")


def test_servers_of_one_domain_answer_their_own_clients(servers: Servers) -> None:
    hub, spoke = servers.start("HUB", "same"), servers.start("SPOKE", "same")
    cable = servers.join(spoke, hub)
    cable.carried.clear()
    ask(servers, spoke, "$JS.same.API.INFO")
    assert not any(b"LMSG $JS" in data for _, data in cable.carried)


def test_acks_cross_for_consumers_over_there_and_for_no_others(servers: Servers, hub: Server, spoke: Server) -> None:
    cable = servers.join(spoke, hub)
    ask(servers, hub, "$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}')
    consumer = b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}'
    cable.carried.clear()
    ask(servers, hub, "$JS.API.CONSUMER.DURABLE.CREATE.S.C", consumer)
    said = b"".join(data for mark, data in cable.carried if mark == "<")
    assert b"LS+ $JS.ACK.S.C.>\r\n" in said
    assert ask(servers, spoke, "$JS.ACK.OTHER.C.1.1.1.1.0").startswith(b"503")
    ask(servers, spoke, "s", b"1")
    client = spoke.machine.connect()
    sid = client.subscribe("_INBOX.pull")
    servers.settle()
    client.publish("$JS.hub.API.CONSUMER.MSG.NEXT.S.C", b"1", "_INBOX.pull")
    servers.settle()
    (message,) = client.take(sid)
    assert (message.subject, message.payload) == (b"s", b"1")
    assert ask(servers, spoke, message.reply.decode(), b"+ACK") == b""
    assert b'"num_ack_pending":0' in ask(servers, spoke, "$JS.hub.API.CONSUMER.INFO.S.C")
    cable.carried.clear()
    ask(servers, hub, "$JS.API.CONSUMER.DELETE.S.C")
    assert b"LS- $JS.ACK.S.C.>\r\n" in b"".join(data for mark, data in cable.carried if mark == "<")


def test_a_link_that_comes_later_hears_of_all_consumers(servers: Servers, hub: Server, spoke: Server) -> None:
    ask(servers, hub, "$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}')
    ask(
        servers,
        hub,
        "$JS.API.CONSUMER.DURABLE.CREATE.S.C",
        b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}',
    )
    cable = servers.join(spoke, hub)
    assert b"LS+ $JS.ACK.S.C.>\r\n" in b"".join(data for mark, data in cable.carried if mark == "<")
    assert not any(b"LS+ $JS.ACK.*" in data for _, data in cable.carried)


def test_a_mirror_follows_at_once_when_its_origins_server_is_joined(
    servers: Servers, hub: Server, spoke: Server
) -> None:
    ask(servers, hub, "$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}')
    ask(servers, hub, "s", b"1")
    mirror = b'{"name":"M","mirror":{"name":"S","external":{"api":"$JS.hub.API","deliver":""}}}'
    ask(servers, spoke, "$JS.API.STREAM.CREATE.M", mirror)
    servers.advance(30)
    servers.join(spoke, hub)
    servers.advance(0.2)
    assert b'"messages":1' in ask(servers, spoke, "$JS.API.STREAM.INFO.M")


def test_a_bucket_is_written_through_its_domain_and_read_from_a_mirror_near_by(
    servers: Servers, hub: Server, spoke: Server
) -> None:
    servers.join(spoke, hub)
    ask(servers, hub, "$JS.API.STREAM.CREATE.KV_B", b'{"name":"KV_B","subjects":["$KV.B.>"],"allow_direct":true}')
    mirror = {
        "name": "KV_B",
        "allow_direct": True,
        "mirror_direct": True,
        "mirror": {"name": "KV_B", "external": {"api": "$JS.hub.API", "deliver": ""}},
    }
    ask(servers, spoke, "$JS.API.STREAM.CREATE.KV_B", msgspec.json.encode(mirror))
    servers.advance(0.5)
    assert b'"domain":"hub"' in ask(servers, spoke, "$JS.hub.API.$KV.B.key", b"value")
    servers.advance(0.5)
    assert ask(servers, spoke, "$JS.API.DIRECT.GET.KV_B.$KV.B.key") == b"value"
    assert ask(servers, spoke, "$JS.hub.API.DIRECT.GET.KV_B.$KV.B.key") == b"value"


def test_what_follows_a_delivery_that_a_power_failure_made_the_origin_forget_is_sourced(
    servers: Servers, hub: Server
) -> None:
    disk = SimDisk(random.Random(0))
    edge = servers.start("EDGE", "leaf", disk=disk)
    ask(servers, edge, "$JS.API.STREAM.CREATE.W", b'{"name":"W","subjects":["w"],"retention":"workqueue"}')
    source = b'{"name":"D","sources":[{"name":"W","external":{"api":"$JS.leaf.API","deliver":""}}]}'
    cable = servers.join(edge, hub)
    ask(servers, hub, "$JS.API.STREAM.CREATE.D", source)
    servers.advance(1)
    for body in (b"1", b"2"):
        ask(servers, edge, "w", body)
    cable.cut()
    left = disk.synced_image(0)
    servers.lose("EDGE")
    edge = servers.start("EDGE", "leaf", disk=left)
    assert b'"success":true' in ask(servers, edge, "$JS.API.STREAM.MSG.DELETE.W", b'{"seq":1}')
    ask(servers, edge, "w", b"3")
    servers.join(edge, hub)
    servers.advance(5)
    assert b'"messages":3' in ask(servers, hub, "$JS.API.STREAM.INFO.D")
    assert b'"messages":0' in ask(servers, edge, "$JS.API.STREAM.INFO.W")
