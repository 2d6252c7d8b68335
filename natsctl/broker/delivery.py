"""Messages as the bytes that a client is sent, many at once for one subscription.

The delivery of one message to many takers is in account.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Subscription
    from natsctl.wire.ops import Op

SIZE_LINES: Final = [b""] * 8192
"""Ends of message heads, by size, that are looked up once they were formatted."""
Answer: TypeAlias = tuple[bytes, bytes]
"""Subject and payload of a message without reply and headers."""
Delivery: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""(subject, reply, header, payload)"""
COPY_LIMIT: Final = 4096
"""Bytes of payload above which head and body are written as two pieces, to save the copy."""


def plain_tail(reply: bytes, payload: bytes) -> bytes:
    """Return what follows the sid of a message without headers."""
    size = len(payload)
    tail = ((size < 8192 and SIZE_LINES[size]) or _size_line(size)) + payload + b"\r\n"
    return reply + b" " + tail if reply else tail


def _size_line(size: int) -> bytes:
    line = b"%d\r\n" % size
    if size < len(SIZE_LINES):
        SIZE_LINES[size] = line
    return line


def header_tail(reply: bytes, header: bytes, payload: bytes) -> bytes:
    """Return what follows the sid of a message with headers."""
    size = len(header)
    tail = b"%d %d\r\n%b%b\r\n" % (size, size + len(payload), header, payload)
    return reply + b" " + tail if reply else tail


def answer_client(session: Session, sub: Subscription, answers: Sequence[Answer]) -> None:
    """Queue answers for one client."""
    sid = sub.sid_field
    frames = [b"MSG %b%b%d\r\n%b\r\n" % (subject, sid, len(body), body) for subject, body in answers]
    if not session.out:
        session.broker.dirty.append(session)
    session.out.extend(frames)
    session.pending_bytes += sum(map(len, frames))
    session.out_bytes += sum([len(body) for _, body in answers])
    session.out_msgs += len(answers)
    sub.delivered += len(answers)
    if session.pending_bytes > session.max_pending:
        session.cut_slow_consumer()


def send_all_to(session: Session, sub: Subscription, messages: Sequence[Delivery]) -> int:
    """Queue deliveries for one client and return how many; one that does not read is cut off."""
    out, sid, pending, done = session.out, sub.sid_field, session.pending_bytes, 0
    if not out and messages:
        session.broker.dirty.append(session)
    before, body, most, headers = pending, 0, session.max_pending, session.headers
    for subject, reply, header, payload in messages:
        size = len(payload)
        if header and headers:
            frame = b"HMSG %b%b" % (subject, sid) + header_tail(reply, header, payload)
            body += len(header)
        elif size <= COPY_LIMIT:
            if reply:
                frame = b"MSG %b%b%b %d\r\n%b\r\n" % (subject, sid, reply, size, payload)
            else:
                frame = b"MSG %b%b%d\r\n%b\r\n" % (subject, sid, size, payload)
        else:
            frame = b"MSG %b%b%b%d\r\n" % (subject, sid, reply and reply + b" ", size)
            out.append(frame)
            pending += len(frame)
            frame = payload + b"\r\n"
        out.append(frame)
        body += size
        pending += len(frame)
        done += 1
        if pending > most:
            break
    session.pending_bytes += pending - before
    session.out_bytes += body
    session.out_msgs += done
    sub.delivered += done
    if pending > most:
        session.cut_slow_consumer()
    return done


def send_run(session: Session, sub: Subscription, subject: bytes, run: Sequence[Op]) -> None:
    """Queue a run of published messages for one client."""
    send_all_to(session, sub, [op[1:] for op in run])
