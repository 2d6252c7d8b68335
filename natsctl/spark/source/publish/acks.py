"""Acknowledgements of publishes, found in raw protocol bytes many at a time."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

_STATUS = re.compile(rb"NATS/1\.0 (\d\d\d)")
_STORED_AT = re.compile(rb'"stream": ?"([^"\\]*)",.{0,200}?"seq": ?(\d+)')


@dataclass(frozen=True)
class Refusal:
    """Why one message was not stored."""

    code: int
    err_code: int
    description: str

    @property
    def passing(self) -> bool:
        """Whether the same message may be accepted a moment later.

        Code 503 is what the contract gives for no responders, no leader and a store that cannot take more for now
        (10077); 408 and 429 are asked to come again.
        """
        return self.code in (408, 429, 503)

    def __str__(self) -> str:
        return f"{self.description} ({self.err_code or self.code})"


@dataclass
class Answers:
    """What was read at once: numbers of the messages that were stored, and everything else."""

    stored: list[bytes] = field(default_factory=list)
    duplicates: list[bytes] = field(default_factory=list)
    refused: dict[bytes, Refusal] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    """What came between messages, such as PING: for the connection's eyes."""
    last_seq: int = 0
    stream: str = ""


class AckParser:
    """Reads what comes to `<inbox>.<number>`; the plain acknowledgement is matched as text, all others are decoded."""

    def __init__(self, inbox: str) -> None:
        reply = rb"MSG " + re.escape(inbox.encode()) + rb"\.(\d+) \S+ \d+\r\n"
        self._plain = re.compile(reply + rb'\{"stream": ?"[^"\\]*", ?"seq": ?\d+\}\r\n')
        self._again = re.compile(reply + rb'\{"stream": ?"[^"\\]*", ?"seq": ?\d+, ?"duplicate": ?true\}\r\n')
        self._prefix = inbox.encode() + b"."
        self._rest = b""

    def forget(self) -> None:
        """Drop half an answer: its other half went down with the connection."""
        self._rest = b""

    def feed(self, data: bytes) -> Answers:
        """Return the answers that are complete now."""
        answers = Answers()
        buffer = self._rest + data if self._rest else data
        pieces = self._plain.split(buffer)
        answers.stored = pieces[1::2]
        others = pieces[::2]
        tail = others.pop()
        if any(others):
            self._others(b"".join(others), answers)
        self._rest = self._others(tail, answers) if tail else b""
        if found := _STORED_AT.findall(buffer[-512:]):
            answers.stream, answers.last_seq = found[-1][0].decode(), int(found[-1][1])
        return answers

    def _others(self, buffer: bytes, answers: Answers) -> bytes:
        """Read what is no plain acknowledgement; returns the operation that is not complete."""
        pieces = self._again.split(buffer)
        answers.duplicates += pieces[1::2]
        left = b"".join(pieces[::2])
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

    @staticmethod
    def _answer(number: bytes, header: bytes, body: bytes, answers: Answers) -> None:
        if status := _STATUS.match(header):
            code = int(status[1])
            text = "no stream takes this subject, or JetStream is not ready" if code == 503 else header.decode()
            answers.refused[number] = Refusal(code, 0, text)
            return
        try:
            said = json.loads(body)
            error = said.get("error")
            stored = bool(said.get("stream")) and error is None
        except (ValueError, AttributeError):
            error, stored, said = None, False, {}
        if stored:
            (answers.duplicates if said.get("duplicate") else answers.stored).append(number)
        elif isinstance(error, dict):
            code, err_code = int(error.get("code", 0)), int(error.get("err_code", 0))
            answers.refused[number] = Refusal(code, err_code, str(error.get("description", "")))
        else:
            answers.refused[number] = Refusal(0, 0, "something that is no stream answered: " + repr(body[:100]))
