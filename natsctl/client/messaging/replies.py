"""Which answers belong to which requests, as somebody sees it who listens to both."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from natsctl.client.connection import Connection
    from natsctl.client.message import Message

MAX_OPEN = 10_000
"""Requests without an answer that are remembered; the oldest is forgotten first."""


class Asked(NamedTuple):
    """A request: its number, its subject and when it came (monotonic ns)."""

    number: int
    subject: str
    at_ns: int


class Matcher:
    """Remembers requests by the subject of their answer; `subject` is what all answers come on."""

    def __init__(self, connection: Connection) -> None:
        self._prefix = connection.new_inbox().partition(".")[0] + "."
        if given := connection.target.settings.inbox_prefix:
            self._prefix = given.rstrip(".") + "."
        self.subject = f"{self._prefix}>"
        self._open: OrderedDict[str, Asked] = OrderedDict()

    def is_answer(self, message: Message) -> bool:
        """Whether the message came on an inbox."""
        return message.subject.startswith(self._prefix)

    def asked(self, number: int, message: Message) -> None:
        """Remember a message that wants an answer."""
        if not message.reply:
            return
        if len(self._open) >= MAX_OPEN:
            self._open.popitem(last=False)
        self._open[message.reply] = Asked(number, message.subject, time.monotonic_ns())

    def answered(self, message: Message) -> Asked | None:
        """The request that a message answers; it is remembered, as there may be more answers."""
        return self._open.get(message.subject)
