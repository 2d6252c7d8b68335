"""Differential runner of random programs: natsctl's engine in memory and nats-server, compared step by step.

Theory of operation. A step is plain data (`Step`), so that a program can be printed, and cut down to the steps that a
difference needs. The engine goes first: it is at rest when a step returns. nats-server is then waited for until every
inbox holds as many messages as on the engine and its `*.INFO` answer the same, or `PATIENCE_S` is over; what is then
unequal is the difference, and ends the program. Messages of one inbox are compared in their order, advisories as a set
per step, for the streams and consumers of nats-server work side by side. What comes too much is found at the next step.
`Notes` hold what each inbox received, without what differs from run to run.

No time passes on the engine, and little on nats-server: every time in a program is far away.
"""

import json
import re
import select
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from natsctl.wire import ops
from natsctl.wire.client import encode_pub, encode_sub, encode_unsub
from tests.support.clock import VirtualClock
from tests.support.differential import login, normalised
from tests.support.machine import Machine
from tests.support.server_parser import MSG, ServerParser


class Got(NamedTuple):
    subject: bytes
    reply: bytes
    header: bytes
    payload: bytes


DROPPED: Final = frozenset({
    "ts", "created", "last_active", "id", "timestamp", "ack_time", "pause_remaining", "first_ts", "last_ts", "cluster",
    "time", "active", "client", "server", "api", "pinned_id", "pinned_ts", "pinned_client_id", "start", "end",
})  # fmt: skip
"""Keys of answers whose values differ from run to run."""


OWN_NAME: Final = re.compile(r"(JS_SRC_|JS_MIRROR_|\$JS\.S\.|\$JS\.M\.)\S+")
"""Names that the server makes for the consumers of sources and mirrors."""

NEVER_USED: Final = frozenset({"num_deleted", "deleted", "first_seq"})
"""State of a stream that never held a message in nats-server: 0 is deleted on disk, a purge makes 1 the first."""


def scrub(value: Any) -> Any:
    """Return an answer without what differs from run to run, its keys in their order."""
    if isinstance(value, dict):
        if "last_seq" in value and not value["last_seq"]:
            value = {k: v for k, v in value.items() if k not in NEVER_USED}
        if "delivered" in value and value["delivered"]["consumer_seq"] == 0:
            value = {**value, "delivered": {"consumer_seq": 0}}  # in memory it moves whenever the reference looks
        return [(k, "" if k in DROPPED else scrub(v)) for k, v in value.items()]
    if isinstance(value, str):
        return OWN_NAME.sub(r"\1", normalised(value))
    return [scrub(v) for v in value] if isinstance(value, list) else value


VARYING: Final = (
    (re.compile(rb"(^\$JS\.ACK\.\S+\.)\d{19}\."), rb"\1T."),
    (re.compile(rb"(^\$JS\.FC\.[^.]+\.[^.]+\.).*"), rb"\1X"),
    (re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), b"T"),
    (re.compile(rb"(\.JS_SRC_|\.JS_MIRROR_)[^.]+"), rb"\1X"),
    (re.compile(rb"(Nats-Pin-Id: )\S+"), rb"\1P"),
    (re.compile(rb"(Nats-Stream-Source: .* )\S+\r\n"), rb"\1I\r\n"),
    (re.compile(rb"(Nats-Consumer-Stalled: ).*"), rb"\1X\r"),
    (re.compile(rb"(Nats-Subject: \$JS\.ACK\.\S+\.)\d{19}\.\d+"), rb"\1T"),
)


def plain(data: bytes) -> bytes:
    """Return a header block or a reply subject without what differs from run to run."""
    for pattern, text in VARYING:
        data = pattern.sub(text, data)
    return normalised(data)


def shown(got: Got, in_flight: bool) -> tuple[str, str, str, Any]:
    subject = "" if got.subject.startswith(b"_INBOX.T.") else plain(got.subject).decode()
    payload: Any = got.payload
    if payload[:1] == b"{":
        try:
            payload = scrub(json.loads(payload))
        except ValueError:
            payload = got.payload
    reply = plain(got.reply).decode()
    if in_flight and reply.startswith("$JS.ACK."):
        reply = reply.rpartition(".")[0]
    return subject, reply, plain(got.header).decode("latin-1"), payload


Notes = dict[str, list[Any]]


def noted(inboxes: dict[str, list[Got]], in_flight: bool) -> Notes:
    """Return inboxes as they can be compared, with `in_flight` without the numbers of messages pending."""
    notes = {label: [shown(m, in_flight) for m in messages] for label, messages in inboxes.items() if messages}
    for label in notes:
        if label == "events":
            notes[label].sort(key=repr)
        elif label.startswith("push"):
            notes[label].sort(key=lambda note: note[1].split(".")[2:4])
    return notes


def unequal(ours: Notes, theirs: Notes) -> tuple[Any, Any]:
    labels = [label for label in sorted(ours.keys() | theirs.keys()) if ours.get(label) != theirs.get(label)]
    pairs = {label: (ours.get(label), theirs.get(label)) for label in labels}
    return {label: apart(a, b) for label, (a, b) in pairs.items()}, {
        label: apart(b, a) for label, (a, b) in pairs.items()
    }


def apart(mine: Any, other: Any) -> Any:
    """Return the parts of `mine` that `other` has not: pairs of dicts, and messages in lists."""
    if isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        return [apart(a, b) for a, b in zip(mine, other, strict=True) if a != b]
    if isinstance(mine, tuple) and isinstance(other, tuple) and len(mine) == len(other):
        if len(mine) == 2 and mine[0] == other[0]:
            return (mine[0], apart(mine[1], other[1]))
        return tuple(apart(a, b) if a != b else "=" for a, b in zip(mine, other, strict=True))
    return mine


PATIENCE_S: Final = 10.0
"""Time limit for nats-server to send all that the engine sent."""

STREAMS: Final = ("A", "B", "C", "D")
"""Names that the streams of programs may have."""

EVENTS: Final = ("$JS.EVENT.ADVISORY.STREAM.>", "$JS.EVENT.ADVISORY.CONSUMER.>", "$JS.EVENT.METRIC.CONSUMER.ACK.>")

INFO: Final = {"deleted_details": True, "subjects_filter": ">"}


class Step(NamedTuple):
    """One thing that a client does.

    `say` publishes every (subject, header, body, inbox) in one chunk, each with a reply subject below `inbox` unless
    that is "-". `ack` answers the `number`th message that was delivered and not answered yet. `update` and `reuse`
    ask `subject` with the configuration that a stream or consumer has now, changed by `patch`. `listen` and `leave`
    begin and end a subscription.
    """

    kind: str
    subject: str = ""
    body: bytes = b""
    header: bytes = b""
    inbox: str = ""
    number: int = 0
    patch: dict[str, Any] | None = None
    lines: tuple[tuple[str, bytes, bytes, str], ...] = ()


def step_text(step: Step) -> str:
    """Return a step as people read it: only what it has."""
    fields = ", ".join(f"{key}={value!r}" for key, value in step._asdict().items() if value and key != "kind")
    return f"{step.kind} {fields}"


class Side(Protocol):
    def send(self, data: bytes) -> None:
        """Send bytes."""

    def receive(self, within_s: float) -> Iterable[tuple[bytes, Got]]:
        """Return (sid, message) for what came."""


class EngineSide:
    def __init__(self, machine: Machine) -> None:
        self._wire = machine.connect("twin")

    def send(self, data: bytes) -> None:
        """Hand bytes to the engine, which is at rest when this returns."""
        self._wire.send(data)

    def receive(self, within_s: float) -> Iterator[tuple[bytes, Got]]:
        for m in self._wire.take():
            yield m.sid, Got(m.subject, m.reply, m.header, m.payload)


class ServerSide:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self._parser = ServerParser()
        options: dict[str, Any] = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        options |= {"protocol": 1, "name": "twin", "lang": "raw", "version": "0", **login(url)}
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, within_s: float) -> Iterator[tuple[bytes, Got]]:
        if not select.select([self._socket], [], [], max(within_s, 0))[0]:
            return
        for op in self._parser.feed(self._socket.recv(1 << 20)):
            if op[0] == MSG:
                yield op[2], Got(op[1], *op[3:])
            elif op[0] == ops.PING:
                self.send(b"PONG\r\n")

    def close(self) -> None:
        self._socket.close()


class Client:
    """Steps and messages of one side: inboxes by name."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.inboxes: defaultdict[str, list[Got]] = defaultdict(list)
        self.pool: list[Got] = []
        self._labels: dict[bytes, str] = {}
        self._targets: dict[str, bytes] = {}
        self._chunk: list[bytes] = []
        self._sids = 0
        self.subscribe("_INBOX.T.>", "")
        for subject in EVENTS:
            self.subscribe(subject, "events")

    def subscribe(self, subject: str, label: str, queue: str = "") -> bytes:
        """Subscribe; messages are kept under `label`, or under the token of an inbox."""
        self._sids += 1
        sid = b"%d" % self._sids
        self._labels[sid] = label
        self.side.send(encode_sub(subject.encode(), queue.encode(), sid))
        return sid

    def do(self, at: int, step: Step, body: bytes) -> None:
        """Run a step, whose answers go to the inbox `at` unless it names one."""
        if step.kind in ("ask", "update", "reuse"):
            self._publish(step.subject.encode(), step.inbox or str(at), step.header, body)
        elif step.kind == "say":
            for place, (subject, header, payload, inbox) in enumerate(step.lines):
                self._publish(subject.encode(), inbox or f"{at}_{place}", header, payload)
        elif step.kind == "ack":
            self._publish(self.pool.pop(step.number % len(self.pool)).reply, str(at), b"", body)
        elif step.kind == "listen":
            self._targets[step.inbox] = self.subscribe(step.subject, step.inbox)
        elif step.kind == "leave" and (sid := self._targets.pop(step.inbox, b"")):
            self.side.send(encode_unsub(sid, 0))
        if self._chunk:
            self.side.send(b"".join(self._chunk))
            self._chunk.clear()

    def _publish(self, subject: bytes, inbox: str, header: bytes, body: bytes) -> None:
        """Add a message to the chunk to send; without a reply where `inbox` is "-"."""
        reply = f"_INBOX.T.{inbox}".encode() if inbox != "-" else b""
        self._chunk.append(encode_pub(subject, reply, header, body))

    def collect(self, within_s: float) -> bool:
        """Sort received messages into inboxes and return whether any came."""
        came = False
        for sid, got in self.side.receive(within_s):
            came = True
            label = self._labels[sid] or b".".join(got.subject.split(b".")[2:3]).decode()
            self.inboxes[label].append(got)
        return came

    def empty(self) -> None:
        """Forget what came; deliveries that want an answer are kept for `ack`."""
        for label in sorted(self.inboxes):
            self.pool += [m for m in self.inboxes[label] if m.reply.startswith((b"$JS.ACK.", b"$JS.FC."))]
        self.inboxes.clear()


class Difference(NamedTuple):
    at: int
    step: Step
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"step {self.at}: {step_text(self.step)}\n  natsctl   {self.ours}\n  reference {self.theirs}"


class ProgramRunner:
    def __init__(self, url: str, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self.machine = Machine(clock=VirtualClock(time.time_ns()))
        self.server = ServerSide(url)
        self.clients = (Client(EngineSide(self.machine)), Client(self.server))
        self.consumers: list[str] = []
        self._polled: dict[str, Any] = {}
        self._run = 0

    def close(self) -> None:
        """Delete what the program made on the reference, and part from it."""
        for client in self.clients:
            for name in STREAMS:
                client.side.send(encode_pub(f"$JS.API.STREAM.DELETE.{name}".encode(), b"_INBOX.T.gone", b"", b""))
        deadline = time.monotonic() + PATIENCE_S
        reference = self.clients[1]
        while len(reference.inboxes["gone"]) < len(STREAMS) and time.monotonic() < deadline:
            reference.collect(0.1)
        self.server.close()

    def play(self, program: Sequence[Step]) -> Difference | None:
        for at, step in enumerate(program):
            self._do(at, step)
            ours, theirs = self._settled(len(step.lines) > 1)
            if ours != theirs:
                return Difference(at, step, *unequal(ours, theirs))
            for client in self.clients:
                client.empty()
        return None

    def _do(self, at: int, step: Step) -> None:
        if step.kind == "ack" and not self.clients[0].pool:
            return
        body = self._patched(step) if step.patch is not None else step.body
        for client in self.clients:
            client.do(at, step, body)

    def _patched(self, step: Step) -> bytes:
        patch = step.patch or {}
        tokens = step.subject.split(".")
        if step.kind == "update":
            config = self._polled.get(f"STREAM.INFO.{tokens[-1]}", {}).get("config", {"name": tokens[-1]})
            return json.dumps({**config, **patch}).encode()
        stream, name = step.inbox.split("/")[-2:] if "/" in step.inbox else tokens[-2:]
        config = self._polled.get(f"CONSUMER.INFO.{stream}.{name}", {}).get("config", {"name": name})
        return json.dumps({"stream_name": stream, "config": {**config, **patch}}).encode()

    def _settled(self, in_flight: bool) -> tuple[Notes, Notes]:
        """Return the messages of both once they agree, or at the time limit.

        `in_flight` says that messages were delivered while others came: what is pending after each is then chance.
        """
        ours, theirs = self.clients
        ours.collect(0)
        mine = noted(ours.inboxes, in_flight)
        mine.update(self._poll(ours, remember=True))
        deadline = time.monotonic() + self._patience_s
        while True:
            while self._owed() and time.monotonic() < deadline:
                theirs.collect(deadline - time.monotonic())
            other = self._poll(theirs)
            other.update(noted(theirs.inboxes, in_flight))
            if mine == other or time.monotonic() > deadline:
                return mine, other
            theirs.collect(0.02)

    def _owed(self) -> bool:
        ours, theirs = self.clients
        return any(len(theirs.inboxes[label]) < len(messages) for label, messages in list(ours.inboxes.items()))

    def _poll(self, client: Client, remember: bool = False) -> Notes:
        verbs = [(f"STREAM.INFO.{name}", json.dumps(INFO)) for name in STREAMS]
        verbs += [(f"CONSUMER.NAMES.{name}", "") for name in STREAMS]
        verbs += [("INFO", ""), *((f"CONSUMER.INFO.{name}", "") for name in self.consumers)]
        answers = self._answers(client, verbs)
        if remember:
            known = [f"{s}.{c}" for s in STREAMS for c in answers.get(f"CONSUMER.NAMES.{s}", {}).get("consumers") or ()]
            answers.update(
                self._answers(client, [(f"CONSUMER.INFO.{n}", "") for n in known if n not in self.consumers])
            )
            self.consumers = known
            answers = {k: v for k, v in answers.items() if not k.startswith("CONSUMER.INFO.") or k[14:] in known}
            self._polled = answers
        return {verb: scrub(answer) for verb, answer in answers.items()}

    def _answers(self, client: Client, verbs: list[tuple[str, str]]) -> dict[str, Any]:
        if not verbs:
            return {}
        self._run += 1
        inbox = f"poll{self._run}_"
        for place, (verb, body) in enumerate(verbs):
            reply = f"_INBOX.T.{inbox}{place}".encode()
            client.side.send(encode_pub(f"$JS.API.{verb}".encode(), reply, b"", body.encode()))
        deadline = time.monotonic() + PATIENCE_S
        labels = [f"{inbox}{place}" for place in range(len(verbs))]
        while not all(label in client.inboxes for label in labels) and time.monotonic() < deadline:
            client.collect(deadline - time.monotonic())
        found = [client.inboxes.pop(label, []) for label in labels]
        return {verb: json.loads(got[0].payload) if got else {} for (verb, _), got in zip(verbs, found, strict=True)}
