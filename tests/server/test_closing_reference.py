"""How a connection ends that has done wrong, on natsctl's server and on nats-server: the last line, then FIN or reset.

Clients tell the two apart: nats.java takes a reset for the reason of an error that it has not read.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

import pytest

from natsctl.testing.process import Kind, ServerProcess
from tests.support.tls_clients import PATIENCE_S

KINDS: Final = ["natsctl", "reference"]
HELLO: Final = b'CONNECT {"verbose":false,"user":"a","pass":"b"}\r\nPING\r\n'
STRANGER: Final = b'CONNECT {"user":"a","pass":"wrong"}\r\n'
TOO_MUCH: Final = b"-ERR 'Maximum Payload Violation'\r\n"
UNKNOWN: Final = b"-ERR 'Unknown Protocol Operation'\r\n"
LONG_LINE: Final = b"-ERR 'maximum control line exceeded'\r\n"
REFUSED: Final = b"-ERR 'Authorization Violation'\r\n"
CASES: Final = {
    "a size alone": (HELLO, b"PUB a 1001\r\n", TOO_MUCH, "FIN"),
    "a message that is a little too large": (HELLO, b"PUB a 1001\r\n" + b"x" * 1001 + b"\r\n", TOO_MUCH, "reset"),
    "a message that is much too large": (HELLO, b"PUB a 2000000\r\n" + b"x" * 2_000_000, TOO_MUCH, "reset"),
    "a message after many good ones": (HELLO, b"PUB a 1\r\nx\r\n" * 30 + b"PUB a 1001\r\n", TOO_MUCH, "FIN"),
    "no operation": (HELLO, b"FOO\r\n", UNKNOWN, "FIN"),
    "no operation and much more": (HELLO, b"FOO\r\n" + b"x" * 1000, UNKNOWN, "reset"),
    "a long line": (HELLO, b"SUB " + b"x" * 5000 + b" 1\r\n", LONG_LINE, "FIN"),
    "a very long line": (HELLO, b"SUB " + b"x" * 500_000 + b" 1\r\n", LONG_LINE, "reset"),
    "a stranger": (b"", STRANGER + b"PING\r\n", REFUSED, "FIN"),
    "a stranger who publishes": (b"", STRANGER + b"PUB a 5\r\nhello\r\n" * 100, REFUSED, "reset"),
}


def ended(port: int, hello: bytes, sent: bytes) -> tuple[bytes, str]:
    heard = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        sock.sendall(hello)
        while not heard.endswith(b"PONG\r\n" if hello else b"\r\n"):
            heard += sock.recv(65536)
        was_reset = False
        try:
            sock.sendall(sent)
        except ConnectionError:  # the server does not wait for all of it; a reset is reported once, here or below
            was_reset = True
        try:
            while data := sock.recv(65536):
                heard += data
            how = "reset" if was_reset else "FIN"
        except ConnectionResetError:
            how = "reset"
    return heard.splitlines(keepends=True)[-1], how


@pytest.mark.parametrize("kind", KINDS)
def test_a_violation_ends_a_connection_as_on_nats_server(kind: Kind, tmp_path: Path) -> None:
    conf = tmp_path / "nats.conf"
    conf.write_text("authorization { user: a, password: b }\nmax_payload: 1000\n")
    with ServerProcess(tmp_path / "store", kind, "-c", str(conf)) as server:
        port = int(server.url.rpartition(":")[2])
        told = {name: ended(port, hello, sent) for name, (hello, sent, *_) in CASES.items()}
    assert told == {name: (line, how) for name, (_, _, line, how) in CASES.items()}
