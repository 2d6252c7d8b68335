"""Placeholders in bodies, subjects and headers: `{{Count}}`, `{{Time}}`, `{{Random 1 10}}` and so on."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from natsctl.api.errors import UsageError

if TYPE_CHECKING:
    from natsctl.client.messaging.outgoing import Outgoing

_PLACE = re.compile(r"\{\{\s*\.?([A-Za-z]\w*)\s*\(?\s*((?:\d+[\s,]*)*)\)?\s*\}\}")
_LETTERS = string.ascii_letters + string.digits
_ID_LENGTH = 22
MAX_RANDOM = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Moment:
    """What placeholders are filled in from: the number of the message from 1, the time, and the request it answers."""

    number: int
    now: datetime
    request: str | None = None


def _random(moment: Moment, numbers: Sequence[int]) -> str:
    if len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1] <= MAX_RANDOM:
        raise UsageError("{{Random MIN MAX}} takes a shortest and a longest length")
    return _letters(random.randint(*numbers))


def _letters(length: int) -> str:
    return "".join(random.choices(_LETTERS, k=length))


Function = Callable[[Moment, Sequence[int]], str]
FUNCTIONS: dict[str, Function] = {
    "Count": lambda moment, _: str(moment.number),
    "Cnt": lambda moment, _: str(moment.number),
    "Time": lambda moment, _: moment.now.strftime("%I:%M%p").lstrip("0"),
    "TimeStamp": lambda moment, _: moment.now.isoformat(timespec="seconds"),
    "Unix": lambda moment, _: str(int(moment.now.timestamp())),
    "UnixNano": lambda moment, _: str(int(moment.now.timestamp() * 1_000_000) * 1000),
    "ID": lambda moment, _: _letters(_ID_LENGTH),
    "Random": _random,
    "RandomString": _random,
}
"""The placeholders; those that answer requests know `Request` too."""


def fill(text: str, moment: Moment) -> str:
    """`text` with its placeholders filled in. Raises UsageError for one that is not known."""
    if "{{" not in text:
        return text
    return _PLACE.sub(lambda found: _value(found[1], found[2], moment), text)


def _value(name: str, numbers: str, moment: Moment) -> str:
    if name == "Request" and moment.request is not None:
        return moment.request
    function = FUNCTIONS.get(name)
    if function is None:
        raise UsageError(f"unknown placeholder {{{{{name}}}}}", hint=f"those known are {', '.join(FUNCTIONS)}")
    return function(moment, [int(word) for word in numbers.replace(",", " ").split()])


def fill_message(message: Outgoing, number: int, request: bytes | None = None) -> Outgoing:
    """The message with the placeholders in subject, body and headers filled in."""
    asked = request.decode("utf-8", "surrogateescape") if request is not None else None
    moment = Moment(number, datetime.now().astimezone(), asked)
    body = fill(message.body.decode("utf-8", "surrogateescape"), moment).encode("utf-8", "surrogateescape")
    headers = tuple((fill(name, moment), fill(value, moment)) for name, value in message.headers)
    return message._replace(subject=fill(message.subject, moment), body=body, headers=headers)
