"""Runs: neighboring messages of one client that are published as a whole.

A run is the batch type of the publish path. The broker routes its parts, a stream stores them, a client is sent them,
and their publisher gets the acks, without a look at each message. The native module has a class with the same
interface (native/publishes.c) that leaves the messages in the chunk that they arrived in. The reader of the protocol
decides which class is used; everything after it works on either.

All messages of a run are of one kind: without headers, with headers, of fast batches, or plain acks of one consumer. No
subject or reply subject of the first three belongs to the server.
"""

from __future__ import annotations

import re
from typing import Final

from natsctl.wire.ops import PUB, RUN, Op

RESERVED_HEADS: Final = frozenset({b"_R_", b"_GR", b"$JS", b"$GR"})
"""First three bytes of reply prefixes that belong to the server."""
RESERVED_FIRST: Final = frozenset(b"$_")
"""First byte of subjects that belong to the server, and of a few that do not."""
CONTROL_SUFFIX: Final = b".$FI"
"""End of the reply subject of a message of a fast batch. Source: ADR-50."""
RUN_MIN: Final = 4
"""Messages that are worth a run."""

_ACK: Final = re.compile(rb"(\$JS\.ACK\.[^.]*\.[^.]*)\.[0-9]{1,19}(?:\.[0-9]{1,19}){4}", re.DOTALL)


class PublishRun:
    """A run in plain Python."""

    __slots__ = ("_ops", "bytes", "has_headers", "has_replies", "longest")

    def __init__(self, ops: list[Op]) -> None:
        sizes = [len(op[3]) + len(op[4]) for op in ops]
        self._ops = ops
        self.bytes = sum(sizes)
        """Bytes of headers and payloads."""
        self.longest = max(sizes, default=0)
        """Bytes of the longest header and payload."""
        self.has_headers = any(op[3] for op in ops[:1])
        self.has_replies = any(op[2] for op in ops)

    def __len__(self) -> int:
        return len(self._ops)

    def ops(self) -> list[Op]:
        """Return each message as a PUB operation."""
        return self._ops

    def subjects(self) -> list[bytes]:
        return [op[1] for op in self._ops]

    def headers(self) -> list[bytes]:
        return [op[3] for op in self._ops]

    def payloads(self) -> list[bytes]:
        return [op[4] for op in self._ops]

    def entries(self, first_seq: int) -> list[tuple[int, bytes, bytes]]:
        """Return (sequence, subject, reply) of each message."""
        return [(seq, op[1], op[2]) for seq, op in enumerate(self._ops, first_seq)]

    def subject(self, index: int) -> bytes:
        return self._ops[index][1]  # type: ignore[no-any-return]

    def reply(self, index: int) -> bytes:
        return self._ops[index][2]  # type: ignore[no-any-return]

    def part(self, start: int, end: int) -> PublishRun:
        return PublishRun(self._ops[start:end])

    def same_subject(self, start: int) -> int:
        """Return where messages with the subject of message `start` end."""
        subject = self._ops[start][1]
        return next((at for at in range(start + 1, len(self._ops)) if self._ops[at][1] != subject), len(self._ops))

    def same_route(self, start: int, size: int, longer: bool) -> int:
        """Return where messages end that share `size` bytes of the subject of message `start`.

        They have one more token, or with `longer` any number of tokens that are not empty.
        """
        shared, at = self._ops[start][1][:size], start
        while at < len(self._ops):
            subject = self._ops[at][1]
            if len(subject) <= size or subject[:size] != shared:
                break
            if subject.find(b".", size) >= 0 and not (longer and b".." not in subject and subject[-1:] != b"."):
                break
            at += 1
        return at

    def acked(self) -> list[int]:
        """Return the stream sequences in a run of acks."""
        return [int(op[1].split(b".", 6)[5]) for op in self._ops]

    def messages(self, sid_field: bytes, room: int) -> tuple[bytes, int, int]:
        """Return messages without headers as MSG, the last one being the first that exceeds `room` bytes in total.

        Returns the bytes of their payloads and their number too.
        """
        frames, body_bytes = list[bytes](), 0
        for _, subject, reply, _, payload in self._ops:
            size = len(payload)
            frame = b"MSG %b%b%b%d\r\n%b\r\n" % (subject, sid_field, reply and reply + b" ", size, payload)
            frames.append(frame)
            body_bytes += size
            room -= len(frame)
            if room < 0:
                break
        return b"".join(frames), body_bytes, len(frames)


def gather_runs(ops: list[Op]) -> list[Op]:
    """Return the operations with runs instead of `RUN_MIN` or more neighboring messages of one kind."""
    if len(ops) < RUN_MIN:
        return ops
    gathered, start, count = list[Op](), 0, len(ops)
    while start < count:
        end = _end_of_run(ops, start) if ops[start][0] == PUB else start
        if end - start >= RUN_MIN:
            gathered.append((RUN, PublishRun(ops[start:end])))
        else:
            end = max(end, start + 1)
            gathered += ops[start:end]
        start = end
    return gathered


def _end_of_run(ops: list[Op], start: int) -> int:
    """Return where messages end that may be in one run with that at `start`; `start`: it may be in none."""
    _, subject, reply, header, _ = ops[start]
    if subject[0] in RESERVED_FIRST:
        return _end_of_acks(ops, start)
    headed, controls, end = header != b"", reply[-4:] == CONTROL_SUFFIX, start
    if headed and controls:
        return start
    while end < len(ops) and ops[end][0] == PUB:
        _, subject, reply, header, _ = ops[end]
        if subject[0] in RESERVED_FIRST or (header != b"") is not headed:
            break
        if reply and (reply[:3] in RESERVED_HEADS or (reply[-4:] == CONTROL_SUFFIX) is not controls):
            break
        if controls and not reply:
            break
        end += 1
    return end


def _end_of_acks(ops: list[Op], start: int) -> int:
    prefix, end = b"", start
    while end < len(ops) and ops[end][0] == PUB:
        _, subject, reply, header, payload = ops[end]
        ack = _ACK.fullmatch(subject)
        if ack is None or reply or header or payload not in (b"", b"+ACK") or (prefix and ack[1] != prefix):
            break
        prefix = ack[1]
        end += 1
    return end
