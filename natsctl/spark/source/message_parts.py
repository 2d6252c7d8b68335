"""Consecutive messages that are sent together, and their acknowledgements. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from natsctl.spark.source.acks import COUNTED, AckPlace, Answers, Refusal
from natsctl.spark.source.messages import Messages, content, digest_of

_LATE: Final = Refusal(0, 0, "not acknowledged in time")


class RefusedMessage(NamedTuple):
    subject: str
    refusal: Refusal

    def __str__(self) -> str:
        return f"{self.subject}: {self.refusal}"


@dataclass
class CountedPart:
    """Messages that are sent once, under one number, and stored when there are as many acknowledgements.

    Which of them is refused is not seen. So anything but an acknowledgement has each of them sent again under its own
    number. That does no harm, because the stream knows their ids.
    """

    first: int
    messages: Messages
    inbox: str
    held: bool = True
    """Whether it is not sent yet."""
    duplicates: int = 0
    refusal: Refusal | None = None
    """Why one of them was refused, if any was."""
    stream: str = ""
    """The one that acknowledges."""
    stored_seqs: bytes = b""
    """The acknowledged sequences, one a line."""
    duplicate_seqs: bytes = b""
    _stored: int = 0
    _refused: int = 0

    @property
    def pending(self) -> int:
        """The number of messages that are not acknowledged; all of them if one was refused."""
        return len(self.messages) - (0 if self._refused else self._stored + self.duplicates)

    @property
    def waiting(self) -> bool:
        return not self.held and len(self.messages) > self._stored + self.duplicates + self._refused

    @property
    def unclear(self) -> bool:
        """Return whether all is answered, and something refused for good that is to be looked for."""
        return not self.held and not self.waiting and self.refusal is not None and not self.refusal.passing

    def release(self) -> bytes:
        self.held = False
        return content(self.messages.frames_of_part(f"{self.inbox}.{self._number}"))

    def take(self, answers: Answers) -> None:
        """Note answers; which message is refused for good is not seen."""
        number = self._number.encode()
        self._stored += answers.counted[number]
        self.duplicates += answers.counted_duplicates[number]
        self._refused += answers.counted_refusals[number]
        self.stream = answers.counted_stream
        self.stored_seqs += b"".join(answers.counted_seqs.get(number, ()))
        self.duplicate_seqs += b"".join(answers.counted_duplicate_seqs.get(number, ()))
        self.refusal = answers.refused.get(number, self.refusal)

    def apart(self) -> NumberedPart:
        """Return the same messages, to be sent each under its own number."""
        counted = frozenset((self.stored_seqs + self.duplicate_seqs).split())
        return NumberedPart(self.first, self.messages, self.inbox, counted=counted)

    def excuse(self) -> RefusedMessage:
        """Return a pending message and the server's error for it."""
        return RefusedMessage(self.messages.subject(0), self.refusal or _LATE)

    @property
    def _number(self) -> str:
        return f"{COUNTED.decode()}{self.first}"


@dataclass
class NumberedPart:
    """Messages with separate acknowledgements, numbered without gaps from `first` on."""

    first: int
    messages: Messages
    inbox: str
    duplicates: int = 0
    places: dict[int, AckPlace] = field(default_factory=dict)
    """The places of the messages that are acknowledged, by their rows."""
    again: set[int] = field(default_factory=set)
    """Rows of the acknowledged messages that were stored before."""
    counted: frozenset[bytes] = frozenset()
    """The sequences that acknowledged these messages while they were counted, one each."""
    _pending: set[bytes] = field(init=False)
    _held: set[bytes] = field(init=False)
    """Messages of `_pending` that are not sent yet, or have to be sent again."""
    _refused: dict[bytes, Refusal] = field(default_factory=dict)
    """Messages of `_pending` that were sent and refused for a passing reason."""

    def __post_init__(self) -> None:
        self._pending = {b"%d" % number for number in range(self.first, self.first + len(self.messages))}
        self._held = set(self._pending)

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def held(self) -> bool:
        return bool(self._held)

    @property
    def waiting(self) -> bool:
        return len(self._pending) > len(self._refused) + len(self._held)

    @property
    def refusal(self) -> Refusal | None:
        return next(iter(self._refused.values()), None)

    def release(self, only_first: bool = False) -> bytes:
        """Return the bytes of the held messages to send, in their order: of the first one, or of all."""
        rows: Sequence[int] = range(len(self.messages))
        if len(self._held) < len(rows):
            rows = sorted(int(number) - self.first for number in self._held)
        if only_first:
            rows = rows[:1]
        self._held -= {b"%d" % (self.first + row) for row in rows} if only_first else self._held
        return content(self.messages.frames(self.inbox, self.first, rows))

    def take(self, answers: Answers) -> RefusedMessage | None:
        """Record answers; returns a message that is refused for good, if there is one."""
        if self.messages.any_made:
            self._note_places(answers)
        self._pending.difference_update(answers.stored)
        left = len(self._pending)
        self._pending.difference_update(answers.duplicates)
        self.duplicates += left - len(self._pending)
        self._held &= self._pending
        if self._refused:
            self._refused = {number: why for number, why in self._refused.items() if number in self._pending}
        for number, refusal in answers.refused.items():
            if number in self._pending and number not in self._held:
                if not refusal.passing:
                    return RefusedMessage(self._subject(number), refusal)
                self._refused[number] = refusal
        return None

    def made_rows(self) -> dict[int, bytes]:
        """Return the digests of the pending messages with ids made from content, by row."""
        made = self.messages.made
        if made is None:
            return {}
        rows = sorted(int(number) - self.first for number in self._pending)
        return {row: digest_of(self.messages.ids[row].as_py()) for row in rows if made[row].as_py()}

    def settle(self, places: dict[int, AckPlace]) -> None:
        """Note where messages are that are stored, by their rows: they are not sent again."""
        for row, place in places.items():
            number = b"%d" % (self.first + row)
            if number in self._pending:
                self._pending.discard(number)
                self._held.discard(number)
                self._refused.pop(number, None)
                self.places[row] = place
                self.again.add(row)
                self.duplicates += 1

    def apart(self) -> NumberedPart:
        """Return the same part with all pending messages to send again."""
        self._held = set(self._pending)
        self._refused.clear()
        return self

    def excuse(self) -> RefusedMessage:
        """Return the first pending message and the server's error for it."""
        number = min(self._pending, key=int)
        return RefusedMessage(self._subject(number), self._refused.get(number) or self.refusal or _LATE)

    def _note_places(self, answers: Answers) -> None:
        duplicates = set(answers.duplicates)
        for number in self._pending & answers.places.keys():
            row = int(number) - self.first
            self.places[row] = answers.places[number]
            if number in duplicates:
                self.again.add(row)

    def _subject(self, number: bytes) -> str:
        return self.messages.subject(int(number) - self.first)
