"""Acknowledgements of publishes, found in raw protocol bytes many at a time.

Theory of operation. Messages that are sent as one part share a reply subject, `<inbox>.p<number>`, so that a server
looks up its subscribers once, and all of their plain acknowledgements differ only in their digits: if a piece of the
input contains nothing else, it is compared as a whole, and counted. Acknowledgements can be counted as long as all come
from one stream: if streams of two domains listen on a subject, a message has two. Everything else, and acks on
`<inbox>.<number>`, the reply subject of a single message, is read one by one.

Acknowledged sequences are kept as text, one a line: sequences of equal length are cut out digit by digit for all
acknowledgements of a piece at once.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_STATUS = re.compile(rb"NATS/1\.0 (\d\d\d)")
CLASHING = 10158
"""Error code for an id that is just being stored, possibly by another task."""
NO_RESPONDERS = 503
OTHER_STREAM = 10060
"""Error code for a message that expects another stream than the one that takes its subject."""
_STORED_AT = re.compile(rb'"stream": ?"([^"\\]*)",.{0,200}?"seq": ?(\d+)[,}]')
_ORIGIN = rb'(\{"stream": ?"[^"\\]*",(?: ?"domain": ?"[^"\\]*",)? ?"seq": ?)'
"""The stream that acknowledges, as text."""
_DIGITS = b"0123456789"
_END = b"}\r\n"
_SEQ = re.compile(rb'"seq": ?(\d+)')

COUNTED = b"p"
"""Prefix of a part's number; acknowledgements of parts are counted."""


@dataclass(frozen=True)
class Refusal:
    """Why one message was not stored."""

    code: int
    err_code: int
    description: str

    @property
    def passing(self) -> bool:
        """Return whether the same message may be accepted a moment later.

        Code 503 means no responders, no leader, or a store that cannot accept more for now
        (10077); 408 and 429 are asked to come again. A cluster refuses an id while it is being stored.
        """
        return self.code in (408, 429, 503) or self.err_code == CLASHING

    def __str__(self) -> str:
        number = self.err_code or self.code
        return f"{self.description} ({number})" if number else self.description


class AckPlace(NamedTuple):
    """The sequence of a stored message and its stream, as in `stream_key`."""

    stream: str
    seq: bytes


@dataclass
class Answers:
    """The answers that were read at once: numbers of the messages that were stored, and everything else."""

    stored: list[bytes] = field(default_factory=list)
    duplicates: list[bytes] = field(default_factory=list)
    """Numbers of messages; parts are in neither list, but in the counts."""
    counted: Counter[bytes] = field(default_factory=Counter)
    counted_duplicates: Counter[bytes] = field(default_factory=Counter)
    """By the number of the part."""
    places: dict[bytes, AckPlace] = field(default_factory=dict)
    """The places of messages that were acknowledged by their own number."""
    counted_seqs: dict[bytes, list[bytes]] = field(default_factory=dict)
    """By the number of the part: the sequences of stored messages, as texts of one a line."""
    counted_duplicate_seqs: dict[bytes, list[bytes]] = field(default_factory=dict)
    counted_stream: str = ""
    """The stream of both, with its domain."""
    refused: dict[bytes, Refusal] = field(default_factory=dict)
    """The reasons; of a part one of them, and their number is counted."""
    counted_refusals: Counter[bytes] = field(default_factory=Counter)
    lines: list[bytes] = field(default_factory=list)
    """Lines between messages, such as PING, for the connection."""
    last_seq: int = 0
    stream: str = ""

    def acknowledge(self, number: bytes, place: AckPlace, *, duplicate: bool) -> None:
        if number.startswith(COUNTED):
            self.count(number, 1, place.seq + b"\n", duplicate=duplicate)
        else:
            (self.duplicates if duplicate else self.stored).append(number)
            self.places.setdefault(number, place)

    def count(self, number: bytes, times: int, seqs: bytes, *, duplicate: bool = False) -> None:
        (self.counted_duplicates if duplicate else self.counted)[number] += times
        (self.counted_duplicate_seqs if duplicate else self.counted_seqs).setdefault(number, []).append(seqs)

    def refuse(self, number: bytes, why: Refusal) -> None:
        self.refused[number] = why
        if number.startswith(COUNTED):
            self.counted_refusals[number] += 1


class AckParser:
    """A parser of answers on `<inbox>.<number>`; plain acknowledgements are matched as text, all others are decoded."""

    def __init__(self, inbox: str, stream: str = "", *, placed: bool = True) -> None:
        """`stream` is the only one that may acknowledge; empty: any. Without `placed` sequences are of no interest."""
        self._placed = placed
        self.countable = True
        """Whether all acknowledgements up to now came from one stream, in the form that is known."""
        self._prefix = inbox.encode() + b"."
        self._reply = rb"MSG " + re.escape(self._prefix) + rb"(p?\d+) \S+ \d+\r\n"
        self._ack = re.compile(self._reply + _ORIGIN + rb'(\d+)(, ?"duplicate": ?true)?\}\r\n')
        self._known = self._ack
        """An acknowledgement of the first stream that acknowledged, for a message that is not a duplicate."""
        self._wanted = stream
        self._origin = b""
        self._stream = ""
        """The name that `_origin` gives the stream."""
        self._tails: dict[bytes, bool] = {_END: False}
        """The rest of acknowledgements after their sequence, and whether they are for duplicates."""
        self._begin = b""
        """The shape of one up to there: its text without digits."""
        self._rest = b""

    def forget(self) -> None:
        """Drop half an answer: its other half went down with the connection."""
        self._rest = b""

    def feed(self, data: bytes) -> Answers:
        answers = Answers(counted_stream=self._stream)
        buffer = self._rest + data if self._rest else data
        left = buffer
        if self._origin:
            end = buffer.rfind(_END) + len(_END)
            left = buffer[end:] if self._count(buffer[:end], answers) else self._plain(buffer, answers)
        pieces = self._ack.split(left) if left else [left]
        for number, origin, seq, duplicate in zip(*(pieces[at::5] for at in range(1, 5)), strict=True):
            if origin != self._origin and (why := self._foreign_reason(origin, counted=number.startswith(COUNTED))):
                answers.refuse(number, why)
            else:
                stream = self._stream if origin == self._origin else stream_key(json.loads(origin + b"0}"))
                answers.acknowledge(number, AckPlace(stream, seq), duplicate=duplicate is not None)
                if duplicate:
                    self._tails[duplicate + _END] = True
        answers.counted_stream = self._stream
        self._rest = self._others(b"".join(pieces[::5]), answers)
        if found := _STORED_AT.findall(buffer[-512:]):
            answers.stream, answers.last_seq = found[-1][0].decode(), int(found[-1][1])
        return answers

    def _count(self, data: bytes, answers: Answers) -> bool:
        """Count acknowledgements of parts; False, and nothing counted, where the data has anything else as well."""
        shape = data.translate(None, _DIGITS)
        number = data.count(self._origin)
        tail = next((tail for tail in self._tails if number and shape == (self._begin + tail) * number), b"")
        if not tail:
            return False
        found: list[tuple[bytes, int, bytes]] = []
        at = 0
        while at < len(data):
            mark = data[at : data.index(b" ", at + len(b"MSG ")) + 1]
            end = data.index(_END, data.rindex(mark)) + len(_END)
            found.append((mark[len(b"MSG ") + len(self._prefix) : -1], data.count(mark, at), data[at:end]))
            at = end
        if sum(times for _, times, _ in found) != number:
            return False
        for part, times, answered in found:
            seqs = self._seqs(answered, times, tail) if self._placed else b""
            answers.count(part, times, seqs, duplicate=self._tails[tail])
        return True

    def _seqs(self, data: bytes, times: int, tail: bytes) -> bytes:
        """Return the sequences of so many acknowledgements with the same end, one a line."""
        width, rest = divmod(len(data), times)
        begin, end = data.index(self._origin) + len(self._origin), width - len(tail)
        edges = (begin - 1, end, width - len(_END))
        if rest or any(data[edge::width] != data[edge : edge + 1] * times for edge in edges):
            return b"\n".join(_SEQ.findall(data)) + b"\n"
        digits = end - begin
        lines = bytearray(b"\n") * (times * (digits + 1))
        for at in range(digits):
            lines[at :: digits + 1] = data[begin + at :: width]
        return bytes(lines)

    def _plain(self, data: bytes, answers: Answers) -> bytes:
        """Note acknowledgements of the only origin up to now; returns the bytes between and after them."""
        pieces = self._known.split(data)
        numbers, seqs = pieces[1::3], pieces[2::3]
        if COUNTED in b"".join(numbers):
            for number, seq in zip(numbers, seqs, strict=True):
                answers.acknowledge(number, AckPlace(self._stream, seq), duplicate=False)
        else:
            answers.stored += numbers
            if self._placed:
                answers.places |= {
                    number: AckPlace(self._stream, seq) for number, seq in zip(numbers, seqs, strict=True)
                }
        return b"".join(pieces[::3])

    def _foreign_reason(self, origin: bytes, *, counted: bool) -> Refusal | None:
        """Return the fault of an acknowledgement that has another origin than the others, if there is one."""
        said = json.loads(origin + b"0}")
        stream = str(said["stream"])
        if self._wanted and stream != self._wanted:
            return self._wrong_stream(stream)
        if not self._origin:
            self._origin, self._stream = origin, stream_key(said)
            self._known = re.compile(self._reply + re.escape(origin) + rb"(\d+)\}\r\n")
            self._begin = (b"MSG " + self._prefix + COUNTED + b"  \r\n" + origin).translate(None, _DIGITS)
            return None
        self.countable = False
        return Refusal(0, 0, "several streams acknowledge") if counted else None

    def _wrong_stream(self, stream: str) -> Refusal:
        return Refusal(0, 0, f"stored in {stream}, while option stream is {self._wanted}")

    def _others(self, left: bytes, answers: Answers) -> bytes:
        """Read data other than ordinary acknowledgements; returns the incomplete operation."""
        start = 0
        while (end := left.find(b"\r\n", start)) >= 0:
            line = left[start:end]
            if line[:4] not in (b"MSG ", b"HMSG"):
                answers.lines.append(line)
                start = end + 2
                continue
            fields = line.split()
            size = int(fields[-1])
            if len(left) < end + 2 + size + 2:
                break
            header = int(fields[-2]) if line[:1] == b"H" else 0
            content = left[end + 2 : end + 2 + size]
            if fields[1].startswith(self._prefix):
                self._answer(fields[1][len(self._prefix) :], content[:header], content[header:], answers)
            start = end + 2 + size + 2
        return left[start:]

    def _answer(self, number: bytes, header: bytes, body: bytes, answers: Answers) -> None:
        if status := _STATUS.match(header):
            code = int(status[1])
            silent = "no stream takes this subject, or JetStream is not ready"
            text = silent if code == NO_RESPONDERS else header.decode()
            answers.refuse(number, Refusal(code, 0, text))
            return
        try:
            said = json.loads(body)
            error = said.get("error")
            stored = bool(said.get("stream")) and error is None
        except (ValueError, AttributeError, RecursionError):
            error, stored, said = None, False, {}
        if isinstance(error, dict):
            code, err_code = (value if isinstance(value := error.get(key), int) else 0 for key in ("code", "err_code"))
            answers.refuse(number, Refusal(code, err_code, str(error.get("description", ""))))
        elif not stored:
            answers.refuse(number, Refusal(0, 0, "something that is no stream answered: " + repr(body[:100])))
        elif self._wanted and said["stream"] != self._wanted:
            answers.refuse(number, self._wrong_stream(said["stream"]))
        elif number.startswith(COUNTED):
            self.countable = False
            answers.refuse(number, Refusal(0, 0, "the acknowledgement has an unknown form"))
        else:
            place = AckPlace(stream_key(said), b"%d" % int(said.get("seq", 0)))
            answers.acknowledge(number, place, duplicate=bool(said.get("duplicate")))


def stream_key(said: dict[str, Any]) -> str:
    """Return the name of the stream in an answer, followed by a blank and its domain if it has one."""
    return " ".join(str(said[key]) for key in ("stream", "domain") if said.get(key))
