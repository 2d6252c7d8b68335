"""The blocking connection: logins, TLS, whole messages, errors, servers that go."""

from pathlib import Path

import nkeys
import pytest

from natsctl.spark.source.errors import (
    NoResponseError,
    OptionError,
    ServerUnreachableError,
    SourceConnectionLostError,
    SourceNotAuthorisedError,
)
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.link import Link
from natsctl.testing.certificates import Authority
from natsctl.testing.process import Kind, ServerProcess
from tests.spark.source.fakes import Visitor, scripted

KINDS: list[Kind] = ["natsctl", "reference"]
SEED = nkeys.from_seed(nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)).seed.decode()
PUBLIC = nkeys.from_seed(SEED.encode()).public_key.decode()
USERS = f"""
authorization {{
  users = [
    {{ user: ann, password: "p w", permissions: {{ publish: {{ deny: "secret.>" }} }} }}
    {{ nkey: {PUBLIC} }}
  ]
}}
"""
CONFIGS = Path(__file__).parents[3] / "examples" / "configs"


def settings(url: str, *more: str, **said: object) -> ServerSettings:
    return ServerSettings(urls=(url, *more), retries=0, retry_interval_s=0.01, **said)  # type: ignore[arg-type]  # of any field


def running(tmp_path: Path, kind: Kind, conf: str) -> ServerProcess:
    path = tmp_path / "nats.conf"
    path.write_text(conf)
    return ServerProcess(tmp_path / "server", kind, "-c", str(path))


def bare(url: str) -> str:
    """The address without the scheme that a ports file gives it."""
    return url.rpartition("/")[2]


# Logins


CREDS = (CONFIGS / "operator-app.creds").read_text()
JWT, JWT_SEED = (line for line in CREDS.splitlines() if line.startswith(("ey", "SU")))
OPERATOR = (CONFIGS / "operator.conf").read_text().replace("store_dir: /data/jetstream,", "").replace("4222", "-1")
OTHER = nkeys.from_seed(nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_USER)).seed.decode()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("conf", "good", "bad"),
    [
        (USERS, [{"user": "ann", "password": "p w"}, {"seed": SEED}], [{}, {"user": "ann"}, {"seed": OTHER}]),
        ('authorization { token: "a:b" }', [{"token": "a:b"}], [{"token": "x"}]),
        (OPERATOR, [{"jwt": JWT, "seed": JWT_SEED}], [{"jwt": JWT, "seed": SEED}]),
    ],
    ids=["users", "token", "jwt"],
)
def test_logins_are_taken_and_refused(
    kind: Kind, conf: str, good: list[dict[str, str]], bad: list[dict[str, str]], tmp_path: Path
) -> None:
    with running(tmp_path, kind, conf) as process:
        for login in good:
            with Link.open(settings(process.url, **login)) as link:
                assert link.request("nobody.there").status == 503
        for login in bad:
            with pytest.raises(SourceNotAuthorisedError, match="refuses the login"):
                Link.open(settings(process.url, **login))
        if conf == USERS:
            with Link.open(settings(f"nats://ann:p%20w@{bare(process.url)}")) as link:
                with pytest.raises(SourceNotAuthorisedError, match="secret"):
                    link.request("secret.plan")
                assert link.request("nobody.there").status == 503


# TLS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [False, True])
def test_tls_needs_nothing_but_texts(kind: Kind, first: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    own, client = authority.issue("server", addresses=["127.0.0.1"]), authority.issue("client", emails=["ann@x.io"])
    conf = f'tls {{ cert_file: "{own.cert}", key_file: "{own.key}", ca_file: "{authority.cert}", verify: true'
    ca, cert, key = authority.cert.read_text(), client.cert.read_text(), client.key.read_text()
    with running(tmp_path, kind, f"{conf}, handshake_first: {str(first).lower()} }}") as process:
        url = f"tls://{bare(process.url)}"
        with Link.open(settings(url, tls_ca=ca, tls_cert=cert, tls_key=key, tls_first=first)) as link:
            assert link.request("nobody.there").status == 503
            with pytest.raises(NoResponseError):
                link.read(0)
        with Link.open(settings(url, tls_insecure=True, tls_cert=cert, tls_key=key, tls_first=first)) as link:
            assert link.request("nobody.there").status == 503
        with pytest.raises(SourceNotAuthorisedError, match="certificate is not accepted"):
            Link.open(settings(url, tls_cert=cert, tls_key=key, tls_first=first))
        with pytest.raises(ServerUnreachableError):
            Link.open(settings(url, tls_ca=ca, tls_first=first))


def test_half_a_certificate_and_no_certificate_are_told() -> None:
    url = "nats://127.0.0.1:1"
    with pytest.raises(OptionError, match="go together"):
        Link.open(settings(url, tls_cert="x"))
    with pytest.raises(OptionError, match="tlsCa"):
        Link.open(settings(url, tls_ca="no certificate"))
    with pytest.raises(OptionError, match="tlsCert, tlsKey"):
        Link.open(settings(url, tls_cert="no certificate", tls_key="no key"))


# Addresses


@pytest.mark.parametrize("url", ["ws://a:80", "wss://a", "http://a", "nats://", "nats://a:x", "tls://u:secret@a:99999"])
def test_addresses_that_cannot_be_are_told(url: str) -> None:
    with pytest.raises(OptionError, match="servers") as caught:
        Link.open(settings("nats://127.0.0.1:4222", url))
    assert "secret" not in str(caught.value)


def test_another_server_is_taken_where_one_does_not_answer() -> None:
    with scripted(lambda visitor: None) as dead, scripted(answering) as alive, Link.open(settings(dead, alive)) as link:
        assert link.request("a").body == b"hello"


def test_servers_of_the_cluster_are_learned() -> None:
    with scripted(answering) as other:

        def leaving(visitor: Visitor) -> None:
            visitor.greet(connect_urls=[bare(other)], ldm=True)

        with scripted(leaving) as url, Link.open(settings(url)) as link:
            assert link.lame_duck
            with pytest.raises(SourceConnectionLostError):
                link.request("a")
            link.reopen()
            assert link.request("a").body == b"hello"


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-x\r\n"])
def test_what_is_no_nats_server_is_told_after_all_retries(greeting: bytes) -> None:
    fault = pytest.raises(ServerUnreachableError, match="does not speak the NATS protocol")
    with scripted(lambda visitor: visitor.send(greeting), visits=3) as url, fault:
        Link.open(ServerSettings(urls=(url,), retries=2, retry_interval_s=0.01))


# Messages


def answering(visitor: Visitor) -> None:
    visitor.greet()
    _, reply, _ = visitor.asked()
    visitor.send(b"MSG %b 1 5\r\nhello\r\n" % reply)
    visitor.line()


def test_pings_are_answered_and_cut_out_but_not_of_payloads() -> None:
    heard: list[bytes] = []

    def talk(visitor: Visitor) -> None:
        visitor.greet()
        _, reply, _ = visitor.asked()
        visitor.send(b"PING\r\nMSG a 9 12\r\nx\r\nPING\r\nxxx\r\nPING\r\nMSG a 9 1\r\ny")
        heard.extend([visitor.line(), visitor.line()])
        visitor.send(b"\r\nMSG %b 1 2\r\nok\r\n" % reply)
        visitor.line()

    with scripted(talk) as url, Link.open(settings(url)) as link:
        assert link.request("b").body == b"ok"
        assert link.read(0) == b"MSG a 9 12\r\nx\r\nPING\r\nxxx\r\nMSG a 9 1\r\ny\r\n"
    assert heard == [b"PONG", b"PONG"]


def test_what_arrives_while_asking_is_kept_unless_it_was_unsubscribed() -> None:
    def talk(visitor: Visitor) -> None:
        visitor.greet()
        _, reply, _ = visitor.asked()
        visitor.send(b"MSG a 2 1\r\nx\r\nMSG b 3 1\r\ny\r\nMSG %b 1 2\r\nok\r\nMSG b 3 1\r\nz\r\n" % reply)
        visitor.line()

    with scripted(talk) as url, Link.open(settings(url)) as link:
        left, kept = link.subscribe("a"), link.subscribe("b")
        assert (left, kept) == (2, 3)
        link.unsubscribe(left)
        assert link.request("c").body == b"ok"
        assert link.read(0).startswith(b"MSG b 3 1\r\ny\r\n")


def test_what_is_given_back_comes_again() -> None:
    with scripted(answering) as url, Link.open(settings(url)) as link:
        link.unread(b"MSG a 9 1\r\nx\r\n")
        assert link.request("a").body == b"hello"
        assert link.read(0) == b"MSG a 9 1\r\nx\r\n"


def test_much_may_be_sent_after_a_look_at_what_came() -> None:
    heard: list[int] = []

    def talk(visitor: Visitor) -> None:
        visitor.greet()
        heard.append(len(visitor.asked()[2]))

    with scripted(talk) as url, Link.open(settings(url)) as link:
        with pytest.raises(NoResponseError):
            link.read(0)
        link.send(b"PUB a %d\r\n%b\r\n" % (32 << 20, bytes(32 << 20)))
    assert heard == [32 << 20]


def test_silence_is_told_and_a_late_answer_is_not_taken_for_the_next() -> None:
    def talk(visitor: Visitor) -> None:
        visitor.greet()
        _, first, _ = visitor.asked()
        _, second, _ = visitor.asked()
        visitor.send(b"MSG %b 1 3\r\nold\r\nMSG %b 1 3\r\nnew\r\n" % (first, second))
        visitor.line()

    with scripted(talk) as url, Link.open(settings(url)) as link:
        with pytest.raises(NoResponseError, match="no answer on a within"):
            link.request("a", timeout_s=0.01)
        assert link.request("b").body == b"new"
        with pytest.raises(NoResponseError):
            link.read(0.01)


def test_errors_that_end_the_connection_are_told() -> None:
    def talk(visitor: Visitor) -> None:
        visitor.greet()
        visitor.line()
        visitor.send(b"-ERR 'Stale Connection'\r\n")

    with scripted(talk) as url, Link.open(settings(url)) as link:
        with pytest.raises(SourceConnectionLostError, match="Stale Connection"):
            link.flush(20)
        with pytest.raises(SourceConnectionLostError, match="closed the connection"):
            link.read(20)
        link.close()
        link.close()
        with pytest.raises(SourceConnectionLostError, match="is closed"):
            link.request("a")


@pytest.mark.both
def test_headers_of_requests_and_answers_arrive(server: ServerProcess) -> None:
    with Link.open(settings(server.url)) as link, Link.open(settings(server.url)) as other:
        sid = other.subscribe("echo")
        assert other.request("nobody").status == 503
        link.send(b"HPUB echo 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n")
        assert other.read(20) == b"HMSG echo %d 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n" % sid
