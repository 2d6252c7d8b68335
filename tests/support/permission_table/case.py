"""One case of what clients may do and what they see when they may not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

CLOSED: Final = b"<closed>"
"""At the end of what a client hears: the server has closed the connection."""
ANSWER: Final = b"<answer>"
"""Stands for a message that the subscription `answers` takes, whatever is in it."""
WAIT: Final = "wait"
"""Instead of a client's name: nothing is said for as many milliseconds as the text tells."""


class Step(NamedTuple):
    """A client says something and hears something, from everybody, up to the answer to its PING."""

    who: str
    says: bytes
    hears: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A configuration, what its offender does with it, and what that comes to.

    The clients of `steps` are users of the configuration and connect with their first step; their password is `x`
    unless `clients` says what their CONNECT holds (`seed`: the nonce is signed with it; None: no CONNECT). The offender
    is the client of the first step.
    """

    claim: str
    users: str = ""
    """Lines of users; cases that have nothing else share one server."""
    config: str = ""
    """A whole configuration, for a server of its own."""
    steps: tuple[Step, ...]
    clients: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    log: str = ""
    """The end of the [ERR] line, empty where there is none."""

    @property
    def offender(self) -> str:
        """Whose doings the case is about."""
        return self.steps[0].who

    @property
    def stays(self) -> bool:
        """Whether the offender's connection is open at the end."""
        return not any(step.hears.endswith(CLOSED) for step in self.steps if step.who == self.offender)


def publish(subject: str, reply: str = "") -> bytes:
    """Return a message of one byte."""
    return f"PUB {subject} {reply and reply + ' '}1\r\nx\r\n".encode()


def message(subject: str, sid: int, reply: str = "") -> bytes:
    """Return how a client hears that message."""
    return f"MSG {subject} {sid} {reply and reply + ' '}1\r\nx\r\n".encode()


def no_publish(subject: str) -> bytes:
    """Return what a client hears whose message may not go to `subject`."""
    return f"-ERR 'Permissions Violation for Publish to \"{subject}\"'\r\n".encode()


def no_reply(subject: str) -> bytes:
    """Return what a client hears whose message may not ask for answers on `subject`."""
    return f"-ERR 'Permissions Violation for Publish with Reply of \"{subject}\"'\r\n".encode()


def no_subscription(subject: str, queue: str = "") -> bytes:
    """Return what a client hears that may not subscribe to `subject`."""
    group = f' using queue "{queue}"' if queue else ""
    return f"-ERR 'Permissions Violation for Subscription to \"{subject}\"{group}'\r\n".encode()


def error(text: str, *, closed: bool = False) -> bytes:
    """Return what a client hears of an error."""
    return f"-ERR '{text}'\r\n".encode() + (CLOSED if closed else b"")
