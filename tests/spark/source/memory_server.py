"""One stream and the ledger's bucket behind a fake socket: the part of JetStream that a write uses, with a clock.

Everything above the socket is the product's own: `connected` has `Link` talk to it. It can end after so many messages
(`lives`), as a process that is killed does, and keeps whatever it ever stored, so that a test may delete messages as
consumers of a work queue do. Real servers pass the same tests.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from natsctl.spark.source.link import Link

_OPERATION = re.compile(rb"(?:SUB (\S+) (\d+)|UNSUB \d+|(H?)PUB (\S+) (?:(\S+) )?(?:(\d+) )?(\d+))\r\n")
BREAKS = 0.01
"""How often, of all messages."""
NO_MESSAGE = {"error": {"code": 404, "err_code": 10037, "description": "no message found"}}
NO_CONSUMER = {"error": {"code": 400, "err_code": 10084, "description": "the test makes no consumers"}}


class Killed(BaseException):
    """The process that writes is killed."""


@dataclass
class MemoryStream:
    """Messages by sequence, and the ids of the duplicate window with the time at which each was stored."""

    name: str
    prefix: str
    retention: str = "limits"
    messages: dict[int, tuple[str, bytes, bytes]] = field(default_factory=dict)
    ever: list[tuple[str, bytes]] = field(default_factory=list)
    """Subject and payload of all that was ever stored."""
    ids: dict[bytes, tuple[int, float]] = field(default_factory=dict)

    def info(self) -> dict[str, Any]:
        state = {
            "messages": len(self.messages),
            "first_seq": min(self.messages, default=len(self.ever) + 1),
            "last_seq": len(self.ever),
            "num_deleted": 0,
        }
        config = {"name": self.name, "subjects": [self.prefix + ">"], "retention": self.retention}
        return {"config": config, "created": "2026-11-21T03:38:08.293843492Z", "state": state}

    def found(self, wanted: dict[str, Any]) -> dict[str, Any]:
        if pattern := wanted.get("last_by_subj") or wanted.get("next_by_subj"):
            regex = re.compile(re.escape(pattern).replace(r"\*", r"[^.]+").replace(">", ".+") + "$")
            seqs = [seq for seq in self.messages if seq >= wanted.get("seq", 1) and regex.match(self.messages[seq][0])]
            seq = (max if "last_by_subj" in wanted else min)(seqs, default=0)
        else:
            seq = wanted["seq"]
        if seq not in self.messages:
            return NO_MESSAGE
        subject, header, payload = self.messages[seq]
        texts = {"hdrs": base64.b64encode(header).decode(), "data": base64.b64encode(payload).decode()}
        return {"message": {"seq": seq, "subject": subject, "time": "2026-11-21T03:38:08Z", **texts}}


class MemoryServer:
    """The server; `now` is its clock in seconds."""

    def __init__(self, retention: str = "limits", window_s: float = 120.0) -> None:
        self.out = MemoryStream("OUT", "out.", retention)
        self.notes = MemoryStream("KV_natsctl_spark", "$KV.natsctl_spark.")
        self.window_s = window_s
        self.now = 0.0
        self.breaks: random.Random | None = None
        """Chance by which connections end, with the answers that are on their way; None: they do not."""
        self.outage_s = 0.0
        """For how long the server is away then."""
        self.stored_on: Callable[[str], str] = str
        """The subject transform of the stream: on which subject a message is stored."""
        self.lives: int | None = None
        """Messages until the process that writes is killed; None: it is not."""

    def connect(self) -> MemoryWire:
        return MemoryWire(self)

    def published(self, subject: str, header: bytes, payload: bytes) -> dict[str, Any]:
        stream = self.out if subject.startswith(self.out.prefix) else self.notes
        said = dict(re.findall(rb"(Nats-[\w-]+): (.*?)\r\n", header))
        text = said.get(b"Nats-Msg-Id", b"")
        seq, stored_at = stream.ids.get(text, (0, 0.0))
        if text and seq and self.now - stored_at <= self.window_s:
            return {"stream": stream.name, "seq": seq, "duplicate": True}
        if b"Nats-Expected-Last-Msg-Id" in said:
            return {"error": {"code": 400, "err_code": 10070, "description": "wrong last msg ID"}}
        if b"Nats-Expected-Last-Subject-Sequence" in said and stream.found({"last_by_subj": subject}) != NO_MESSAGE:
            return {"error": {"code": 400, "err_code": 10071, "description": "wrong last sequence"}}
        if stream is self.out:
            subject = self.stored_on(subject)
        stream.ever.append((subject, payload))
        seq = len(stream.ever)
        stream.messages[seq] = (subject, header, payload)
        if text:
            stream.ids[text] = (seq, self.now)
        return {"stream": stream.name, "seq": seq}

    def asked(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        verb, _, stream_name = name.rpartition(".")
        stream = self.notes if stream_name == self.notes.name else self.out
        if verb == "STREAM.INFO":
            return stream.info()
        if verb == "STREAM.MSG.GET":
            return stream.found(body)
        return {"success": True} if verb == "STREAM.PURGE" else NO_CONSUMER


class MemoryWire:
    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._subscriptions: dict[str, bytes] = {}
        self._out = b""
        self._rest = b""
        self._broken = False

    def settimeout(self, _: float) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        """Nothing is left to do."""

    def recv(self, _: int) -> bytes:
        if self._broken:
            raise ConnectionResetError
        if not self._out:
            raise TimeoutError
        data, self._out = self._out, b""
        return data

    def sendall(self, data: bytes) -> None:
        """Take whole operations, one after the other; raises Killed, ConnectionResetError."""
        self._rest += data
        while not self._broken and (found := _OPERATION.match(self._rest)):
            end = found.end() + (int(found[7]) + 2 if found[7] else 0)
            content, self._rest = self._rest[found.end() : end - 2], self._rest[end:]
            if found[1]:
                self._subscriptions[found[1].decode()] = found[2]
            elif found[4]:
                header_bytes = int(found[6] or 0) if found[3] else 0
                self._take(
                    found[4].decode(), (found[5] or b"").decode(), content[:header_bytes], content[header_bytes:]
                )

    def _take(self, subject: str, reply: str, header: bytes, payload: bytes) -> None:
        if subject.startswith("$JS.API."):
            answer = self._server.asked(subject.removeprefix("$JS.API."), json.loads(payload or b"{}"))
        else:
            if self._server.lives is not None:
                self._server.lives -= 1
                if self._server.lives < 0:
                    raise Killed
            answer = self._server.published(subject, header, payload)
        body = json.dumps(answer, separators=(",", ":")).encode()
        for pattern, sid in self._subscriptions.items():
            if reply.startswith(pattern.rstrip("*")):
                self._broken = self._server.breaks is not None and self._server.breaks.random() < BREAKS
                self._server.now += self._server.outage_s * self._broken
                self._out += b"MSG %s %s %d\r\n%s\r\n" % (reply.encode(), sid, len(body), body)


@contextmanager
def connected(server: MemoryServer) -> Iterator[MemoryServer]:
    """Route every connection of this process to the server."""

    def reopen(link: Link) -> None:
        link.close()
        link._wire = cast(Any, server.connect())
        link._protocol.info = {"max_payload": 1 << 20}

    def new_inbox(link: Link) -> str:
        return f"_INBOX.{link.new_sid()}"  # few, so that regular expressions with one are compiled once

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "reopen", cast(Callable[[Link], None], reopen))
        patch.setattr(Link, "new_inbox", new_inbox)
        yield server
