"""Random permissions let through the same as on the reference: what is refused, and what is delivered."""

import json
import random
import re
import socket
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from natsctl.broker.auth.credentials import Grant
from natsctl.broker.auth.static_auth import StaticAuthenticator
from natsctl.broker.broker_options import BrokerOptions
from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import load_text
from natsctl.server.options import ServerOptions
from natsctl.testing.process import ServerProcess

USERS: Final = 60
ROUNDS: Final = 40
CONNECT: Final = '{"verbose":false,"pedantic":false,"user":"u%d","pass":"x"}'


class Chance:
    """Random patterns from few tokens, so that they meet."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def subject(self, *, wild: bool = True) -> str:
        tokens = [self.rng.choice("abc") for _ in range(self.rng.randint(1, 3))]
        if wild and self.rng.random() < 0.4:
            tokens[self.rng.randrange(len(tokens))] = "*"
        if wild and self.rng.random() < 0.25:
            tokens[-1] = ">"
        return ".".join(tokens)

    def entry(self, *, queues: bool) -> str:
        queue = self.rng.choice(["q", "r", "q.*", "*", ">"]) if queues and self.rng.random() < 0.4 else ""
        return f"{self.subject()} {queue}".strip()

    def entries(self, *, queues: bool) -> str:
        return json.dumps([self.entry(queues=queues) for _ in range(self.rng.randint(1, 4))])

    def rules(self, *, queues: bool) -> str:
        parts = []
        if self.rng.random() < 0.6:
            parts.append(f"allow: {self.entries(queues=queues)}")
        if self.rng.random() < 0.7:
            parts.append(f"deny: {self.entries(queues=queues)}")
        return "{" + ", ".join(parts) + "}"

    def user(self, number: int) -> str:
        rules = f"publish: {self.rules(queues=False)}, subscribe: {self.rules(queues=True)}"
        return f"{{user: u{number}, password: x, permissions: {{ {rules} }} }}"

    def talk(self) -> list[bytes]:
        found = []
        for sid in range(ROUNDS):
            if self.rng.random() < 0.6:
                queue = self.rng.choice(["", "", "q", "r", "q.x"])
                found.append(f"SUB {self.subject()} {queue} {queue or 'plain'}-{sid}\r\n".encode())
            else:
                found.append(f"PUB {self.subject(wild=False)} 0\r\n\r\n".encode())
        return found


def is_wider(line: bytes, permit: Any) -> bool:
    """Tell whether `>` is subscribed to where `*` is allowed: the reference delivers what it does not allow."""
    if not line.startswith(b"SUB ") or permit is None:
        return False
    fields = line.split()
    queue = fields[2] if len(fields) == 4 else b""
    return bool(permit.may_subscribe(fields[1], queue) and permit.is_wider(fields[1]) and b">" in fields[1])


def chunks(data: bytes) -> list[bytes]:
    """Return what was heard, in no order, and of groups that they were served: by which member is left to chance."""
    lines = [line for line in data.split(b"\r\n") if line and line not in (b"PONG", b"PING")]
    return sorted(re.sub(rb"^(MSG \S+) (?!plain)(\S+)-\d+ ", rb"\1 \2 ", line) for line in lines)


def over_tcp(url: str, number: int, lines: list[bytes]) -> list[list[bytes]]:
    parts = urlsplit(url)
    heard = []
    with socket.create_connection((parts.hostname or "", parts.port or 0), 30) as sock:
        sock.recv(65536)
        sock.sendall(b"CONNECT " + (CONNECT % number).encode() + b"\r\n")
        for line in lines:
            sock.sendall(line + b"PING\r\n")
            data = b""
            while b"PONG\r\n" not in data:  # a PING of the server may come behind it
                more = sock.recv(65536)
                assert more, "the server has closed the connection"
                data += more
            heard.append(chunks(data))
    return heard


@pytest.mark.reference
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_permissions_are_the_references(seed: int, tmp_path: Path, new_harness: Any) -> None:
    chance = Chance(seed)
    text = "authorization { users: [\n" + "\n".join(chance.user(number) for number in range(USERS)) + "\n] }"
    talks = [chance.talk() for _ in range(USERS)]
    path = tmp_path / "nats.conf"
    path.write_text(text)
    users = apply(load_text(text, {}), ServerOptions()).users
    harness = new_harness(BrokerOptions(auth=StaticAuthenticator(users=users)))
    differing = []
    with ServerProcess(tmp_path / "store", "reference", "-c", str(path)) as process:
        for number, lines in enumerate(talks):
            client = harness.client(b"CONNECT " + (CONNECT % number).encode() + b"\r\n")
            assert isinstance(client.session.login.grant, Grant)
            lines = [line for line in lines if not is_wider(line, client.session.permit)]
            ours = [chunks(client.say(line)) for line in lines]
            client.session.closed()
            theirs = over_tcp(process.url, number, lines)
            differing += [
                f"{users[number].permissions} {line!r}\n  reference {their!r}\n  natsctl   {our!r}"
                for line, our, their in zip(lines, ours, theirs, strict=True)
                if our != their
            ]
    assert not differing, "\n".join(differing)
