"""Options of the whole server that every client is held to."""

import json

from natsctl.api.subject_index import finish
from natsctl.broker.broker import MAX_SUBS, ClosedSessions
from natsctl.broker.broker_options import BrokerOptions
from tests.broker.conftest import BrokerHarness

PLAIN = b'CONNECT {"verbose":false,"headers":true,"protocol":1}\r\n'


def test_a_server_without_headers_says_so_and_takes_none() -> None:
    harness = BrokerHarness(BrokerOptions(headers=False))
    client = harness.client(PLAIN)
    assert json.loads(client.info[5:])["headers"] is False
    assert client.say(b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\nPING\r\n") == b""
    assert client.session.close_reason is not None


def test_a_client_can_not_ask_for_no_responders_where_there_are_no_headers() -> None:
    client = BrokerHarness(BrokerOptions(headers=False)).client(b"")
    said = client.say(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nPING\r\n')
    assert said == b"-ERR 'no responders requires headers support'\r\n"


def test_the_clients_that_are_too_many_after_a_reload_are_closed() -> None:
    harness = BrokerHarness()
    clients = [harness.client(PLAIN) for _ in range(5)]
    harness.broker.options.max_connections = 2
    left = [len(harness.account.sessions) for _ in harness.broker.close_excess()]
    assert left == [5, 4, 3]
    assert [client.session.close_reason is None for client in clients] == [False, False, False, True, True]
    assert finish(harness.broker.close_excess()) == 0


def test_connections_that_have_ended_are_remembered_with_a_bounded_number_of_subscriptions() -> None:
    harness = BrokerHarness()
    sessions = []
    for _ in range(MAX_SUBS // 1000 + 5):
        client = harness.client()
        client.say(b"".join(b"SUB a %d\r\n" % sid for sid in range(1000)))
        client.session.closed()
        sessions.append(client.session)
    kept = [len(session.left_subs) for session in sessions]
    assert kept == [0] * 5 + [1000] * (MAX_SUBS // 1000)
    assert [session.left_count for session in sessions] == [1000] * len(sessions)
    assert list(harness.broker.closed) == sessions


def test_the_oldest_of_too_many_ended_connections_are_forgotten_with_their_subscriptions() -> None:
    harness = BrokerHarness()
    harness.broker.closed = ClosedSessions(most=2)
    for number in range(4):
        client = harness.client()
        client.say(b"SUB a.%d 1\r\n" % number)
        client.session.closed()
        if number == 0:
            first = client.session
    assert [sub.subject for session in harness.broker.closed for sub in session.left_subs] == [b"a.2", b"a.3"]
    assert first.left_subs == ()


def test_nothing_secret_is_kept_of_a_connection_that_has_ended() -> None:
    harness = BrokerHarness()
    client = harness.client(b'CONNECT {"user":"u","pass":"secret","jwt":"secret","verbose":false}\r\n')
    client.session.closed()
    login = client.session.login
    assert login.credentials is None
    assert (login.options.user, login.options.password, login.options.jwt) == ("u", "", "")
