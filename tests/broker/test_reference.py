"""The same words get the same answers from natsctl's sessions and from nats-server.

recorded/talks.json has what nats-server 2.15.2 answered, by `NATSCTL_RECORD=1 pytest -m reference` of this file.
"""

import json
import os
import re
import socket
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from natsctl.testing.process import ServerProcess
from tests.support.differential import as_released

QUIET_S = 0.2
"""How long to listen on for more than was recorded."""
PATIENCE_S = 30.0
"""How long to wait for as much as was recorded."""
RECORDED = Path(__file__).with_name("recorded") / "talks.json"


class Heard(NamedTuple):
    """Lines that a client was sent, and whether the server hung up."""

    lines: list[str]
    closed: bool


TALKS: dict[bytes, Heard] = {
    talk["say"].encode("latin1"): Heard(talk.get("hear", []), talk.get("closed", False))
    for talk in json.loads(RECORDED.read_text())
}


def told(data: bytes) -> list[str]:
    """Return what was heard, INFO reduced to what does not differ from server to server."""
    lines = []
    for line in data.split(b"\r\n"):
        found = re.match(rb"INFO (.*) ", line)
        if found:
            info = json.loads(found[1])
            kept = ("version", "proto", "headers", "max_payload", "connect_info", "remote_account", "api_lvl")
            line = json.dumps({key: info.get(key) for key in kept}).encode()
        lines.append(line.decode("latin1"))
    return lines


def asked(talk: bytes) -> bytes:
    """Return a talk with a last word, if it does not end in the middle of an operation."""
    return talk + b"SUB PONG 99\r\nPUB PONG 0\r\n\r\n" if talk.endswith(b"\n") else talk


def ask(server: ServerProcess, talk: bytes, expected: Heard) -> Heard:
    """Return what the reference says and whether it hangs up, once it has told `expected` or had time to."""
    url = urlsplit(server.url)
    with socket.create_connection((url.hostname, url.port), timeout=PATIENCE_S) as sock:
        data = b""
        while not data.endswith(b"} \r\n"):
            data += as_released(sock.recv(65536))
        sock.sendall(talk)
        while not data.endswith(b"PONG 99 0\r\n\r\n"):
            sock.settimeout(QUIET_S if Heard(told(data), False) == expected else PATIENCE_S)
            try:
                more = sock.recv(65536)
            except TimeoutError:
                return Heard(told(data), False)
            except ConnectionResetError:
                more = b""
            if not more:
                return Heard(told(data), True)
            data = (data + as_released(more)).replace(b"PING\r\n", b"")  # it asks after 2 s, which is long for a talk
        return Heard(told(data), False)


@pytest.mark.parametrize("talk", TALKS, ids=range(len(TALKS)))
def test_a_talk_sounds_as_on_nats_server(harness: Any, talk: bytes) -> None:
    client = harness.client(b"")
    heard = Heard(told(client.info + client.say(asked(talk))), client.session.close_reason is not None)
    assert heard == TALKS[talk], talk[-80:]


@pytest.mark.reference
def test_nats_server_still_answers_what_was_recorded(server: ServerProcess) -> None:
    heard = {talk: ask(server, asked(talk), expected) for talk, expected in TALKS.items()}
    if os.environ.get("NATSCTL_RECORD"):
        talks = [
            {"say": talk.decode("latin1"), "hear": lines, "closed": closed} for talk, (lines, closed) in heard.items()
        ]
        RECORDED.write_text(json.dumps(talks, indent=1) + "\n")
    assert {talk: (heard[talk], TALKS[talk]) for talk in TALKS if heard[talk] != TALKS[talk]} == {}
