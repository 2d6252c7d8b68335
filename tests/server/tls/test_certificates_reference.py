"""Certificates name the same users on natsctl's server and on the reference."""

from __future__ import annotations

import json
import socket
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from natsctl.testing.certificates import Authority
from natsctl.testing.process import Kind, ServerProcess, reference_binary

USERS: Final = (
    "derek@nats.io", "host.example", "spiffe://x/y", "CN=plain", "O=acme,CN=ordered",
    "CN=three,OU=two,O=one", "CN=dc,DC=example,DC=com", "DC=com,DC=reversed,CN=turned",
    "CN=comma\\\\, inc", "CN=several,O=a+O=b", "CN=uid,O=acme",
    "CN=withpass",
)  # fmt: skip
NAMES: Final[dict[str, dict[str, Any]]] = {
    "email": {"emails": ["other@x", "derek@nats.io"]},
    "host": {"dns": ["unknown", "host.example"]},
    "uri": {"uris": ["spiffe://x/y"]},
    "email before host": {"emails": ["derek@nats.io"], "dns": ["host.example"]},
    "unknown email, then subject": {"emails": ["a@b"], "attributes": [("CN", "plain")]},
    "plain": {"attributes": [("CN", "plain")]},
    "plain and more": {"attributes": [("O", "acme"), ("CN", "plain")]},
    "ordered": {"attributes": [("O", "acme"), ("CN", "ordered")]},
    "turned round": {"attributes": [("CN", "ordered"), ("O", "acme")]},
    "three": {"attributes": [("O", "one"), ("OU", "two"), ("CN", "three")]},
    "domain": {"attributes": [("DC", "com"), ("DC", "example"), ("CN", "dc")]},
    "domain, turned": {"attributes": [("DC", "com"), ("DC", "reversed"), ("CN", "turned")]},
    "domain in the order of the user": {"attributes": [("CN", "turned"), ("DC", "reversed"), ("DC", "com")]},
    "comma": {"attributes": [("CN", "comma, inc")]},
    "several": {"attributes": [("O", "a"), ("O", "b"), ("CN", "several")]},
    "other case": {"attributes": [("CN", "Plain")]},
    "nobody": {"attributes": [("CN", "nobody")]},
    "an attribute that nobody knows": {"attributes": [("UID", "u"), ("O", "acme"), ("CN", "uid")]},
    "with a password": {"attributes": [("CN", "withpass")]},
}

PATIENCE_S: Final = 30


def admitted(url: str, context: ssl.SSLContext) -> str:
    """Return who a client with a certificate is let in as, or what it hears."""
    parts = urlsplit(url)
    raw = socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_S)
    while b"\r\n" not in raw.recv(65536, socket.MSG_PEEK):
        pass
    raw.recv(65536)
    with context.wrap_socket(raw) as sock:
        sock.sendall(b'CONNECT {"verbose":false}\r\nSUB i 1\r\nPUB $SYS.REQ.USER.INFO i 0\r\n\r\n')
        heard = b""
        while not heard.endswith(b"}\r\n") and b"-ERR" not in heard:
            more = sock.recv(65536)
            assert more, heard
            heard += more
    return "refused" if b"-ERR" in heard else str(json.loads(heard.split(b"\r\n")[1])["data"]["user"])


def told(kind: Kind, folder: Path, authority: Authority, contexts: dict[str, ssl.SSLContext]) -> dict[str, str]:
    folder.mkdir()
    path, server = folder / "nats.conf", authority.issue("server", addresses=["127.0.0.1"])
    users = "\n".join(f'{{ user: "{name}"{", password: p" if "withpass" in name else ""} }}' for name in USERS)
    files = f'cert_file: "{server.cert}", key_file: "{server.key}", ca_file: "{authority.cert}"'
    path.write_text(
        f"tls {{ {files}, verify_and_map: true, timeout: {PATIENCE_S} }}\nauthorization {{ users: [ {users} ] }}"
    )
    with ServerProcess(folder / "store", kind, "-c", str(path)) as process:
        return {name: admitted(process.url, context) for name, context in contexts.items()}


@pytest.mark.skipif(reference_binary() is None, reason="nats-server is not on PATH")
def test_certificates_name_the_same_users(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    contexts = {}
    for number, (name, fields) in enumerate(NAMES.items()):
        issued = authority.issue(f"client{number}", **fields)
        contexts[name] = context = ssl.create_default_context(cafile=authority.cert)
        context.check_hostname = False
        context.load_cert_chain(issued.cert, issued.key)
    ours = told("natsctl", tmp_path / "ours", authority, contexts)
    assert ours == told("reference", tmp_path / "theirs", authority, contexts)
    assert ours["email"] == "derek@nats.io" and ours["nobody"] == "refused"
