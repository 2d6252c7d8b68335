"""Requests to natsctl's engine in memory and to a reference server over TCP, whose answers must be the same.

For hundreds of requests that each have one answer; whole conversations are for `tests.support.differential`. A case
is a list of requests that build on each other. Every case starts with the streams of both deleted, but for KEEP: the
reference removes the folder of an account with its last stream, late, and may take that of a new one with it. For the
same reason a new stream may find what is left of its namesake, so what differs is asked again, on an engine of its own.
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from natsctl.testing.machine import Machine
from natsctl.testing.process import alike
from natsctl.wire import ops
from natsctl.wire.encode import encode_pub
from natsctl.wire.server_parser import ServerParser

Request = tuple[str, Any]
"""Verb and body; bytes are sent as they are."""
Case = tuple[str, Sequence[Request]]

VARYING: Final = {"created", "ts", "cluster", "first_ts", "last_ts", "active", "lag", "pause_remaining"}
"""Keys whose values differ from run to run."""
_LATE: Final = ("error", "filter_subject")
"""What is shown of a mirror or source once its origin was asked, which takes the reference a while.

The reference shows several sources in any order.
"""
PAUSES_S: Final = (0.0, 0.0, 0.5, 1.0)
"""How long to let the reference finish removing what was before each time that a case is asked."""
ANSWER_S: Final = 20.0
"""How long to wait for the reference."""
_KEEP: Final = b'{"name":"KEEP"}'


class Side(Protocol):
    """One of the two that are asked."""

    def ask(self, verb: str, body: bytes = b"") -> bytes:
        """Return the answer to one API request, empty when none came."""


def clear(side: Side) -> None:
    """Delete every stream but KEEP."""
    names = json.loads(side.ask("STREAM.NAMES"))["streams"] or ()
    if "KEEP" not in names:
        side.ask("STREAM.CREATE.KEEP", _KEEP)
    for name in names:
        if name != "KEEP":
            side.ask(f"STREAM.DELETE.{name}")


class Reference:
    """One connection to a real server."""

    def __init__(self, url: str, answer_s: float = ANSWER_S) -> None:
        """Connect; `answer_s` is how long to wait for an answer."""
        self._answer_s = answer_s
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self._parser = ServerParser()
        self._numbers = itertools.count(1)
        self._socket.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.> 1\r\n')

    def ask(self, verb: str, body: bytes = b"") -> bytes:
        """Return the answer to one API request, empty when none came."""
        inbox = b"_INBOX.%d" % next(self._numbers)
        self._socket.sendall(encode_pub(f"$JS.API.{verb}".encode(), inbox, b"", body))
        while select.select([self._socket], [], [], self._answer_s)[0]:
            for op in self._parser.feed(self._socket.recv(1 << 20)):
                if op[0] == ops.MSG and op[1] == inbox:
                    answer: bytes = op[5] or op[4]
                    return answer
        return b""

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class InMemory:
    """One connection to an engine in memory."""

    def __init__(self) -> None:
        """Start a machine."""
        self._wire = Machine().connect()
        self._sid = self._wire.subscribe("_INBOX.>")
        self._numbers = itertools.count(1)

    def ask(self, verb: str, body: bytes = b"") -> bytes:
        """Return the answer to one API request, empty when none came."""
        inbox = f"_INBOX.{next(self._numbers)}"
        self._wire.publish(f"$JS.API.{verb}", body, inbox)
        answers = [message for message in self._wire.take(self._sid) if message.subject == inbox.encode()]
        return next((message.payload or message.header for message in answers), b"")


def differences(url: str, cases: Iterable[Case], known: Collection[str] = ()) -> list[str]:
    """Return what the reference at `url` answers otherwise, one text per case; cases named in `known` must differ."""
    reference, engine, found = Reference(url), InMemory(), []
    for name, requests in cases:
        text = ""
        for pause_s in PAUSES_S:
            time.sleep(pause_s)
            text = _difference(reference, engine, requests)
            if not text:
                break
            engine = InMemory()
        if (text != "") is not (name in known):
            found.append(f"{name}: {text or 'is known to differ and does not'}")
    reference.close()
    return found


def _difference(reference: Side, engine: Side, requests: Sequence[Request]) -> str:
    clear(reference)
    clear(engine)
    for verb, body in requests:
        raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        theirs, ours = comparable(reference.ask(verb, raw)), comparable(engine.ask(verb, raw))
        if theirs != ours:
            return f"{verb} {raw[:300]!r}\n  reference {theirs[:3000]}\n  natsctl   {ours[:3000]}"
    return ""


def comparable(answer: bytes) -> str:
    """Return an answer as text without what differs from run to run; key order stays."""
    try:
        return json.dumps(_steady(json.loads(alike(answer))))
    except ValueError:
        return alike(answer).decode("latin-1")


def _steady(value: Any) -> Any:
    if isinstance(value, list):
        items = [_steady(item) for item in value]
        return (
            sorted(items, key=json.dumps) if any("lag" in item for item in items if isinstance(item, dict)) else items
        )
    if not isinstance(value, dict):
        return value
    late = _LATE if "lag" in value else ()
    return {key: "varies" if key in VARYING else _steady(item) for key, item in value.items() if key not in late}
