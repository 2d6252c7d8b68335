"""How two servers come to know each other, and who is turned away with which words."""

import msgspec
import pytest

from natsctl.broker.auth.credentials import Credentials, Grant
from natsctl.broker.auth.permissions import ResponseRule, SubjectPermissions, SubjectRules
from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.leaf.handshake import LeafOptions, RemoteOptions
from natsctl.broker.leaf.link import LeafLink
from natsctl.broker.refusals import CloseReason
from tests.support.leaf_servers import Server, Servers


def said(link: LeafLink) -> bytes:
    return b"".join(link.take_output())


def answer(hub: Server, **connect: object) -> tuple[LeafLink, bytes]:
    """Return an accepted link and what it answers to a CONNECT."""
    link = hub.leafs.accept("127.0.0.1", 1)
    said(link)
    link.receive(b"CONNECT %b\r\n" % msgspec.json.encode(connect))
    return link, said(link)


def test_info_has_the_keys_of_the_reference_in_its_order(servers: Servers) -> None:
    hub = servers.start("HUB", "hub", LeafOptions(urls=("127.0.0.1:7422",)))
    info = msgspec.json.decode(said(hub.leafs.accept("127.0.0.1", 1)).removeprefix(b"INFO "))
    assert list(info) == [
        "server_id", "server_name", "version", "proto", "go", "host", "port", "headers", "auth_required", "max_payload",
        "jetstream", "ip", "client_id", "nonce", "domain", "compression", "api_lvl", "info_on_connect", "leafnode_urls",
    ]  # fmt: skip
    assert (info["compression"], info["ip"]) == ("off", "127.0.0.1:7422")


@pytest.mark.parametrize(
    ("connect", "error", "reason"),
    [
        ({"lang": "go"}, "attempted to connect to leaf node port", CloseReason.WRONG_PORT),
        ({"cluster": "a b"}, "cluster name cannot contain spaces", CloseReason.PROTOCOL_VIOLATION),
        ({"cluster": "SAME"}, "remote leafnode has same cluster name", CloseReason.CLUSTER_NAMES_IDENTICAL),
        ({"gateway": "G"}, 'Rejecting connection from gateway "G" on the leafnode port', CloseReason.WRONG_GATEWAY),
        (
            {"version": "2.7.9"},
            'connection rejected since minimum version required is "2.8.0"',
            CloseReason.MINIMUM_VERSION_REQUIRED,
        ),
    ],
)
def test_who_must_not_come_is_told_why(
    servers: Servers, connect: dict[str, object], error: str, reason: CloseReason
) -> None:
    hub = servers.start("HUB", leaf=LeafOptions(cluster="SAME", min_version="2.8.0"))
    link, text = answer(hub, **{"version": "2.15.2", "name": "X", **connect})
    assert f"-ERR '{error}'".encode() in text
    assert link.close_reason is reason and not link.registered


@pytest.mark.parametrize("first", [b"LS+ foo\r\n", b"LMSG foo 0\r\n\r\n", b"LS- foo\r\n"])
def test_nothing_is_taken_before_connect(hub: Server, first: bytes) -> None:
    link = hub.leafs.accept("127.0.0.1", 1)
    said(link)
    link.receive(first)
    assert said(link) == b"-ERR 'Authorization Violation'\r\n"
    assert link.close_reason is not None


def test_who_says_nothing_is_closed_in_time(servers: Servers, hub: Server) -> None:
    link = hub.leafs.accept("127.0.0.1", 1)
    servers.advance(1.9)
    assert link.close_reason is None
    servers.advance(0.2)
    assert link.close_reason is CloseReason.AUTHENTICATION_TIMEOUT


def test_users_are_told_what_they_may_and_held_to_it(servers: Servers, spoke: Server) -> None:
    permissions = SubjectPermissions(SubjectRules(allow=("up.>",), deny=("up.no",)), SubjectRules(allow=("down.>",)))
    auth = StaticAuthenticator(users=[User("u", "p", permissions=permissions)])
    hub = servers.start("HUB", leaf=LeafOptions(auth=auth))
    shown = RemoteOptions(signer=lambda nonce: {"user": "u", "password": "p"})
    cable = servers.join(spoke, hub, shown)
    told = b"".join(data for mark, data in cable.carried if mark == "<")
    assert b'"import":{"allow":["down.>"]},"export":{"allow":["up.>"],"deny":["up.no"]}' in told
    far, near = hub.machine.connect(), spoke.machine.connect()
    far.subscribe(">")
    for pattern in ("down.>", "other.>"):
        near.subscribe(pattern)
    servers.settle()
    for subject in ("up.yes", "up.no", "elsewhere"):
        near.publish(subject)
    for subject in ("down.yes", "other.no"):
        far.publish(subject)
    servers.settle()
    assert sorted(m.subject for m in far.take()) == [b"down.yes", b"other.no", b"up.yes"]
    assert [m.subject for m in near.take()] == [b"down.yes"]
    assert cable.near.link.registered


def test_a_spoke_that_sends_what_its_user_may_not_is_cut_off(servers: Servers) -> None:
    permissions = SubjectPermissions(SubjectRules(allow=("up.>",)), SubjectRules(allow=("down.>",)))
    auth = StaticAuthenticator(users=[User("u", "p", permissions=permissions)])
    for line, error in (
        (b"LMSG other 0\r\n\r\n", b"Permissions Violation for Publish to"),
        (b"LS+ other\r\n", b"Permissions Violation for Subscription to"),
    ):
        hub = servers.start("HUB", leaf=LeafOptions(auth=auth))
        link, _ = answer(hub, user="u", **{"pass": "p"}, name="X")
        link.receive(line)
        assert said(link) == b"-ERR '%b \"other\"'\r\n" % error
        assert link.close_reason is CloseReason.PROTOCOL_VIOLATION


def test_the_link_that_a_server_lost_gives_way_to_its_new_one(servers: Servers, hub: Server, spoke: Server) -> None:
    first = servers.join(spoke, hub)
    second = servers.join(spoke, hub)
    assert first.far.link.close_reason is CloseReason.DUPLICATE_REMOTE_LEAFNODE
    assert second.far.link.registered
    assert any("Replacing connection from same server" in line for line in hub.log)


def test_a_server_that_connects_to_itself_is_a_loop(servers: Servers, hub: Server) -> None:
    cable = servers.join(hub, hub)
    assert cable.cut_off and any("Loop detected" in line for line in hub.log)


def test_a_client_port_is_the_wrong_port(servers: Servers, spoke: Server) -> None:
    link = spoke.leafs.solicit(RemoteOptions(), "127.0.0.1", 4222)
    link.receive(b'INFO {"server_id":"N","client_id":5,"headers":true,"max_payload":1}\r\n')
    assert link.close_reason is CloseReason.WRONG_PORT
    assert any("attempted to connect to wrong port" in line for line in spoke.log)


def test_a_hub_that_does_not_answer_is_given_up(servers: Servers, spoke: Server) -> None:
    silent = spoke.leafs.solicit(RemoteOptions(), "127.0.0.1", 7422)
    half = spoke.leafs.solicit(RemoteOptions(), "127.0.0.1", 7422)
    half.receive(b'INFO {"server_id":"N","client_id":5,"headers":true,"info_on_connect":true}\r\n')
    servers.advance(1.1)
    assert silent.close_reason is CloseReason.STALE_CONNECTION and half.close_reason is None
    servers.advance(1.5)
    assert half.close_reason is CloseReason.STALE_CONNECTION


def test_the_side_that_connects_may_be_the_hub(servers: Servers, hub: Server, spoke: Server) -> None:
    cable = servers.join(spoke, hub, RemoteOptions(hub=True))
    assert (cable.near.link.is_spoke, cable.far.link.is_spoke) == (False, True)
    assert b'"is_hub":true' in b"".join(data for _, data in cable.carried)


def test_credentials_over_the_link_never_reach_a_log(servers: Servers, hub: Server, spoke: Server) -> None:
    servers.join(spoke, hub, RemoteOptions(signer=lambda nonce: {"user": "u", "password": "s3cret", "jwt": "e30"}))
    assert not any("s3cret" in line or "e30" in line for line in (*hub.log, *spoke.log))


def test_a_user_that_may_answer_answers_what_it_was_sent_and_once(servers: Servers) -> None:
    permissions = SubjectPermissions(SubjectRules(allow=("up",)), SubjectRules(), ResponseRule())
    hub = servers.start(
        "HUB", leaf=LeafOptions(auth=StaticAuthenticator(users=[User("u", "p", permissions=permissions)]))
    )
    link, _ = answer(hub, user="u", **{"pass": "p"}, name="X")
    link.receive(b"LS+ ask.*\r\n")
    client = hub.machine.connect()
    sid = client.subscribe("_INBOX.1")
    client.publish("ask.me", b"", "_INBOX.1")
    link.receive(b"LMSG _INBOX.1 2\r\nhi\r\n")
    hub.machine.settle()
    assert [message.payload for message in client.take(sid)] == [b"hi"] and link.close_reason is None
    link.receive(b"LMSG _INBOX.1 2\r\nhi\r\n")
    assert link.close_reason is CloseReason.PROTOCOL_VIOLATION


def test_a_user_that_may_answer_and_is_only_denied_subjects_sends_nothing_else(servers: Servers) -> None:
    permissions = SubjectPermissions(SubjectRules(deny=("no",)), SubjectRules(), ResponseRule())
    hub = servers.start(
        "HUB", leaf=LeafOptions(auth=StaticAuthenticator(users=[User("u", "p", permissions=permissions)]))
    )
    link, _ = answer(hub, user="u", **{"pass": "p"}, name="X")
    client = hub.machine.connect()
    sid = client.subscribe("up")
    hub.machine.settle()
    link.receive(b"LMSG up 2\r\nhi\r\n")
    hub.machine.settle()
    assert client.take(sid) == [] and link.close_reason is CloseReason.PROTOCOL_VIOLATION


def test_permissions_that_a_hub_tells_later_hold_and_domains_stay_apart(
    servers: Servers, hub: Server, spoke: Server
) -> None:
    cable = servers.join(spoke, hub)
    near, far = spoke.machine.connect(), hub.machine.connect()
    near.subscribe("down.a")
    near.subscribe("other")
    servers.settle()
    cable.near.link.receive(b'INFO {"import":{"allow":["down.>"]},"export":{"deny":["up.no"]}}\r\n')
    servers.settle()
    assert not hub.machine.broker.accounts["$G"].has_interest(b"other")
    assert hub.machine.broker.accounts["$G"].has_interest(b"down.a")
    far.subscribe("up.*")
    far.subscribe("$JS.API.>")
    servers.settle()
    for subject in ("up.no", "up.yes", "$JS.API.X"):
        near.publish(subject)
    servers.settle()
    assert [message.subject for message in far.take()] == [b"up.yes"]


def test_more_servers_than_there_may_be_connections_are_turned_away(servers: Servers, hub: Server) -> None:
    hub.machine.broker.options.max_connections = 1
    first, second = (hub.leafs.accept("127.0.0.1", port) for port in (1, 2))
    assert first.close_reason is None
    assert second.close_reason is CloseReason.MAX_CONNECTIONS_EXCEEDED


def test_a_user_with_a_jwt_is_looked_at_again(servers: Servers) -> None:
    class Judge(StaticAuthenticator):
        holds = True

        def authenticate(self, credentials: Credentials) -> Grant:
            return Grant("U", "$G", jwt="e30")

        def still_holds(self, grant: Grant, credentials: Credentials) -> bool:
            return self.holds

    judge = Judge()
    hub = servers.start("HUB", leaf=LeafOptions(auth=judge))
    link, _ = answer(hub, name="X")
    hub.machine.broker.tick()
    assert link.registered
    judge.holds = False
    servers.advance(10.1)
    assert link.close_reason is CloseReason.AUTHENTICATION_VIOLATION
