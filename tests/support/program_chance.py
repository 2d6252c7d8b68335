"""What the makers of random programs share: names, chance, and what is known of the streams so far."""

from __future__ import annotations

import random
from typing import Any, Final

from tests.support.twins import STREAMS, Step

SECOND: Final = 1_000_000_000
HOUR: Final = 3600 * SECOND
LATER: Final = "2037-01-01T00:00:00Z"
PAST: Final = "2020-01-01T00:00:00Z"

CONSUMERS: Final = ("c", "d", "e")
LEAVES: Final = ("x", "y", "x.1", "y.2", "z.1.2")
FILTERS: Final = ("x", "y", "x.*", "*", ">", "*.*", "z.>", "*.1")
TARGETS: Final = ("push.1", "push.2", "push.3")
SAID: Final = ("", "1", "hello", "x" * 40, "y" * 200)

ANSWERS: Final = (
    b"", b"", b"+ACK", b"+OK", b"-NAK", b"-NAK", b'-NAK {"delay": 3600000000000}', b"-NAK 1h", b"+WPI", b"+TERM",
    b"+TERM why", b"+NXT", b"+NXT 2", b'+NXT {"batch":2,"no_wait":true}', b"odd", b"-NAK x",
)  # fmt: skip

Line = tuple[str, bytes, bytes, str]
"""Subject, header, payload and inbox of a message."""


class Chance:
    """A seed's choices, and the steps made so far."""

    def __init__(self, seed: int, upstreams: bool = False) -> None:
        self.rng = random.Random(seed)
        self.upstreams = upstreams
        self.streams = STREAMS[: self.rng.randint(1, 3)]
        self.known: set[str] = set()
        self.unlimited: set[str] = set()
        self.batches = 0
        self.steps: list[Step] = []

    def chosen(self, **chances: tuple[float, Any]) -> dict[str, Any]:
        """Return those fields that chance takes, each with one of its values (or what a function says)."""
        taken = {key: values for key, (chance, values) in chances.items() if self.rng.random() < chance}
        return {key: self.rng.choice(values) for key, values in taken.items()}

    def note(self, name: str, fields: dict[str, Any]) -> None:
        """Remember whether a stream may drop messages when others come."""
        if name not in self.known:
            self.unlimited.add(name)
        self.known.add(name)
        if {"max_msgs", "max_bytes", "max_msgs_per_subject", "retention"} & fields.keys():
            self.unlimited.discard(name)

    def sequence(self) -> int:
        """Return a sequence that may be there."""
        return self.rng.choice((self.rng.randint(1, 30), self.rng.randint(1, 8), self.rng.randint(100, 110)))


def block(fields: dict[str, str]) -> bytes:
    """Return a header block."""
    return ("NATS/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in fields.items()) + "\r\n").encode()


def joined(fields: dict[str, str], header: bytes) -> bytes:
    """Return a header block with more lines."""
    return block(fields)[:-2] + (header.removeprefix(b"NATS/1.0\r\n") or b"\r\n")
