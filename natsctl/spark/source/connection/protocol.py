"""The operations that a server sends, one at a time: messages, and the lines between them."""

from __future__ import annotations

from typing import Final, NamedTuple

from natsctl.spark.source.errors import ServerUnreachableError

LINE_END: Final = b"\r\n"
LONGEST_LINE: Final = 1 << 20
"""A line that does not end within that is no NATS protocol; INFO with many servers is the longest."""

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


class Read(NamedTuple):
    """A message or a line without its end, and where in the data the next one begins."""

    what: Message | bytes
    end: int


def read_next(data: bytes, at: int) -> Read | None:
    """Return what begins at `at`; None while incomplete. Raises ServerUnreachableError for what no server sends."""
    line_end = data.find(LINE_END, at)
    if line_end < 0:
        if len(data) - at > LONGEST_LINE:
            raise ServerUnreachableError("what answers does not speak the NATS protocol")
        return None
    line = data[at:line_end]
    if not line.startswith((b"MSG ", b"HMSG ")):
        return Read(line, line_end + 2)
    words = line.split(b" ")
    try:
        head = int(words[-2]) if words[0] == b"HMSG" else 0
        body, end = line_end + 2 + head, line_end + 2 + int(words[-1])
        reply = words[3] if len(words) == REPLY_AT[words[0]] else b""
        subject, sid = words[1], words[2]
    except (ValueError, IndexError) as failure:
        raise ServerUnreachableError(f"the server sent a broken line: {line[:100]!r}") from failure
    if len(data) < end + 2:
        return None
    return Read(Message(subject, sid, reply, data[line_end + 2 : body], data[body:end]), end + 2)


def end_of(data: bytes, at: int = 0) -> int:
    """Return where the message ends that begins at `at`, though not all of it may be there yet.

    At the least it is one byte behind the data's end where that is not known yet, or no message is begun.
    """
    line_end = data.find(LINE_END, at)
    size = data[at:line_end].rpartition(b" ")[2] if line_end >= 0 and data.startswith((b"MSG ", b"HMSG "), at) else b""
    return line_end + 4 + int(size) if size.isdigit() else len(data) + 1


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
