"""Lines after which nats-server closes a connection, and their neighbours after which it does not."""

import socket
from typing import Final

import pytest

from natsctl.testing.process import ServerProcess
from natsctl.wire.leaf import LeafParser
from natsctl.wire.ops import FaultKind, Limits, Op
from natsctl.wire.parser import Parser
from tests.support.servers import PATIENCE_S, server, started

__all__ = ["server", "started"]

HEADERS: Final = b'CONNECT {"verbose":false,"headers":true}\r\n'
NO_HEADERS: Final = b'CONNECT {"verbose":false,"headers":false}\r\n'
UNKNOWN: Final = b"-ERR 'Unknown Protocol Operation'\r\n"


def answer(url: str, lines: bytes) -> bytes:
    host, _, port = url.rpartition("/")[2].rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as sock:
        received = b""
        while b"\r\n" not in received:
            received += sock.recv(65536)
        sock.sendall(lines + b"PING\r\n")
        received = b""
        while not received.endswith(b"PONG\r\n"):
            try:
                chunk = sock.recv(65536)
            except ConnectionResetError:
                break
            if not chunk:
                break
            received += chunk
    return received


CLOSING: Final = (
    # A CR is no blank in the arguments of a publish.
    b"PUB a 2\r\r\nhi\r\n", b"PUB a b 2\r\r\nhi\r\n", b"PUB a 2\r\r\r\nhi\r\n", b"PUB a 0\r\r\n\r\n",
    b"pub a 2\r\r\nhi\r\n",
    b"PUB a 2\r \r\nhi\r\n", b"PUB a \r2\r\nhi\r\n", b"HPUB a b 2 2\r\r\nhi\r\n", b"HPUB a 2 2\r\r\nhi\r\n",
    b"HPUB a 12 12\r\r\nNATS/1.0\r\n\r\n\r\n", b"HPUB a 12\r 12\r\nNATS/1.0\r\n\r\n\r\n",
    # INFO has an object.
    b"INFO\r\n", b"INFO \r\n", b"INFO x\r\n", b"INFO {\r\n", b"INFO{\r\n", b"INFO []\r\n", b"INFO 5\r\n",
    b'INFO "x"\r\n', b"INFOx {}\r\n", b"INFO {} x\r\n", b'INFO {"a":1}{"b":2}\r\n', b"info x\r\n",
    b"-ERR 'x'\r\n", b"-ERR \r\n", b"-err\tx\r\n",
)  # fmt: skip


@pytest.mark.both
@pytest.mark.parametrize("line", CLOSING)
def test_it_closes(server: ServerProcess, line: bytes) -> None:
    assert answer(server.url, HEADERS + line) == b""


@pytest.mark.both
@pytest.mark.parametrize("line", [b"-ERR\r\n", b"-ERRx\r\n", b"-ERR\n", b"-ERR\r\r\n"])
def test_it_closes_with_an_error(server: ServerProcess, line: bytes) -> None:
    assert answer(server.url, HEADERS + line) == UNKNOWN


OPEN: Final = (
    b"PUB a 2\nhi\r\n", b"PUB a 2 \t\r\nhi\r\n", b"PUB a 3\r\nh\ri\r\n", b"PUB a 2\r\n\r\r\r\n",
    b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n", b"HPUB a 0 5\r\nhello\r\n", b"HPUB a 0 0\r\n\r\n", b"HPUB a 2 2\r\nhi\r\n",
    b"SUB a 1\r\r\n", b"SUB a q 1\r\r\n", b"SUB a\r1\r\n", b"UNSUB 1\r\r\n", b"UNSUB 1 2\r\r\n", b"PONG\r\r\n",
    b"INFO {}\r\n", b"INFO{}\r\n", b"INFO\t{}\r\n", b"INFO null\r\n", b"INFO {}\r\r\n", b'INFO {"a":1}\n',
    b"info {}\r\n", b'INFO \t {"a":[1, {"b": null}]} \t\r\n', b'INFO {"server_id":"\xff"}\r\n', b"CONNECT {}\r\r\n",
    b"+OK\r\r\n", b"+OKx\r\n",
)  # fmt: skip


@pytest.mark.both
@pytest.mark.parametrize("line", OPEN)
def test_it_goes_on(server: ServerProcess, line: bytes) -> None:
    assert answer(server.url, HEADERS + line).endswith(b"PONG\r\n")


@pytest.mark.both
@pytest.mark.parametrize("line", [b"HPUB a 0 5\r\nhello\r\n", b"HPUB a 0 0\r\n\r\n", b"HPUB a 2 4\r\nhihi\r\n"])
@pytest.mark.parametrize("hello", [NO_HEADERS, b"", HEADERS + NO_HEADERS], ids=["no headers", "no CONNECT", "no more"])
def test_headers_are_for_clients_that_announce_them(server: ServerProcess, hello: bytes, line: bytes) -> None:
    """Also empty ones, in the chunk that begins with CONNECT and in a later one."""
    assert not answer(server.url, hello + line).endswith(b"PONG\r\n")
    assert answer(server.url, hello + HEADERS + line).endswith(b"PONG\r\n")
    assert answer(server.url, hello + b"PUB a 5\r\nhello\r\n").endswith(b"PONG\r\n")


@pytest.mark.both
def test_an_empty_header_is_none(server: ServerProcess) -> None:
    answered = answer(server.url, HEADERS + b"SUB a 1\r\nHPUB a 0 5\r\nhello\r\nHPUB a b 0 0\r\n\r\nPUB a 2\r\nhi\r\n")
    assert b"MSG a 1 5\r\nhello\r\nMSG a 1 b 0\r\n\r\nMSG a 1 2\r\nhi\r\n" in answered


@pytest.mark.parametrize("verb", [b"PUB", b"HPUB"])
@pytest.mark.parametrize("target", [b"a\rb", b"a\r", b"\ra", b"\r", b"a \rb", b"a b\r", b"a\r\r"])
def test_a_subject_with_a_cr_is_refused(verb: bytes, target: bytes) -> None:
    """nats-server delivers it, to clients that cannot read it; a hub takes `denied\\rx` for `denied` with reply `x`."""
    body = b"NATS/1.0\r\n\r\nhi\r\n"
    line = verb + b" " + target + (b" 14\r\n" if verb == b"PUB" else b" 12 14\r\n")
    for padding in (b"", b"PUB a 1\r\nx\r\n", b"SUB a 1\r\n"):
        for chunks in ([padding + line + body], [padding + line, body], [padding + line[:-1], line[-1:] + body]):
            parser = Parser()
            ops: list[Op] = [op for chunk in chunks for op in parser.feed(chunk)]
            assert len(ops) == bool(padding)
            assert parser.fault is not None
            assert parser.fault.kind is FaultKind.MALFORMED


@pytest.mark.parametrize("line", [b"LMSG a\rb 14", b"LMSG a\r 14", b"LMSG a + r\r q 14", b"HMSG a\rb 12 14"])
def test_a_hub_refuses_it_too(line: bytes) -> None:
    body = b"NATS/1.0\r\n\r\nhi\r\n"
    for padding in (b"", b"LMSG a 1\r\nx\r\n"):
        for end in (b"\r\n", b"\n"):
            parser = LeafParser(Limits())
            assert len(parser.feed(padding + line + end + body)) == bool(padding)
            assert parser.fault is not None
            assert parser.fault.kind is FaultKind.MALFORMED
