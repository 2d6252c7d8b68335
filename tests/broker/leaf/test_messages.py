"""What crosses a link: each message once, to the groups that were chosen, and never back."""

from natsctl.api.account import UNLIMITED
from natsctl.api.units import SECOND
from natsctl.broker.imports.account_config import AccountConfig, ConnectionLimits, Destination, SubjectMap
from natsctl.broker.leaf.handshake import LeafOptions
from natsctl.broker.refusals import CloseReason
from tests.support.leaf_servers import MemoryLink, Server, Servers

HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"


def lines(cable: MemoryLink, mark: str) -> list[bytes]:
    said = b"".join(data for side, data in cable.carried if side == mark)
    cable.carried[:] = [entry for entry in cable.carried if entry[0] != mark]
    return said.split(b"\r\n")[:-1]


def test_interest_is_told_of_once_and_groups_with_their_weight(servers: Servers, hub: Server, spoke: Server) -> None:
    cable = servers.join(spoke, hub)
    one, two = spoke.machine.connect(), spoke.machine.connect()
    lines(cable, ">")
    sids = [client.subscribe("foo") for client in (one, two)]
    groups = [client.subscribe("foo", "g") for client in (one, two)]
    servers.settle()
    assert lines(cable, ">") == [b"LS+ foo", b"LS+ foo g 1", b"LS+ foo g 2"]
    one.unsubscribe(sids[0])
    one.unsubscribe(groups[0])
    two.unsubscribe(sids[1])
    two.unsubscribe(groups[1])
    servers.settle()
    assert lines(cable, ">") == [b"LS+ foo g 1", b"LS- foo", b"LS- foo g"]


def test_a_message_crosses_once_and_names_the_groups_that_were_chosen_alone_if_nothing_else_wants_it(
    servers: Servers, hub: Server, spoke: Server
) -> None:
    cable = servers.join(spoke, hub)
    far, near = spoke.machine.connect(), hub.machine.connect()
    for pattern, queue in (("foo.*", ""), ("foo.>", ""), ("foo.a", "g"), ("*.a", "h"), ("jobs", "g")):
        far.subscribe(pattern, queue)
    servers.settle()
    lines(cable, "<")
    near.publish("foo.a", b"1", "reply", HEADER)
    near.publish("foo.b", b"2")
    near.publish("jobs", b"3")
    servers.settle()
    said = lines(cable, "<")
    assert said[0] in (b"HMSG foo.a + reply g h 18 19", b"HMSG foo.a + reply h g 18 19")
    assert said[-4:] == [b"LMSG foo.b 1", b"2", b"LMSG jobs | g 1", b"3"]
    assert len(far.take()) == 7


def test_members_near_by_come_first_and_far_ones_share_by_weight(servers: Servers, hub: Server) -> None:
    light, heavy = servers.start("LIGHT"), servers.start("HEAVY")
    for spoke in (light, heavy):
        servers.join(spoke, hub)
    near, few = hub.machine.connect(), light.machine.connect()
    few.subscribe("jobs", "g")
    many = [heavy.machine.connect() for _ in range(9)]
    for client in many:
        client.subscribe("jobs", "g")
    servers.settle()
    for _ in range(500):
        near.publish("jobs")
    servers.settle()
    shares = len(few.take()), sum(len(client.take()) for client in many)
    assert sum(shares) == 500 and 20 < shares[0] < 90
    mine = near.subscribe("jobs", "g")
    near.publish("jobs")
    servers.settle()
    assert len(near.take(mine)) == 1 and not few.take()


def test_isolated_leaf_nodes_hear_of_the_hub_alone(servers: Servers) -> None:
    hub = servers.start("HUB", leaf=LeafOptions(isolate=True))
    left, right = servers.start("LEFT"), servers.start("RIGHT")
    for spoke in (left, right):
        servers.join(spoke, hub)
    here, there, middle = left.machine.connect(), right.machine.connect(), hub.machine.connect()
    middle.subscribe("news")
    there.subscribe("talk")
    servers.settle()
    here.publish("talk", b"hi")
    here.publish("news", b"hi")
    servers.settle()
    assert (len(middle.take()), len(there.take())) == (1, 0)


def test_headers_are_left_out_for_a_server_without_them(servers: Servers, hub: Server, spoke: Server) -> None:
    cable = servers.join(spoke, hub)
    spoke.machine.connect().subscribe("foo")
    servers.settle()
    cable.far.link.headers = False
    lines(cable, "<")
    hub.machine.connect().publish("foo", b"x", "", HEADER)
    servers.settle()
    assert lines(cable, "<") == [b"LMSG foo 1", b"x"]


def test_who_does_not_read_is_cut_off_and_costs_bounded_memory(servers: Servers, hub: Server, spoke: Server) -> None:
    cable = servers.join(spoke, hub)
    spoke.machine.connect().subscribe("flood")
    servers.settle()
    link = cable.far.link
    link.max_pending = 1 << 20
    client = hub.machine.broker.connect("127.0.0.1", 1)
    client.receive(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
    client.receive(
        b"PUB flood 65536\r\n" + b"x" * 65536 + b"\r\n" + b"PUB flood 1000000\r\n" + b"x" * 1000000 + b"\r\n"
    )
    assert link.close_reason is CloseReason.SLOW_CONSUMER_PENDING_BYTES
    assert link.pending_bytes < 100


def test_a_silent_peer_is_pinged_measured_and_given_up(servers: Servers, hub: Server, spoke: Server) -> None:
    cable = servers.join(spoke, hub)
    servers.advance(2)
    assert cable.near.link.rtt_ns > 0 and cable.far.link.rtt_ns > 0
    cable.cut_off = True  # both ends stay open, nothing is carried
    options = hub.machine.broker.options
    servers.clock.advance(options.ping_interval_ns)
    for _ in range(options.ping_max + 1):
        hub.machine.broker.tick()
        servers.clock.advance(options.ping_interval_ns + SECOND)
    assert cable.far.link.close_reason is CloseReason.STALE_CONNECTION


def test_account_limits_bound_the_number_of_leaf_nodes(servers: Servers, hub: Server) -> None:
    hub.machine.broker.configure([AccountConfig("$G", limits=ConnectionLimits(max_leafnodes=1))])
    first = servers.join(servers.start("ONE"), hub)
    second = servers.join(servers.start("TWO"), hub)
    assert first.far.link.registered and not second.far.link.registered
    assert b"-ERR 'maximum account active connections exceeded'" in b"".join(data for _, data in second.carried)


def test_mappings_that_come_and_go_are_told_to_the_other_side(servers: Servers, hub: Server, spoke: Server) -> None:
    servers.join(spoke, hub)
    far = hub.machine.broker.accounts["$G"]

    def configure(*sources: str) -> None:
        maps = tuple(SubjectMap(source, (Destination(f"to.{source}"),)) for source in sources)
        spoke.machine.broker.configure([AccountConfig("$G", UNLIMITED, mappings=maps)])
        servers.settle()

    assert not far.has_interest(b"old")
    configure("old", "stays")
    assert far.has_interest(b"old") and far.has_interest(b"stays")
    client = spoke.machine.connect()
    sid = client.subscribe("to.old")
    hub.machine.connect().publish("old", b"x")
    servers.settle()
    assert [message.payload for message in client.take(sid)] == [b"x"]
    configure("stays", "new")
    assert not far.has_interest(b"old") and far.has_interest(b"stays") and far.has_interest(b"new")
