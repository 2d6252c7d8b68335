"""Certificates name the same users on natsctl's server and on nats-server, and are worth the same when they end."""

import json
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml

from natsctl.server.tls.certificates import certificate_of, dns_names, not_after, peer_certificate
from natsctl.testing.certificates import Authority, Issued
from natsctl.testing.process import Kind
from tests.support.conf_server import ConfServer
from tests.support.tls_clients import Files, Visit, more, visit

BASE: Final = [("C", "US"), ("ST", "CA"), ("L", "Los Angeles")]
LOCAL: Final = [*BASE, ("O", "NATS"), ("OU", "NATS"), ("CN", "localhost")]
CERTIFICATES: Final[dict[str, dict[str, Any]]] = {
    "email": {"emails": ["other@x", "derek@nats.io"]},
    "host": {"dns": ["unknown", "host.example"]},
    "uri": {"uris": ["spiffe://x/y"]},
    "email and host": {"emails": ["derek@nats.io"], "dns": ["host.example"]},
    "email and subject": {"emails": ["a@b"], "attributes": [("CN", "plain")]},
}
SUBJECTS: Final[dict[str, list[tuple[str, str]]]] = {
    "a": [*LOCAL, ("DC", "foo1"), ("DC", "foo2")],
    "b": LOCAL,
    "c": [*LOCAL, ("DC", "foo3"), ("DC", "foo4")],
    "d": [*BASE, ("OU", "NATS"), ("O", "NATS"), ("CN", "*.example.com"), ("DC", "example"), ("DC", "com")],
    "e": [("CN", "John Doe"), ("CN", "123456"), ("CN", "jdoe"), ("OU", "Users"), ("OU", "Organic Units"),
          ("DC", "acme"), ("DC", "com")],
    "f": [("DC", "org"), ("DC", "OpenSSL"), ("DC", "DEV"), ("+O", "users"), ("CN", "John Doe")],
    "g": [("O", "acme"), ("UID", "u"), ("CN", "uid")],
    "h": [("CN", "comma, inc")],
    "i": [("O", "a"), ("O", "b"), ("CN", "several")],
    "j": [("O", "acme"), ("CN", "plain")],
    "k": [("CN", "plain"), ("O", "acme")],
    "l": [("O", "one"), ("OU", "two"), ("CN", "three")],
    "m": [("DC", "com"), ("DC", "example"), ("CN", "dc")],
    "n": [("CN", "turned"), ("DC", "reversed"), ("DC", "com")],
}  # fmt: skip
"""What certificates have as their subjects, in the order of their encoding."""
CASES: Final[dict[str, list[Any]]] = yaml.safe_load(
    (Path(__file__).parent / "certificate_logins.yaml").read_text(encoding="utf-8")
)
"""The subject of a certificate, the users, and which one it is. Those of nats-server's own tests, and some more."""

PATIENCE_S: Final = 30


def admitted(url: str, context: ssl.SSLContext) -> str:
    parts = urlsplit(url)
    raw = socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_S)
    while not more(raw).endswith(b"\n"):
        pass
    with context.wrap_socket(raw, server_hostname="localhost") as sock:
        sock.sendall(b'CONNECT {"verbose":false}\r\nSUB i 1\r\nPUB $SYS.REQ.USER.INFO i 0\r\n\r\n')
        heard = b""
        while not heard.endswith(b"}\r\n") and b"-ERR" not in heard:
            heard += more(sock)
    return "refused" if b"-ERR" in heard else str(json.loads(heard.split(b"\r\n")[1])["data"]["user"])


KINDS: Final = ["natsctl", "reference"]
VERSIONS: Final = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Comings:
    """A server whose users are named by certificates, and a client that comes with its last session each time."""

    def __init__(self, folder: Path, kind: Kind, version: ssl.TLSVersion) -> None:
        self.files = Files(folder / "tls")
        self._version = version
        self._context: ssl.SSLContext
        self._session: ssl.SSLSession | None = None
        self.trust(self.files.authority)
        self.process = ConfServer(folder / "store", kind, self.text("ann@nats.io"))

    def begin(self, life_s: float = 86400) -> None:
        client = self.files.authority.issue("client", emails=["ann@nats.io"], days=life_s / 86400)
        self._context, self._session = self.files.client(client), None
        self._context.minimum_version = self._context.maximum_version = self._version

    def text(self, *names: str, more: str = "") -> str:
        """Return a configuration; without users, everybody with a certificate may come in."""
        server, trusted = self.files.server, self.files.folder / "trusted.pem"
        files = f'cert_file: "{server.cert}", key_file: "{server.key}", ca_file: "{trusted}"'
        verify = f"{'verify_and_map' if names else 'verify'}: true"
        listed = ", ".join(f'{{ user: "{name}" }}' for name in names)
        users = f"authorization {{ users: [ {listed} ] }}\n" if names else ""
        return f"tls {{ {files}, {verify}, timeout: {PATIENCE_S} {more} }}\n{users}"

    def trust(self, authority: Authority) -> None:
        (self.files.folder / "trusted.pem").write_bytes(authority.cert.read_bytes())

    def come(self) -> Visit:
        seen = visit(self.process.port, self._context, self._session)
        self._session = seen.session or self._session
        return seen


@pytest.mark.live
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_that_expired_since_the_session_began_is_refused(
    kind: Kind, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    comings = Comings(tmp_path, kind, version)
    comings.process = ConfServer(tmp_path / "server", kind, comings.text())
    with comings.process:
        for life_s in (2, 10, 60):  # a slow machine takes long until the second connection
            comings.begin(life_s)
            if comings.come().heard == comings.come().heard == b"PONG\r\n":
                break
        time.sleep(life_s)
        assert comings.come().heard != b"PONG\r\n"
        comings.begin()
        assert comings.come().heard == b"PONG\r\n"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_reload_revokes_no_session_keeps(kind: Kind, version: ssl.TLSVersion, tmp_path: Path) -> None:
    comings = Comings(tmp_path, kind, version)
    heard = {}
    comings.begin()
    with comings.process:
        for change in ("authority", "user", "pins"):
            assert comings.come().heard == comings.come().heard == b"PONG\r\n"
            comings.trust(comings.files.stranger if change == "authority" else comings.files.authority)
            pins = f', pinned_certs: ["{"0" * 64}"]' if change == "pins" else ""
            comings.process.reload(comings.text("bob@nats.io" if change == "user" else "ann@nats.io", more=pins))
            heard[change] = comings.come().heard
            comings.trust(comings.files.authority)
            comings.process.reload(comings.text("ann@nats.io"))
    assert heard.pop("user") == b"-ERR 'Authorization Violation'\r\n"
    assert all(b"PONG" not in line for line in heard.values()), heard


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_names_its_user_by_the_whole_subject_before_its_text(kind: Kind, tmp_path: Path) -> None:
    comings = Comings(tmp_path, kind, VERSIONS[-1])
    contexts = {
        name: comings.files.client(comings.files.authority.issue(f"client {name}", **fields))
        for name, fields in (CERTIFICATES | {name: {"attributes": one} for name, one in SUBJECTS.items()}).items()
    }
    named = {}
    with comings.process as process:
        for case, (subject, users, _) in CASES.items():
            process.reload(comings.text(*users))
            named[case] = admitted(process.url, contexts[subject])
    assert named == {case: user for case, (_, _, user) in CASES.items()}


def der(issued: Issued) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.cert.read_text())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


ODD = [
    ("C", "CH"), ("ST", "x y"), ("O", "A, B"), ("OU", "u1"), ("OU", "u2"), ("DC", "nats"), ("DC", "io"), ("UID", "7"),
    ("CN", "ann"), ("CN", " bob+# "), ("SERIALNUMBER", "5"),
]  # fmt: skip


def test_a_subject_is_written_as_the_reference_writes_it(authority: Authority) -> None:
    found = certificate_of(der(authority.issue("odd", attributes=ODD)))
    assert found.subject == r"SERIALNUMBER=5,CN=\ bob\+#\ ,OU=u1+OU=u2,O=A\, B,ST=x y,C=CH"
    assert found.domain_components == found.subject + ",DC=nats,DC=io"


def test_connz_shows_also_what_has_no_short_name(authority: Authority) -> None:
    name = peer_certificate(der(authority.issue("odd", attributes=[*ODD, ("DC", "é")]))).subject
    uid, components = "0.9.2342.19200300.100.1.1=#130137", "0.9.2342.19200300.100.1.25"
    tail = f",{components}=#0c02c3a9,{uid},{components}=#1302696f,{components}=#13046e617473"
    assert name == r"SERIALNUMBER=5,CN=\ bob\+#\ ,OU=u1+OU=u2,O=A\, B,ST=x y,C=CH" + tail


def test_alternative_names_are_kept_by_kind(authority: Authority) -> None:
    issued = authority.issue("names", dns=["A.test", "*.b.test"], emails=["a@b.c"], uris=["spiffe://a/b"])
    found = certificate_of(der(issued))
    assert (found.dns_names, found.emails, found.uris) == (("A.test", "*.b.test"), ("a@b.c",), ("spiffe://a/b",))
    assert found.domain_components == ""
    assert dns_names(issued.cert) == ["a.test", "*.b.test"]


def test_a_certificate_without_names_has_none(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue("bare", attributes=[("DC", "only")])
    found = certificate_of(der(issued))
    assert (found.subject, found.domain_components) == ("", ",DC=only")
    assert not_after(issued.cert).tzinfo is not None
