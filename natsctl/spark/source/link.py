"""A blocking connection to a NATS server: requests, and the raw protocol for large reads and writes.

Messages and the lines between them are read one at a time.

Theory of operation. What has come and was not yet taken lies in `_rest`, which always begins where a frame begins.
`receive` and `request` take whole frames from it and answer PINGs and errors on the way. A caller
that wants bytes as fast as they come takes them with `read`, cuts them into frames itself, hands lines that are no
messages to `heed`, and gives the rest back with `unread` before any other request.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, NamedTuple

from natsctl.spark.source.errors import (
    ConnectionLostError,
    JetStreamSourceError,
    NoResponseError,
    NotAuthorisedError,
    ServerUnreachableError,
)
from natsctl.spark.source.handshake import READ_BYTES, Greeted, ServerSettings, greet, server_url
from natsctl.wire.client import read_info
from natsctl.wire.server_frames import LINE_END, BrokenFrameError, frames

REPLY_AT: Final = {b"MSG": 5, b"HMSG": 6}
"""The number of words that a message's line has with a reply subject, by verb."""


LONGEST_REPLY: Final = 11
"""Words of a reply subject with domain and account; a word more is a token behind the place."""
PLACES: Final = 4
"""Numbers that end a reply subject: sequence, delivery, time, pending."""


class Message(NamedTuple):
    """One delivered message; `headers` is the whole header block, empty without one."""

    subject: bytes
    sid: bytes
    reply: bytes
    headers: bytes
    body: bytes


class Place(NamedTuple):
    """The place of a delivered message in its stream and in its consumer's deliveries, and how many are to come."""

    seq: int
    delivery: int
    time_ns: int
    pending: int


def read_frames(data: bytes, at: int = 0) -> Iterator[tuple[int, Message | bytes]]:
    """Yield the messages, and the lines between them, that are whole in `data` from `at` on, each behind its end.

    Raises ServerUnreachableError for bytes that no server sends.
    """
    try:
        for end, sid, subject, reply, headers, body in frames(data, at):
            yield end, Message(subject, sid, reply, headers, body) if sid else subject
    except BrokenFrameError as failure:
        raise ServerUnreachableError(f"the other side does not speak the NATS protocol: {failure}") from failure


def status_of(headers: bytes) -> int:
    """Return the status in the first line of a header block (503, 408, …); 0 without one."""
    words = headers[: headers.find(LINE_END)].split(None, 2) if headers else []
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def description_of(headers: bytes) -> str:
    """Return the words after the status in the first line of a header block."""
    words = headers[: headers.find(LINE_END)].split(None, 2) if headers else []
    return words[2].decode(errors="replace").strip() if len(words) > 2 else ""


def place_of(reply: bytes) -> Place:
    """Parse a delivery's reply subject: $JS.ACK.[domain.account.]stream.consumer.tries.seq.delivery.time.pending.

    Raises ServerUnreachableError for any other subject.
    """
    words = reply.split(b".")
    try:
        last = len(words) - 1 if len(words) > LONGEST_REPLY else len(words)
        return Place(*map(int, words[last - PLACES : last]))
    except (ValueError, TypeError) as failure:
        raise ServerUnreachableError(
            f"the server delivers with {reply[:200]!r} as the place to acknowledge"
        ) from failure


def ack_prefix(reply: bytes) -> bytes:
    """Return the beginning of a consumer's acknowledgement subjects, up to its name."""
    return b".".join(reply.split(b".")[: _before_places(reply)])


def deliveries_of(reply: bytes) -> int:
    """Return how often a message has been delivered, by the subject that acknowledges it."""
    return int(reply.split(b".")[_before_places(reply)])


def delivered(reply: bytes) -> tuple[int, bool]:
    """Return a message's sequence in its stream and whether it was delivered before, by the subject to acknowledge.

    Raises ServerUnreachableError for any other subject.
    """
    words = reply.split(b".")
    at = len(words) - (1 if len(words) > LONGEST_REPLY else 0) - PLACES
    try:
        return int(words[at]), words[at - 1] != b"1"
    except (ValueError, IndexError) as failure:
        raise ServerUnreachableError(
            f"the server delivers with {reply[:200]!r} as the place to acknowledge"
        ) from failure


def _before_places(reply: bytes) -> int:
    """Return how many words stand before the count of deliveries, which the four numbers of a place follow."""
    words = reply.count(b".") + 1
    return words - PLACES - (2 if words > LONGEST_REPLY else 1)


ANSWERS: Final = b"1"
"""The subscription of answers to requests; one whose request was given up is dropped."""

SEND_WITHIN_S: Final = 60.0
"""The time that a server may take to read what is sent: it reads at any time, unless it stands still."""


class Reply(NamedTuple):
    """The answer to a request; status 0 without one, 503 where there is no listener."""

    status: int
    headers: bytes
    body: bytes


class Link:
    """One connection; after `ConnectionLostError`, `reopen` makes another, without the subscriptions of the old."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.info: dict[str, Any] = {}
        self._servers = [(url, "") for url in settings.urls]
        self._at = -1
        self._wire: socket.socket | None = None
        self._rest = b""
        self._inbox = ""
        self._asked = 0
        self._sids = 1
        self._left: set[bytes] = set()

    @classmethod
    def open(cls, settings: ServerSettings) -> Link:
        """Connect to the first server that answers; raises ServerUnreachableError, NotAuthorisedError, OptionError."""
        for url in settings.urls:
            server_url(url)
        link = cls(settings)
        link.reopen()
        return link

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def lame_duck(self) -> bool:
        """Return whether the server has announced that it is about to stop."""
        return bool(self.info.get("ldm"))

    def close(self) -> None:
        """End the connection; once more is nothing."""
        if self._wire is not None:
            self._wire.close()
        self._wire = None
        self._rest = b""
        self._inbox = ""

    def reopen(self) -> None:
        """Connect anew, to the next server first; every server is tried once, then again `retries` times."""
        self.close()
        failure: JetStreamSourceError = ServerUnreachableError("no server is given")
        for attempt in range(self.settings.retries + 1):
            if attempt:
                time.sleep(self.settings.retry_interval_s)
            for _ in range(len(self._servers)):
                self._at = (self._at + 1) % len(self._servers)
                try:
                    self._settle(greet(self._servers[self._at][0], self.settings, self._servers[self._at][1]))
                except ServerUnreachableError as unreachable:
                    failure = unreachable
                else:
                    return
        raise failure

    def send(self, data: bytes) -> None:
        """Send raw protocol lines; raises ConnectionLostError, also where the server takes none of it for long."""
        wire = self._open_wire()
        try:
            wire.settimeout(SEND_WITHIN_S)
            wire.sendall(data)
        except OSError as failure:
            raise ConnectionLostError(f"the connection to the server was lost: {failure}") from failure

    def flush(self) -> None:
        """Wait until the server has read all that was sent.

        Raises NoResponseError, ConnectionLostError, NotAuthorisedError.
        """
        self.send(b"PING\r\n")
        deadline = time.monotonic() + self.settings.timeout_s
        data, at, others, done = b"", 0, list[bytes](), False
        try:
            while not done:
                data, at = self._more(data[at:], deadline), 0
                for end, frame in read_frames(data):
                    begin, at = at, end
                    done = frame == b"PONG"
                    if not isinstance(frame, Message):
                        self.heed(frame)
                    elif frame.sid not in self._left:
                        others.append(data[begin:at])
                    if done:
                        break
        except NoResponseError:
            data = b""  # it was put back
            raise
        finally:
            self.unread(b"".join(others) + data[at:])

    def read(self, timeout_s: float) -> bytes:
        """Return bytes as they come, which may end within a frame.

        Raises NoResponseError after the timeout, 0 being at once.
        """
        if self._rest:
            data, self._rest = self._rest, b""
            return data
        wire = self._open_wire()
        try:
            wire.settimeout(timeout_s)
            data = wire.recv(READ_BYTES)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError) as failure:
            raise NoResponseError(f"the server sent nothing for {timeout_s:g} s") from failure
        except OSError as failure:
            raise ConnectionLostError(f"the connection to the server was lost: {failure}") from failure
        if not data:
            raise ConnectionLostError("the server closed the connection")
        return data

    def unread(self, data: bytes) -> None:
        """Put back bytes that `read` returned and that were not used; they begin with a frame."""
        self._rest = data + self._rest

    def receive(self, timeout_s: float) -> bytes:
        """Return at least one complete message, after answering and removing PINGs.

        Raises NoResponseError, NotAuthorisedError.
        """
        deadline = time.monotonic() + timeout_s
        data = b""
        while True:
            data = self._more(data, deadline)
            taken, at = list[bytes](), 0
            try:
                for end, frame in read_frames(data):
                    begin, at = at, end
                    if isinstance(frame, Message):
                        taken.append(data[begin:at])
                    else:
                        self.heed(frame)
            except NotAuthorisedError:
                self.unread(b"".join(taken) + data[at:])
                raise
            data = data[at:]
            if taken:
                self.unread(data)
                return b"".join(taken)

    def heed(self, line: bytes) -> None:
        """Handle a line between messages; raises NotAuthorisedError, ConnectionLostError for an error."""
        if line == b"PING":
            self.send(b"PONG\r\n")
        elif line.startswith(b"INFO "):
            try:
                self._learn(read_info(line))
            except ValueError as failure:
                raise ConnectionLostError(f"the server sends an {failure}") from None
        elif line.startswith(b"-ERR"):
            text = line[4:].decode(errors="replace").strip(" '")
            if text.lower().startswith("permissions violation"):
                raise NotAuthorisedError(f"the server refuses it: {text}")
            raise ConnectionLostError(f"the server ends the connection: {text}")

    def new_inbox(self) -> str:
        """Return a subject without another listener; no wildcard, no subscription."""
        return f"{self.settings.inbox_prefix}.{secrets.token_hex(11)}"

    def new_sid(self) -> int:
        """Return a number for a subscription that no other one of this connection has."""
        self._sids += 1
        return self._sids

    def subscribe(self, subject: str) -> int:
        """Return the number of a new subscription."""
        sid = self.new_sid()
        self.send(f"SUB {subject} {sid}\r\n".encode())
        return sid

    def unsubscribe(self, sid: int) -> None:
        """End a subscription; what is still on its way is dropped by requests."""
        self._left.add(b"%d" % sid)
        self.send(f"UNSUB {sid}\r\n".encode())

    def request(
        self, subject: str, body: bytes = b"", *, timeout_s: float | None = None, headers: bytes = b""
    ) -> Reply:
        """Return the answer to a request; raises NoResponseError, NotAuthorisedError, ConnectionLostError."""
        wait_s = self.settings.timeout_s if timeout_s is None else timeout_s
        inbox = self._asking()
        reply = f"{inbox}.{self._asked}"
        self._asked += 1
        if headers:
            line = f"HPUB {subject} {reply} {len(headers)} {len(headers) + len(body)}\r\n"
        else:
            line = f"PUB {subject} {reply} {len(body)}\r\n"
        self.send(line.encode() + headers + body + b"\r\n")
        try:
            answer = self._answer(reply.encode(), time.monotonic() + wait_s)
        except NoResponseError as failure:
            raise NoResponseError(f"no answer on {subject} within {wait_s:g} s") from failure
        return Reply(status_of(answer.headers), answer.headers, answer.body)

    def _answer(self, subject: bytes, deadline: float) -> Message:
        """Return the next message on a subject; everything else waits in `_rest` for its reader."""
        data, at, others = b"", 0, list[bytes]()
        try:
            while True:
                data, at = self._more(data[at:], deadline), 0
                for end, frame in read_frames(data):
                    begin, at = at, end
                    if not isinstance(frame, Message):
                        self.heed(frame)
                    elif frame.subject == subject:
                        return frame
                    elif frame.sid not in self._left and frame.sid != ANSWERS:
                        others.append(data[begin:at])
        except NoResponseError:
            data = b""  # it was put back
            raise
        finally:
            self.unread(b"".join(others) + data[at:])

    def _more(self, data: bytes, deadline: float) -> bytes:
        """Return the data with what comes next behind it; raises NoResponseError, and puts it back then."""
        try:
            return data + self.read(max(deadline - time.monotonic(), 0.001))
        except NoResponseError:
            self.unread(data)
            raise

    def _asking(self) -> str:
        """Return the subject of answers to requests; it is subscribed with the first one."""
        if not self._inbox:
            self._inbox = self.new_inbox()
            self.send(f"SUB {self._inbox}.* {ANSWERS.decode()}\r\n".encode())
        return self._inbox

    def _open_wire(self) -> socket.socket:
        if self._wire is None:
            raise ConnectionLostError("the connection is closed")
        return self._wire

    def _settle(self, greeted: Greeted) -> None:
        """Keep a connection that is logged in."""
        self._wire, self._rest = greeted.wire, greeted.rest
        self.info = {}
        self._learn(greeted.info)

    def _learn(self, info: dict[str, Any]) -> None:
        """Take over the server's INFO, and servers of its cluster that were not known."""
        self.info = {**self.info, **info}
        url, name = self._servers[self._at]
        here = server_url(url)
        known = {server_url(each).address for each, _ in self._servers}
        for address in info.get("connect_urls") or []:
            if address not in known:
                offered = server_url(f"{here.scheme}://{address}")
                self._servers.append((here._replace(host=offered.host, port=offered.port).full, name or here.host))
