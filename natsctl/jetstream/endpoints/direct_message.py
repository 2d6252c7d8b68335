"""A stored message as DIRECT.GET sends it: its own header lines, then where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.times import format_time

if TYPE_CHECKING:
    from natsctl.store.message import StoredMessage

NOT_FOUND: Final = headers.status_line(404, "Message Not Found")


def with_origin(stream: str, message: StoredMessage) -> bytes:
    """Return the header block of a message that is sent alone."""
    return b"%b%b\r\n" % (message.header[:-2] or b"NATS/1.0\r\n", _origin(stream, message))


def with_place(stream: str, message: StoredMessage, pending: int, last_seq: int) -> bytes:
    """Return the header block of a message in a run: how many follow, and the sequence of the one before (0: none)."""
    place = b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, last_seq)
    return b"%b%b%b\r\n" % (message.header[:-2] or b"NATS/1.0\r\n", _origin(stream, message), place)


def end_of_batch(pending: int, last_seq: int, up_to: int | None = None) -> bytes:
    """Return the status that ends a run: how many would follow, the last sequence sent, and up to where was looked."""
    pairs = [(headers.NUM_PENDING, b"%d" % pending), (headers.LAST_SEQUENCE, b"%d" % last_seq)]
    if up_to is not None:
        pairs.append((headers.UP_TO_SEQUENCE, b"%d" % up_to))
    return headers.status_line(204, "EOB", *pairs)


def _origin(stream: str, message: StoredMessage) -> bytes:
    return b"Nats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n" % (
        stream.encode(),
        message.subject,
        message.seq,
        format_time(message.ts_ns).encode(),
    )
