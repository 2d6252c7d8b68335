"""The same words get the same answers from natsctl's sessions and from the reference server."""

from __future__ import annotations

import json
import re
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from natsctl.testing.process import ServerProcess
from tests.support.differential import as_released

C = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
V = b'CONNECT {"verbose":true,"pedantic":true,"headers":true,"no_responders":true}\r\n'
P1 = b'CONNECT {"verbose":false,"pedantic":false,"protocol":1}\r\n'
QUIET_S = 0.2
"""How long to listen on for more than our server said."""
PATIENCE_S = 30.0
"""How long to wait for as much as our server said."""

TALKS = [
    b"PING\r\n",
    P1 + b"PING\r\nPING\r\n",
    C + b"\r\n",
    C + b" PING\r\n",
    C + b"PINGX\r\n",
    C + b"PONGx\r\n",
    C + b"PING\nPING\n",
    C + b"+OK\r\n",
    C + b"-ERR 'x'\r\n",
    C + b'INFO {"a":1}\r\n',
    C + b"MSG a 1 2\r\nab\r\n",
    C + b"X",
    C + b"PUBX",
    C + b"PUB\r\n",
    C + b"PUB \r\n",
    C + b"SUB\r\n",
    C + b"HPUB\r\n",
    C + b"PUB foo\r\n",
    C + b"PUB a b c 1\r\nx\r\n",
    C + b"PUB foo -1\r\n",
    C + b"PUB foo +1\r\nx\r\n",
    C + b"PUB foo 01\r\nx\r\n",
    C + b"PUB foo 0000000001\r\n",
    C + b"PUB foo 1048577\r\n",
    C + b"PUB foo 1\r\nxy",
    C + b"PUB foo 1\r\nx\rz",
    C + b"PUB foo 1\r\nx\n",
    C + b"SUB foo 1\r2\r\nPUB foo 1\r\nx\r\n",
    C + b"SUB foo\r\n",
    C + b"SUB foo a b 1\r\n",
    C + b"SUB foo..a 1\r\n",
    C + b"SUB a.>.b 1\r\n",
    C + b"SUB foo a#x\r\nPUB foo 1\r\nx\r\n",
    C + b"UNSUB\r\n",
    C + b"UNSUB 1 x\r\n",
    C + b"UNSUB 1 2 3\r\n",
    C + b"HPUB foo 10 5\r\n",
    C + b"HPUB foo -1 5\r\n",
    C + b"SUB foo 1\r\nHPUB foo 0 2\r\nhi\r\n",
    C + b"SUB foo 1\r\nHPUB foo 4 6\r\njunkhi\r\n",
    C + b"HPUB foo 10 1048577\r\n",
    b'CONNECT {"verbose":false}\r\nHPUB foo 12 12\r\nNATS/1.0\r\n\r\n\r\n',
    C + b"SUB " + b"a" * 4094 + b" 1\r\n",
    C + b"SUB " + b"a" * 4095 + b" 1\r\n",
    C + b"SUB " + b"a" * 4200,
    C + b"SUB " + b" " * 5000 + b"a 1\r\n",
    C + b"PING" + b"a" * 9000 + b"\r\n",
    b"CONNECT {bad\r\n",
    b"CONNECT\r\n",
    b'CONNECT {"verbose":"x"}\r\n',
    b'CONNECT {"protocol":2}\r\n',
    b'CONNECT {"no_responders":true}\r\n',
    b'CONNECT {"account":"X"}\r\n',
    b'CONNECT {"verbose":null}\r\n',
    b"CONNECT {}\r\n",
    b"connect{}\r\n",
    C + V + b"SUB a 1\r\n",
    b"SUB foo 1\r\nPUB foo 2\r\nhi\r\n",
    V + b"SUB foo.> 1\r\nPUB foo.* 2\r\nhi\r\nPUB a..b 1\r\nx\r\nSUB a..b 2\r\nUNSUB 99\r\nPONG\r\n",
    V + b"SUB foo 1\r\nPUB foo _R_.x 1\r\nx\r\nPUB foo.* _GR_.x 1\r\nx\r\n",
    C + b"SUB inb.* 9\r\nPUB nobody inb.x 1\r\nx\r\n",
    C + b"PUB nobody inb.x 1\r\nx\r\n",
    C + b"SUB inb.* q 9\r\nPUB nobody inb.x 1\r\nx\r\n",
    V + b"SUB i 1\r\nPUB foo i 1\r\nx\r\n",
    C + b"SUB i 1\r\nPUB $SYS.REQ.USER.FOO i 0\r\n\r\n",
    C + b"SUB a 1\r\nUNSUB 1 2\r\nPUB a 0\r\n\r\nPUB a 0\r\n\r\nPUB a 0\r\n\r\n",
    C + b"SUB a 1\r\nPUB a 0\r\n\r\nPUB a 0\r\n\r\nUNSUB 1 2\r\nPUB a 0\r\n\r\n",
    C + b"SUB a 1\r\nUNSUB 1 0\r\nPUB a 0\r\n\r\n",
    V + b"SUB i 1\r\nUNSUB 1 1\r\nPUB i 1\r\nx\r\nPUB i 1\r\nx\r\n",
    C + b"SUB a 1\r\nSUB b 1\r\nPUB a 0\r\n\r\nPUB b 0\r\n\r\n",
    C + b"SUB foo.> 1\r\nPUB foo. 1\r\nx\r\nPUB foo..a 1\r\nx\r\nPUB .foo 1\r\nx\r\n",
    C + b"SUB a*b 1\r\nPUB a*b 1\r\nx\r\n",
    C + b"SUB a q.* 1\r\nPUB a 1\r\nx\r\n",
    C + b"SUB\ta\t1 \r\npub\ta   1 \r\nx\r\n",
    C + b"SUB $SYS.> 1\r\nPUB $SYS.x 1\r\nx\r\n",
    C + b"SUB a 1\r\nPUB a 6\r\n\r\nhi\r\n\r\n",
]


def told(data: bytes) -> list[bytes]:
    """Return what was heard, INFO reduced to what does not differ from server to server."""
    lines = []
    for line in data.split(b"\r\n"):
        found = re.match(rb"INFO (.*) ", line)
        if found:
            info = json.loads(as_released(found[1]))
            kept = ("version", "proto", "headers", "max_payload", "connect_info", "remote_account", "api_lvl")
            line = json.dumps({key: info.get(key) for key in kept}).encode()
        lines.append(line)
    return lines


def ask(server: ServerProcess, talk: bytes, expected: tuple[list[bytes], bool]) -> tuple[list[bytes], bool]:
    """Return what the reference says and whether it hangs up, once it has told `expected` or had time to."""
    url = urlsplit(server.url)
    with socket.create_connection((url.hostname, url.port), timeout=PATIENCE_S) as sock:
        data = b""
        while not data.endswith(b"} \r\n"):
            data += sock.recv(65536)
        sock.sendall(talk)
        while not data.endswith(b"PONG 99 0\r\n\r\n"):
            sock.settimeout(QUIET_S if (told(data), False) == expected else PATIENCE_S)
            try:
                more = sock.recv(65536)
            except TimeoutError:
                return told(data), False
            except ConnectionResetError:
                more = b""
            if not more:
                return told(data), True
            data = (data + more).replace(b"PING\r\n", b"")  # it asks after 2 s, which is long for a talk
        return told(data), False


@pytest.mark.reference
def test_talks_sound_the_same(server: ServerProcess, harness: Any) -> None:
    differences = []
    for talk in TALKS:
        # A talk that ends in the middle of an operation cannot be asked for a last word.
        asked = talk + b"SUB PONG 99\r\nPUB PONG 0\r\n\r\n" if talk.endswith(b"\n") else talk
        client = harness.client(b"")
        heard = told(client.info + client.say(asked)), client.session.close_reason is not None
        client.session.closed()
        theirs = ask(server, asked, heard)
        if heard != theirs:
            differences.append((talk[-80:], heard, theirs))
    assert not differences
