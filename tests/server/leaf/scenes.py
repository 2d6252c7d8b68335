"""Random accounts, permissions and traffic on both sides of a leaf node link, and what arrives where.

Theory of operation. A `Scene` is an account of a hub and one of a spoke that a link joins, a second account on either
side that imports from the first, a user in each with random permissions, and what those users subscribe to and publish.
Many scenes share one pair of servers, with a link each. `play` returns what each client of a scene heard; scenes are
the same for a seed, so that pairs of servers of different kinds are compared by it, and the pair of nats-servers says
what is right: `python -m tests.server.leaf.scenes --seed 1 --batches 10`. What differs is played again, slowly, first.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from natsctl.testing.process import Kind
from tests.support.leaf_servers import eventually, joined

SCENES: Final = 12
"""Scenes of one batch."""
QUIET_S: Final = 0.25
"""A client that hears nothing for so long has heard everything."""
MAX_HEARD: Final = 400
"""What a client notes at most: messages may go round in circles, and then for ever."""
SIDES: Final = ("hub", "spoke")
PLACES: Final = tuple((side, account) for side in SIDES for account in "AB")
KINDS: Final[tuple[tuple[Kind, Kind], ...]] = (
    ("reference", "reference"), ("natsctl", "natsctl"), ("natsctl", "reference"), ("reference", "natsctl"),
)  # fmt: skip
"""Pairs of a hub and a spoke; the first is the oracle."""

_LITERALS: Final = ("a.b", "a.c", "b.b", "b.c", "ex.a", "sv.a", "m.b", "x.b", "p.ex.a", "loc.a", "a", "a.b.c")
_PATTERNS: Final = ("a.b", "a.*", "a.>", "*.b", "b.>", ">", "*", "ex.>", "sv.>", "*.*", "m.*", "x.>", "p.>", "a.b.c")
_JETSTREAM: Final = ("$JS.API.INFO", "$JS.hub.API.INFO", "$JS.leaf.API.INFO")
_JETSTREAM_PATTERNS: Final = ("$JS.API.>", "$JS.hub.API.>", "$JS.leaf.API.>", "$JS.>")
_LINKED: Final = "Leafnode connection created"
_ERR: Final = re.compile(rb"-ERR '?([^'\r\n]*)")


@dataclass
class Scene:
    """One scene, as text of the configurations and as what the users do."""

    name: str
    hub: str
    spoke: str
    remote: str
    listens: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)
    """By place: subjects with their queue or none."""
    says: list[tuple[tuple[str, str], str, bool]] = field(default_factory=list)
    """Who publishes to which subject, and whether an answer is wanted."""


def _some(chance: random.Random, pool: Iterable[str], most: int) -> list[str]:
    pool = list(pool)
    return sorted({chance.choice(pool) for _ in range(chance.randint(1, most))})


def _side_of_permissions(chance: random.Random, queues: bool) -> dict[str, list[str]]:
    pool = (*_PATTERNS, *_PATTERNS, *_JETSTREAM_PATTERNS, "_INBOX.>")
    found: dict[str, list[str]] = {}
    if chance.random() < 0.7:
        found["allow"] = [*_some(chance, pool, 5), *(["_INBOX.>"] if chance.random() < 0.6 else [])]
    if chance.random() < 0.5:
        found["deny"] = _some(chance, pool, 3)
    if queues and found and chance.random() < 0.3:
        found.setdefault("allow", []).append(f"{chance.choice(_PATTERNS)} q*")
    if queues and found and chance.random() < 0.2:
        found.setdefault("deny", []).append(f"{chance.choice(_PATTERNS)} q1")
    return found


def _permissions(chance: random.Random, often: float, *, queues: bool = True) -> str:
    if chance.random() > often:
        return ""
    found: dict[str, Any] = {}
    for verb in ("publish", "subscribe"):
        if chance.random() < 0.7:
            found[verb] = _side_of_permissions(chance, queues and verb == "subscribe")
    if chance.random() < 0.25:
        found["allow_responses"] = chance.choice((True, {"max": 1, "expires": "10m"}))
    return f", permissions: {json.dumps(found)}" if found else ""


def _accounts(chance: random.Random, name: str, link: str) -> str:
    """Return the two accounts of one side; `link` is the user of the leaf node, or none."""
    exports = [export for export in ('{stream: "ex.>"}', '{service: "sv.>"}') if chance.random() < 0.6]
    imports = []
    if '{stream: "ex.>"}' in exports:
        prefix = chance.choice(("", ', prefix: "p"', ', to: "loc.>"'))
        imports.append(f'{{stream: {{account: "{name}A", subject: "ex.>"}}{prefix}}}')
    if '{service: "sv.>"}' in exports:
        to = chance.choice(("", ', to: "loc.>"'))
        imports.append(f'{{service: {{account: "{name}A", subject: "sv.>"}}{to}}}')
    mappings = chance.choice(("", "", 'mappings: {"m.*": "a.{{wildcard(1)}}"}', 'mappings: {"a.b": "x.b"}'))
    users = {account: f'{{user: "{name}{account}", password: p{_permissions(chance, 0.6)}}}' for account in "AB"}
    return (
        f"  {name}A {{ jetstream: enabled, users: [{users['A']}{link}],"
        f" exports: [{', '.join(exports)}], {mappings} }}\n"
        f"  {name}B {{ users: [{users['B']}], imports: [{', '.join(imports)}] }}\n"
    )


def scene(chance: random.Random, name: str) -> Scene:
    """Return a random scene; names of its accounts and users begin with `name`."""
    link = f', {{user: "{name}L", password: p{_permissions(chance, 0.6, queues=False)}}}'
    remote = f'url: "nats-leaf://{name}L:p@127.0.0.1:%PORT%", account: "{name}A"'
    for key in ("deny_imports", "deny_exports"):
        if chance.random() < 0.3:
            remote += f", {key}: {json.dumps(_some(chance, _PATTERNS[:6] + _PATTERNS[7:9], 2))}"
    made = Scene(name, _accounts(chance, name, link), _accounts(chance, name, ""), f"{{ {remote} }}")
    queues = iter(range(1, 100))  # one for each subscription: which member of a group gets a message is left to chance
    for place in PLACES:
        made.listens[place] = [
            (subject, f"{chance.choice('qr')}{next(queues)}" if chance.random() < 0.3 else "")
            for subject in _some(chance, _PATTERNS, 3)
        ]
    for place in PLACES:
        made.says += [(place, subject, chance.random() < 0.4) for subject in _some(chance, _LITERALS, 6)]
        if place[1] == "A":
            made.says += [(place, subject, True) for subject in _some(chance, _JETSTREAM, 2)]
    return made


class Client:
    """One client, which notes what it hears."""

    def __init__(self, url: str, user: str) -> None:
        """Connect as a user."""
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), 30)
        self._rest = b""
        self.heard: list[tuple[str, ...]] = []
        self.asked: list[bytes] = []
        """Where answers to messages that came are wanted."""
        options = {"verbose": False, "user": user, "pass": "p", "headers": True, "no_responders": True, "protocol": 1}
        self.say(b"CONNECT " + json.dumps(options).encode() + b"\r\n")

    def say(self, data: bytes) -> None:
        """Send, and note what comes until the server has read it."""
        self._socket.sendall(data + b"PING\r\n")
        self._socket.settimeout(30)
        while not self._take(self._socket.recv(65536)):
            pass

    def rest(self, quiet_s: float) -> None:
        """Note what comes until nothing does."""
        self._socket.settimeout(quiet_s)
        until = time.monotonic() + 20 * quiet_s
        with suppress(TimeoutError):
            while time.monotonic() < until and len(self.heard) < MAX_HEARD and (data := self._socket.recv(65536)):
                self._take(data)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _take(self, data: bytes) -> bool:
        """Note whole lines and messages; return whether a PONG was among them."""
        if not data:
            self.heard.append(("closed",))
            return True
        self._rest += data
        ponged = False
        while b"\r\n" in self._rest:
            line, _, after = self._rest.partition(b"\r\n")
            words = line.split(b" ")
            size = int(words[-1]) if words[0] in (b"MSG", b"HMSG") else -2
            if len(after) < size + 2:
                break
            self._rest = after[size + 2 :]
            ponged |= line == b"PONG"
            if found := _ERR.match(line):
                self.heard.append(("error", found[1].decode()))
            elif size >= 0:
                self._message(words, after[:size])
            elif line == b"PING":
                self._socket.sendall(b"PONG\r\n")
        return ponged

    def _message(self, words: list[bytes], body: bytes) -> None:
        head = int(words[-2]) if words[0] == b"HMSG" else 0
        reply = words[3] if len(words) == (6 if head else 5) else b""
        text = body[head:].decode()
        if text.startswith("{"):  # JetStream's account info: by whom is what counts
            answer = json.loads(text)
            text = f"info of {answer.get('domain')} {answer.get('error', {}).get('description', '')}"
        status = body[:head].split(b"\r\n")[0].decode()
        # The subject of a reply that another account gives out is random.
        answered = "reply" if reply else ""
        self.heard.append((words[2].decode(), words[1].decode(), answered, status, text))
        if reply and not text.startswith("re:"):
            self.asked.append(reply + b" " + text.encode())


def play(made: Scene, urls: dict[str, str], pace: float = 1.0) -> dict[str, list[tuple[str, ...]]]:
    """Return what each client of a scene heard, in an order that is the same for the same messages."""
    clients = {place: Client(urls[place[0]], made.name + place[1]) for place in PLACES}
    try:
        for place, client in clients.items():
            subs = [*made.listens[place], (f"_INBOX.{place[0]}{place[1]}.>", "")]
            client.say(
                b"".join(f"SUB {subject} {queue} {sid}\r\n".encode() for sid, (subject, queue) in enumerate(subs))
            )
        for client in clients.values():
            client.rest(QUIET_S * pace)
        for number, (place, subject, asks) in enumerate(made.says):
            reply = f"_INBOX.{place[0]}{place[1]}.{number} " if asks else ""
            text = "" if subject.startswith("$JS") else f"{number}"
            clients[place].say(f"PUB {subject} {reply}{len(text)}\r\n{text}\r\n".encode())
            time.sleep(0.01 * pace)
        for _ in range(2):
            for client in clients.values():
                client.rest(QUIET_S * pace)
        for (side, account), client in clients.items():
            for one in client.asked:
                to, _, asked = one.partition(b" ")
                body = b"re: %b by %b" % (asked, f"{side}{account}".encode())
                client.say(b"PUB %b %d\r\n%b\r\n" % (to, len(body), body))
        for _ in range(2):
            for client in clients.values():
                client.rest(QUIET_S * pace)
        return {"".join(place): sorted(map(_plain, client.heard)) for place, client in clients.items()}
    finally:
        for client in clients.values():
            client.close()


def _plain(heard: tuple[str, ...]) -> tuple[str, ...]:
    """Return what was heard without random subjects: replies of service imports."""
    return tuple(re.sub(r"_R_\.[\w.]+", "_R_", word) for word in heard)


def _configs(made: list[Scene]) -> tuple[str, str]:
    hub = 'leafnodes { listen: "127.0.0.1:-1", no_advertise: true }\njetstream { domain: hub }\naccounts {\n'
    spoke = "jetstream { domain: leaf }\naccounts {\n"
    remotes = ",\n".join(one.remote for one in made)
    return (
        hub + "".join(one.hub for one in made) + "}\n",
        spoke + "".join(one.spoke for one in made) + f"}}\nleafnodes {{ remotes: [ {remotes} ] }}\n",
    )


def batch(made: list[Scene], kinds: tuple[Kind, Kind], pace: float = 1.0) -> dict[str, Any]:
    """Return what was heard in each scene on one pair of servers."""
    hub, spoke = _configs(made)
    with tempfile.TemporaryDirectory() as folder, joined(Path(folder), *kinds, hub, spoke, wait=False) as pair:
        eventually(lambda: all(one.log().count(_LINKED) >= len(made) for one in pair[:2]), "not every link is there")
        time.sleep(0.3 * pace)
        urls = dict(zip(SIDES, (pair[0].url, pair[1].url), strict=True))
        with ThreadPoolExecutor(len(made)) as pool:
            heard = list(pool.map(lambda one: play(one, urls, pace), made))
    return {one.name: found for one, found in zip(made, heard, strict=True)}


def differences(seed: str, kinds: Iterable[tuple[Kind, Kind]] = KINDS[1:]) -> list[str]:
    """Return what differs in a batch of scenes from what nats-servers do."""
    chance = random.Random(seed)
    made = [scene(chance, f"N{number}") for number in range(SCENES)]
    right, found = batch(made, KINDS[0]), []
    for pair in kinds:
        got = batch(made, pair)
        for one in made:
            if got[one.name] == right[one.name]:
                continue
            slow = batch([one], pair, 2.5)[one.name]
            truth = batch([one], KINDS[0], 2.5)[one.name]
            if slow != truth:
                found.append(_told(seed, pair, one, truth, slow))
    return found


def _told(seed: str, pair: tuple[Kind, Kind], one: Scene, truth: Any, got: Any) -> str:
    lines = [f"seed {seed} scene {one.name} hub {pair[0]} spoke {pair[1]}", one.hub, one.spoke, one.remote]
    lines += [f"listens {one.listens}", f"says {list(enumerate(one.says))}"]
    for place in truth:
        lacking, extra = Counter(truth[place]) - Counter(got[place]), Counter(got[place]) - Counter(truth[place])
        if lacking or extra:
            lines.append(f"{place}: lacks {list(lacking.elements())}, has {list(extra.elements())}")
    return "\n".join(lines)


def main() -> int:
    """Compare batches; return 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--batches", type=int, default=10)
    options = parser.parse_args()
    faults = 0
    for number in range(options.batches):
        for fault in differences(f"{options.seed}:{number}"):
            faults += 1
            print(fault, end="\n\n", flush=True)
    print(f"{options.batches * SCENES} scenes, seed {options.seed}: {faults} differ")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
