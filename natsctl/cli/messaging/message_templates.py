"""Templates in bodies, subjects, headers and commands: `{{Count}}`, `{{Random 10 100}}`, documented by the nats tool.

A body or subject that is not a valid template is sent unchanged, with a note, as by the nats tool. Other features of Go
templates are a usage error.
"""

from __future__ import annotations

import random
import re
import string
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

from natsctl.api.errors import UsageError
from natsctl.cli.framework import output
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.client.message import Message
    from natsctl.client.messaging.messages import Outgoing

MAX_RANDOM: Final = 64 * 1024 * 1024
"""Maximum length of a random text: the largest payload that any server accepts, in bytes."""
NAMES: Final = ("Count", "Cnt", "Time", "TimeStamp", "Unix", "UnixNano", "ID", "Random MIN MAX")
"""The functions as help shows them; replies also have `Request`."""
_ACTION: Final = re.compile(r"\{\{(?:(.*?)\}\})?", re.DOTALL)
_CALL: Final = re.compile(r"\s*\.?([A-Za-z]\w*)((?:\s+\d+)*)\s*")
_GO_ONLY: Final = re.compile(
    r"-\s|.*\s-$|/\*|\s*(?:\$|(?:if|with|range|else|end|define|template|block|break|continue|and|or|not|eq|ne|lt|le|gt|ge"
    r"|len|index|slice|print|printf|println|html|urlquery|js|call)\b)|[^|]*\|",
    re.DOTALL,
)
"""Actions that Go accepts and natsctl does not."""
_LETTERS: Final = string.ascii_letters + string.digits
_ID_LENGTH: Final = 22

Functions = Mapping[str, Callable[..., str]]


class TemplateError(ValueError):
    """Text that is not a valid template."""


def expand(text: str, functions: Functions) -> str:
    """Return `text` with each action replaced by the result of its function."""
    return _ACTION.sub(lambda match: _result(match[1], functions), text)


def _result(action: str | None, functions: Functions) -> str:
    if action is None:
        raise TemplateError("unclosed action")
    call = _CALL.fullmatch(action)
    if call is not None and call[1] in functions:
        try:
            return functions[call[1]](*map(int, call[2].split()))
        except TypeError:
            raise TemplateError(f"wrong number of arguments for {call[1]}") from None
    if _GO_ONLY.match(action):
        raise UsageError(
            f"{{{{{action}}}}} is not supported in templates",
            hint=f"the functions are {', '.join(NAMES)}; --no-templates sends the text as it is",
        )
    raise TemplateError(f"{{{{{action}}}}} is not a function")


def message_functions(number: int, now_ns: int) -> dict[str, Callable[..., str]]:
    """Return the functions of templates in message `number`, sent at `now_ns` (since the epoch)."""
    now = datetime.fromtimestamp(now_ns // 10**9).astimezone()
    stamp = now.isoformat() if now.utcoffset() else now.isoformat().removesuffix("+00:00") + "Z"
    return {
        "Count": lambda: str(number),
        "Cnt": lambda: str(number),
        "Time": lambda: f"{now:%I:%M%p}".lstrip("0"),
        "TimeStamp": lambda: stamp,
        "Unix": lambda: str(now_ns // 10**9),
        "UnixNano": lambda: str(now_ns),
        "ID": lambda: _random_text(_ID_LENGTH),
        "Random": _random,
    }


def _random(low: int, high: int) -> str:
    if max(low, high) > MAX_RANDOM:
        raise TemplateError(f"Random: a length is above {MAX_RANDOM}")
    return _random_text(random.randint(min(low, high), max(low, high)))


def _random_text(length: int) -> str:
    return "".join(random.choices(_LETTERS, k=length))


def check_supported(text: str) -> None:
    """Raise UsageError for a template with an unsupported feature; an invalid one is sent unchanged."""
    with suppress(TemplateError):
        expand(text, {**message_functions(0, 0), "Request": str})


class _Placeholders:
    """Texts from messages, kept aside while a command line is split, so that none becomes an argument of its own."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def put(self, text: str) -> str:
        self._texts.append(text.replace("\0", ""))
        return f"\0{len(self._texts) - 1}\0"

    def split(self, flag: str, line: str) -> list[str]:
        """Return the arguments of a command line, with the texts put back. Raises UsageError."""
        from natsctl.client.messaging.request_reply import words_of

        return [re.sub(r"\0(\d+)\0", lambda match: self._texts[int(match[1])], word) for word in words_of(flag, line)]


def command_of(line: str, subject: str, body: bytes, number: int) -> list[str]:
    """Return the arguments of the command line for a request. Raises UsageError.

    `{{1}}` is a token of its subject, counted from 0, and `{{.Request}}` its body.
    """
    aside = _Placeholders()
    for index, token in enumerate(subject.split(".")):
        if (action := f"{{{{{index}}}}}") in line:
            line = line.replace(action, aside.put(token))
    request = body.decode("utf-8", "surrogateescape")
    functions = {**message_functions(number, time.time_ns()), "Request": lambda: aside.put(request)}
    return aside.split("--command", _expanded_or_unchanged("command is run", line, functions))


async def translated(command: str, message: Message, stream: str = "") -> bytes:
    """Return the output of a program for a body; its arguments are a template with `Subject` and `Stream`."""
    from natsctl.client.messaging.request_reply import run

    aside = _Placeholders()
    try:
        line = expand(command, {"Subject": lambda: aside.put(message.subject), "Stream": lambda: stream})
    except TemplateError as error:
        raise UsageError(f"--translate: the template is not valid: {error}") from error
    return await run(aside.split("--translate", line), message.body)


def fill_message(
    message: Outgoing, number: int, request: bytes | None = None, *, headers_only: bool = False
) -> Outgoing:
    """Return the message with the templates in subject, body and the values of headers expanded.

    An invalid one leaves subject or body unchanged, with a note on stderr. Raises UsageError for one in a header.
    """
    functions = message_functions(number, time.time_ns())
    if request is not None:
        functions["Request"] = lambda: request.decode("utf-8", "surrogateescape")
    headers = tuple((name, _header(functions, name, value)) for name, value in message.headers)
    if headers_only:
        return message._replace(headers=headers)
    body = message.body
    if b"{{" in body:
        text = _expanded_or_unchanged("body is sent", body.decode("utf-8", "surrogateescape"), functions)
        body = text.encode("utf-8", "surrogateescape")
    subject = _expanded_or_unchanged("subject is sent", message.subject, functions)
    return message._replace(subject=subject, body=body, headers=headers)


def _header(functions: Functions, name: str, value: str) -> str:
    try:
        return expand(value, functions)
    except TemplateError as error:
        raise UsageError(f"--header {name}: the template is not valid: {error}") from error


def _expanded_or_unchanged(action: str, text: str, functions: Functions) -> str:
    try:
        return expand(text, functions)
    except TemplateError as error:
        output.log(f"The {action} as it is, since its template is not valid: {safe(str(error))}")
        return text
