"""JetStream over a link: each domain by its name, the local one by none, and acks to where they belong."""

import msgspec

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
