"""Templates in bodies, subjects, headers and commands, with the functions of publish, request and reply.

A body or subject that is no valid template is sent unchanged, with a note, as by the nats tool.
"""

from __future__ import annotations

import random
import re
import string
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import UsageError
from natsctl.cli.framework import output
from natsctl.cli.messaging.go_template import MAX_OUTPUT, expand
from natsctl.cli.messaging.go_values import Foreign, TemplateError
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.client.message import Message
    from natsctl.client.messaging.messages import Outgoing


_LETTERS = string.ascii_letters + string.digits
_ID_LENGTH = 22
NAMES = ("Count", "Cnt", "Time", "TimeStamp", "Unix", "UnixNano", "ID", "Random MIN MAX")
"""The functions as help shows them; replies have `Request` too."""


@dataclass(frozen=True, slots=True)
class TemplateContext:
    """The number of a message, its time in ns since the epoch, and the request that it answers."""

    number: int
    now_ns: int
    request: str = ""

    def fill(self, text: str, mark: Callable[[str], str] | None = None) -> str:
        """Return the executed template `text`; `mark` is applied to text from the request.

        Raises TemplateError, and UsageError for unsupported features.
        """
        if "{{" not in text:
            return text
        values = self._values()
        functions: dict[str, Callable[..., Any]] = {
            name: value if callable(value) else lambda value=value: value
            for name, value in values.items()
            if name != "Request" or self.request
        }
        return expand(text, {**functions, "Random": _random}, values, mark)

    def _values(self) -> dict[str, Any]:
        """Return the fields of the data, functions where they take time to compute."""
        return {
            "Count": self.number,
            "Cnt": self.number,
            "Time": lambda: f"{self._at():%I:%M%p}".lstrip("0"),
            "TimeStamp": self._stamp,
            "Unix": self.now_ns // 10**9,
            "UnixNano": self.now_ns,
            "ID": lambda: _letters(_ID_LENGTH),
            "Request": Foreign(self.request),
        }

    def _at(self) -> datetime:
        return datetime.fromtimestamp(self.now_ns // 10**9).astimezone()

    def _stamp(self) -> str:
        at = self._at()
        return at.isoformat() if at.utcoffset() else at.isoformat().removesuffix("+00:00") + "Z"


def check_supported(text: str) -> None:
    """Raise UsageError for a template with an unsupported feature; an invalid one is sent unchanged."""
    with suppress(TemplateError):
        TemplateContext(0, 0, "x").fill(text)


class _Placeholders:
    """Foreign texts, kept aside while a command line is split, so that none of them becomes a word of its own."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def put(self, text: str) -> str:
        """Keep a text, and return its placeholder."""
        self._texts.append(text.replace("\0", ""))
        return f"\0{len(self._texts) - 1}\0"

    def words(self, flag: str, line: str) -> list[str]:
        """Return the words of a line, with the texts put back. Raises UsageError."""
        from natsctl.client.messaging.request_reply import words_of

        return [re.sub(r"\0(\d+)\0", lambda found: self._texts[int(found[1])], word) for word in words_of(flag, line)]


def command_of(line: str, subject: str, body: bytes, number: int) -> list[str]:
    """Return the words of a command line for a request. Raises UsageError.

    `{{1}}` is a token of its subject, counted from 0, and `{{.Request}}` its body.
    """
    aside = _Placeholders()
    for at, token in enumerate(subject.split(".")):
        if (place := f"{{{{{at}}}}}") in line:
            line = line.replace(place, aside.put(token))
    moment = TemplateContext(number, time.time_ns(), body.decode("utf-8", "surrogateescape"))
    try:
        line = moment.fill(line, aside.put)
    except TemplateError as fault:
        output.log(f"The command is run as it is, since its template is not valid: {safe(str(fault))}")
    return aside.words("--command", line)


async def translated(command: str, message: Message, stream: str = "") -> bytes:
    """Return the output of a program for a body; its words are a template with `Subject` and `Stream`.

    Raises CommandFailedError, and UsageError for an invalid template.
    """
    from natsctl.client.messaging.request_reply import run

    aside = _Placeholders()
    functions = {"Subject": lambda: Foreign(message.subject), "Stream": lambda: stream}
    try:
        line = expand(command, functions, mark=aside.put)
    except TemplateError as fault:
        raise UsageError(f"--translate: the template is not valid: {fault}") from fault
    return await run(aside.words("--translate", line), message.body)


def _random(shortest: Any, longest: Any) -> str:
    lengths = []
    for value in (shortest, longest):
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
        if not whole or not 0 <= value <= MAX_OUTPUT:
            raise TemplateError(f"Random takes lengths from 0 to {MAX_OUTPUT}, not {value}")
        lengths.append(int(value))
    return _letters(random.randint(*sorted(lengths)))


def _letters(length: int) -> str:
    return "".join(random.choices(_LETTERS, k=length))


def fill_message(message: Outgoing, number: int, request: bytes = b"", *, headers_only: bool = False) -> Outgoing:
    """Return the message with the templates in subject, body and the values of headers executed.

    An invalid one leaves subject or body unchanged, with a note on stderr. Raises UsageError for one in a header.
    """
    moment = TemplateContext(number, time.time_ns(), request.decode("utf-8", "surrogateescape"))
    headers = tuple((name, _header(moment, name, value)) for name, value in message.headers)
    if headers_only:
        return message._replace(headers=headers)
    body = message.body
    if b"{{" in body:
        text = _or_as_it_is(moment, "body", body.decode("utf-8", "surrogateescape"))
        body = text.encode("utf-8", "surrogateescape")
    return message._replace(subject=_or_as_it_is(moment, "subject", message.subject), body=body, headers=headers)


def _header(moment: TemplateContext, name: str, value: str) -> str:
    try:
        return str(moment.fill(value))
    except TemplateError as fault:
        raise UsageError(f"--header {name}: the template is not valid: {fault}") from fault


def _or_as_it_is(moment: TemplateContext, what: str, text: str) -> str:
    """Return the executed template, or its text if it is invalid."""
    try:
        return moment.fill(text)
    except TemplateError as fault:
        output.log(f"The {what} is sent as it is, since its template is not valid: {safe(str(fault))}")
        return text
