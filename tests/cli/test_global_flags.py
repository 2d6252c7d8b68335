"""Flags of every command: what each of them does to a command that is run."""

import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.times import parse_time
from tests.client.conftest import FakeServer, serving
from tests.support.commands import Run

pytestmark = pytest.mark.ours("what a client says and shows")


def _connect(natsctl: Run, *flags: str, stdin: bytes | None = None) -> dict[str, Any]:
    """What a client says in CONNECT to a server that refuses it."""
    fake = FakeServer(auth_required=True, nonce="abc")
    fake.login_error = "Authorization Violation"  # so that nobody waits
    with serving(fake) as url:
        natsctl("-s", url, "--timeout", "30s", *flags, "stream", "ls", stdin=stdin)
    return fake.connects[0]


def test_the_server_is_told_who_connects(natsctl: Run, tmp_path: Path) -> None:
    assert _connect(natsctl, "--connection-name", "nightly")["name"] == "nightly"
    token = _connect(natsctl, "--token-stdin", stdin=b"of stdin\nrest")
    assert token["auth_token"] == "of stdin"
    login = _connect(natsctl, "--user", "bob", "--password-stdin", stdin=b"pw\n")
    assert (login["user"], login["pass"]) == ("bob", "pw")
    (tmp_path / "user.jwt").write_text("eyJ0eXAiOiJKV1QifQ.x.y\n")
    assert _connect(natsctl, "--jwt", str(tmp_path / "user.jwt"))["jwt"] == "eyJ0eXAiOiJKV1QifQ.x.y"
    assert _connect(natsctl, "--jwt", "eyJ0eXAiOiJKV1QifQ.x.z")["jwt"] == "eyJ0eXAiOiJKV1QifQ.x.z"


class SocksProxy:
    """A SOCKS 5 proxy without logins, for one connection at a time."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, int]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"socks5://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.recv(client.recv(2)[1])
            client.sendall(b"\x05\x00")
            kind = client.recv(4)[3]
            name = client.recv(4) if kind == 1 else client.recv(client.recv(1)[0])
            port = int.from_bytes(client.recv(2), "big")
            self.asked.append((name, port))
            with socket.create_connection(("127.0.0.1", port)) as server:
                client.sendall(b"\x05\x00\x00\x01" + bytes(6))
                threading.Thread(target=pump, args=(client, server), daemon=True).start()
                pump(server, client)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # whoever accepts would keep it
        self._listener.close()


def pump(here: socket.socket, there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := here.recv(65536):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)


def test_a_socks_proxy_is_gone_through(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = SocksProxy()
    port = int(os.environ["NATS_URL"].rpartition(":")[2])
    server = f"nats://localhost:{port}"
    assert natsctl("-s", server, "--socks-proxy", proxy.url, "stream", "add", "S", "--subjects", "s").code == 0
    monkeypatch.setenv("NATS_SOCKS_PROXY", proxy.url.removeprefix("socks5://"))
    assert natsctl("-s", server, "stream", "ls", "-n").out == "S\n"
    assert proxy.asked == [(b"localhost", port)] * 2
    proxy.close()
    done = natsctl("-s", server, "stream", "ls")
    assert (done.code, "no way through the SOCKS proxy" in done.err) == (5, True)
    monkeypatch.delenv("NATS_SOCKS_PROXY")
    assert natsctl("--socks-proxy", "gopher://x:1", "stream", "ls").code == 2


def test_a_seed_that_is_none_is_told(natsctl: Run) -> None:
    done = natsctl("--jwt", "eyJ0eXAiOiJKV1QifQ.x.y", "--seed", "SUNOSEED", "stream", "ls")
    assert (done.code, "seed" in done.err) == (2, True)


def test_times_are_shown_in_utc_where_that_is_asked_for(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    natsctl("str", "add", "S", "--subjects", "s")
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert "+05:30" in natsctl("str", "info", "S").out
        shown = natsctl("str", "info", "S", "--utc")
        assert "+00:00" in shown.out
        assert "+05:30" not in shown.out
        assert "+05:30" in natsctl("str", "info", "S").out
        assert os.environ["TZ"] == "Asia/Kolkata"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert parse_time("2026-01-01T00:00:00Z")


def test_tables_look_as_the_scheme_says(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    natsctl("str", "add", "S", "--subjects", "s")
    assert "╭" in natsctl("str", "ls").out
    assert "╔" in natsctl("str", "ls", "--colors", "double").out
    assert "╭" in natsctl("str", "ls").out
    monkeypatch.setenv("NATS_COLOR", "double")
    assert "╔" in natsctl("str", "ls").out
    monkeypatch.setenv("NATS_COLOR", "unknown")
    assert "╭" in natsctl("str", "ls").out
    assert natsctl("str", "ls", "--colors", "pink").code == 2


@pytest.mark.both
def test_domain_and_tls_first_have_a_second_spelling(natsctl: Run) -> None:
    done = natsctl("--domain", "nowhere", "stream", "ls", "-j")
    assert done.error["subject"] == "$JS.nowhere.API.STREAM.LIST"
    assert natsctl("--tls-first", "stream", "ls").code == 5


def test_advisories_are_heard_below_their_prefix(natsctl: Run, begun: Run) -> None:
    words = ("-j", "--wait", "20s", "--js-advisory", "--count", "1")
    listening = begun("events", *words, "--js-event-prefix", "from.hub")
    while listening.poll() is None:
        natsctl("publish", "from.hub.ADVISORY.X.Y", '{"type": "io.nats.x", "id": "1"}', "-q")
    assert '"type":"io.nats.x"' in listening.communicate()[0]
