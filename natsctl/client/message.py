"""Messages as sent and received, and messages that a dry run would have sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from natsctl.api import headers as blocks
from natsctl.api.errors import ProtocolError, UsageError
from natsctl.hints import Any, Final, NamedTuple, TypeAlias

Pairs: TypeAlias = Sequence[tuple[str, str]]
"""Headers in wire order, repeated names included."""
HeaderLike: TypeAlias = Mapping[str, str] | Pairs
"""Headers of a message to be sent."""

_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_TEXT_AS_BYTES = "surrogateescape"
NO_RESPONDERS = 503
"""Status of the message that answers a request on a subject without subscribers."""


def pairs_of(given: HeaderLike) -> tuple[tuple[str, str], ...]:
    """Return all headers in order, from either form."""
    if isinstance(given, Headers):
        return given.pairs
    return tuple(given.items() if isinstance(given, Mapping) else given)


class Headers(Mapping[str, str]):
    """The headers of a message: by name the first value of each, in `pairs` all of them in order."""

    __slots__ = ("_first", "pairs")

    def __init__(self, given: HeaderLike = ()) -> None:
        self.pairs = pairs_of(given)
        self._first = dict(reversed(self.pairs))

    def __getitem__(self, name: str) -> str:
        return self._first[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name, _ in self.pairs))

    def __len__(self) -> int:
        return len(self._first)

    def __eq__(self, other: object) -> bool:
        return dict(self) == other if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._first.items()))

    def __repr__(self) -> str:
        return f"Headers({list(self.pairs)!r})"


NO_HEADERS = Headers()


class Message:
    """One message; `status` is the code of a status message (`NATS/1.0 404 …`), 0 for an ordinary one.

    `block` is the header block of a received message as it came.
    """

    __slots__ = ("block", "body", "description", "headers", "reply", "status", "subject")

    def __init__(self, subject: str, body: bytes, reply: str = "", headers: Headers = NO_HEADERS) -> None:
        self.subject = subject
        self.body = body
        self.reply = reply
        self.headers = headers
        self.block = b""
        self.status = 0
        self.description = ""

    def __repr__(self) -> str:
        return f"Message({self.subject!r}, {self.body!r}, {self.reply!r}, {self.headers!r}, {self.status!r})"


def encode_headers(given: HeaderLike) -> bytes:
    """Return the header block of a message. Raises UsageError for a name or value that cannot be written."""
    pairs = [(name.strip(), value.strip()) for name, value in pairs_of(given)]
    for name, _ in pairs:
        if not re.fullmatch(_NAME, name):
            raise UsageError(f"header {name!r}: a name consists of letters, digits and any of !#$%&'*+-.^_`|~")
    try:
        return blocks.encode((as_bytes(name), as_bytes(value)) for name, value in pairs)
    except ValueError as failure:
        raise UsageError(str(failure)) from failure


def to_message(subject: bytes, reply: bytes, body: bytes, block: bytes) -> Message:
    """Return a received message; an invalid header block is left out."""
    message = Message(as_text(subject), body, as_text(reply) if reply else "")
    if block:
        message.block = block
        try:
            message.status, message.description = blocks.parse_status(block)
            pairs = blocks.parse(block)
        except ProtocolError:
            return message
        if pairs:
            message.headers = Headers([(as_text(name), as_text(value)) for name, value in pairs])
    return message


def as_bytes(text: str) -> bytes:
    """Return a subject or header as it was sent."""
    return text.encode("utf-8", _TEXT_AS_BYTES)


def as_text(raw: bytes) -> str:
    """Return a subject or header for `as_bytes`, also one that is no text."""
    return raw.decode("utf-8", _TEXT_AS_BYTES)


class Planned(NamedTuple):
    """One message that would have been sent; `body` is a JSON value where the message is JSON, else its bytes."""

    subject: str
    body: Any = None
    headers: HeaderLike | None = None


class DryRunError(Exception):  # nothing went wrong: it is how a dry run ends
    """Raised instead of the first change of a dry run, with everything that the command knows it would send.

    `effect` has the known effects: JSON values by name, such as `{"messages": 3}`.
    """

    def __init__(self, *planned: Planned, effect: dict[str, Any] | None = None) -> None:
        super().__init__("dry run")
        self.planned = planned
        self.effect = effect or {}


MAX_ACKED: Final = 65_536
"""Acknowledged messages that are remembered, far above the default of `max_ack_pending`."""


class AckedMessages:
    """The last acknowledged messages, to recognize redeliveries after a lost connection.

    Without a lost connection a message comes again because someone wants it: the consumer was reset, for example.
    """

    def __init__(self) -> None:
        self._acked: dict[tuple[bytes, bytes, int, int], int] = {}
        self.opening = 0
        """How often the connection had been opened again when the message came that is being read."""

    def add(self, reply: str) -> None:
        """Remember the message with that ack subject: it is being read."""
        if place := _place_of(reply):
            self._acked.pop(place, None)
            self._acked[place] = self.opening
            if len(self._acked) > MAX_ACKED:
                del self._acked[next(iter(self._acked))]

    def is_repeated(self, reply: str) -> bool:
        """Return whether the message that is being read came on an earlier connection, too, and was acknowledged."""
        if not self.opening or (place := _place_of(reply)) is None:
            return False
        if self._acked.get(place, self.opening) == self.opening:
            return False
        self._acked[place] = self.opening
        return True


def _place_of(reply: str) -> tuple[bytes, bytes, int, int] | None:
    from natsctl.api.acks import parse

    at = parse(as_bytes(reply))
    return None if at is None else (at.stream, at.consumer, at.stream_seq, at.ts_ns)
