"""What was given to send and is not acknowledged yet. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from natsctl.spark.source.columns.arrays import int_array
from natsctl.spark.source.publish.acks import Answers, Refusal


@dataclass
class Part:
    """Consecutive messages that are sent together; numbered without gaps from `first` on."""

    first: int
    frames: pa.BinaryArray
    subjects: pa.BinaryArray
    pending: set[bytes] = field(init=False)
    held: set[bytes] = field(init=False)
    """Those of `pending` that are not sent yet, or have to be sent again."""
    refused: dict[bytes, Refusal] = field(default_factory=dict)
    """Those of `pending` that were sent and refused for a passing reason."""

    def __post_init__(self) -> None:
        self.pending = {b"%d" % number for number in range(self.first, self.first + len(self.frames))}
        self.held = set(self.pending)

    def subject(self, number: bytes) -> str:
        """The subject of a message."""
        return str(self.subjects[int(number) - self.first].as_py().decode())

    def release(self, only_first: bool) -> bytes:
        """What to send of the held messages, in their order: the first one, or all."""
        if len(self.held) == len(self.frames) and not only_first:
            frames = self.frames
        else:
            rows = sorted(int(number) - self.first for number in self.held)
            frames = self.frames.take(int_array(rows[:1] if only_first else rows))
        self.held -= {min(self.held, key=int)} if only_first else self.held
        return content(frames)


class Window:
    """The parts that are under way, oldest first."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.duplicates = 0

    @property
    def pending(self) -> int:
        """How many messages are not acknowledged."""
        return sum(len(part.pending) for part in self.parts)

    @property
    def waiting(self) -> bool:
        """Whether any answer is to come to what was sent."""
        return any(len(part.pending) > len(part.refused) + len(part.held) for part in self.parts)

    @property
    def refused(self) -> bool:
        """Whether anything that was sent was refused for a passing reason."""
        return any(part.refused for part in self.parts)

    def hold(self) -> None:
        """Have all that is not acknowledged sent again."""
        for part in self.parts:
            part.held = set(part.pending)
            part.refused.clear()

    def release(self, only_first: bool) -> bytes:
        """What to send now of what is held: the first message, or all."""
        parts = [part for part in self.parts if part.held]
        return b"".join(part.release(only_first) for part in parts[: 1 if only_first else None])

    def take(self, answers: Answers) -> str:
        """Note answers; returns what is wrong with a message that is refused for good, or nothing."""
        for part in self.parts:
            part.pending.difference_update(answers.stored)
            left = len(part.pending)
            part.pending.difference_update(answers.duplicates)
            self.duplicates += left - len(part.pending)
            part.held &= part.pending
            if part.refused:
                part.refused = {number: why for number, why in part.refused.items() if number in part.pending}
        fault = self._refuse(answers.refused)
        self.parts = [part for part in self.parts if part.pending]
        return fault

    def _refuse(self, refused: dict[bytes, Refusal]) -> str:
        for number, refusal in refused.items():
            for part in self.parts:
                if number in part.pending - part.held:
                    if not refusal.passing:
                        return f"{part.subject(number)}: {refusal}"
                    part.refused[number] = refusal
        return ""

    def excuse(self) -> str:
        """The subject of the first message that is pending, and what the server said of it, if anything."""
        part = self.parts[0]
        number = min(part.pending, key=int)
        refusal = part.refused.get(number) or next(iter(part.refused.values()), None)
        return f"{part.subject(number)}: {refusal or 'not acknowledged in time'}"


def content(frames: pa.BinaryArray) -> bytes:
    """The bytes of an array's values behind each other, which is how Arrow keeps them."""
    start, end = _ends(frames)
    data = frames.buffers()[2]
    return bytes(memoryview(data)[start:end]) if data is not None else b""


def content_bytes(frames: pa.BinaryArray) -> int:
    """How many bytes that is."""
    start, end = _ends(frames)
    return end - start


def _ends(frames: pa.BinaryArray) -> tuple[int, int]:
    offsets = memoryview(frames.buffers()[1]).cast("i")
    return offsets[frames.offset], offsets[frames.offset + len(frames)]
