"""Search in the messages of a stream: `natsctl stream search`, by subject, headers, body, time, sequence or expression.

Subjects, the start and the end are searched for by the server; the rest is tried on each message as it comes.
"""

from __future__ import annotations

import json as json_module
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from natsctl.api import headers
from natsctl.api.errors import NothingReceivedError, UsageError
from natsctl.api.model import Model
from natsctl.api.times import format_time
from natsctl.api.units import plural
from natsctl.cli.backup.message_filters import CONTENT, PLACE, selection_of
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Given, Json, StreamName, flagged
from natsctl.cli.framework.parameters import Argument, ExitError, Option
from natsctl.cli.framework.resolve import pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.api.archive.archive import ArchivedMessage
    from natsctl.client.backup.selection import MessageSelection
    from natsctl.client.manager import Manager
    from natsctl.client.messaging.feed import Start


class SearchTotals(Model):
    """Numbers of matching and of examined messages."""

    matches: int
    searched: int


class MessageScope(Mapping[str, Any]):
    """The names that an expression about a message may use, each made when it is asked for.

    `json` is the body as JSON, nil if it is not JSON; `headers` has the first value of each name.
    """

    NAMES = ("subject", "seq", "time", "size", "headers", "data", "json")

    def __init__(self, message: ArchivedMessage) -> None:
        self._message = message

    def __getitem__(self, name: str) -> Any:
        message = self._message
        match name:
            case "subject":
                return _text(message.subject)
            case "seq":
                return message.seq
            case "time":
                return format_time(message.ts_ns)
            case "size":
                return len(message.payload)
            case "headers":
                return self.headers
            case "data":
                return _text(message.payload)
            case "json":
                return self.json
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.NAMES)

    def __len__(self) -> int:
        return len(self.NAMES)

    @cached_property
    def headers(self) -> dict[str, str]:
        pairs = headers.parse(self._message.header)
        return {_text(key): _text(value) for key, value in reversed(list(pairs))}

    @cached_property
    def json(self) -> Any:
        try:
            return json_module.loads(self._message.payload)
        except (ValueError, RecursionError):
            return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


@flagged((*PLACE, *CONTENT))
def search(
    session: Session,
    given: Given,
    stream: StreamName = None,
    pattern: Annotated[str, Argument(metavar="PATTERN", help="regular expression to find in bodies")] = "",
    fixed: Annotated[bool, Option("--fixed-strings", "-F", help="PATTERN is plain text")] = False,
    ignore_case: Annotated[bool, Option("--ignore-case", "-i", help="PATTERN ignores case")] = False,
    expression: Annotated[
        str,
        Option("--expression", metavar="EXPR", help="only messages that match this expression, as in json.total > 100"),
    ] = "",
    count: Annotated[int, Option("--count", metavar="N", help="end after N matches", min=0)] = 0,
    total: Annotated[bool, Option("--total", help="print the number of matches only")] = False,
    direct: Annotated[bool, Option("--direct", help="read with direct gets, without a consumer")] = False,
    raw: Annotated[bool, Option("--raw", "-r", help="bodies only, each on a line")] = False,
    json: Json = False,
) -> None:
    """Search a stream for messages, and print the messages that pass every filter.

    An expression is about subject, seq, time, size, headers, data, and json, the body as JSON. Nothing is removed or
    acknowledged. Without a match the exit status is 7.
    """
    pick = selection_with(given, pattern, fixed, ignore_case)
    if total and raw:
        raise UsageError("--total prints a number, --raw bodies")
    test = message_test(expression)
    name = pick_stream(session, stream)

    def show(message: ArchivedMessage) -> None:
        from natsctl.cli.backup.archives import show_stored

        if raw and not json:
            output.emit_bytes(message.payload + b"\n")
        elif not total:
            show_stored(name, message, raw=False, json=json)

    with suggesting(session, name):
        found = session.run(lambda manager: _search(manager, name, pick, test, show, most=count, direct=direct))
    _conclude(name, found, total=total, json=json)


def _conclude(name: str, found: SearchTotals, *, total: bool, json: bool) -> None:
    searched = f"{plural(found.searched, 'message')} of Stream {safe(name)} searched"
    if total and json:
        output.emit_json({"matches": found.matches, "searched": found.searched})
    elif total:
        output.emit(str(found.matches))
    if not found.matches and total:
        raise ExitError(NothingReceivedError.exit_code)
    if not found.matches:
        raise NothingReceivedError(f"no message matches: {searched}")
    if not json and not total:
        output.note(f"{searched}, {found.matches:,} found")


def selection_with(given: Given, pattern: str, fixed: bool, ignore_case: bool) -> MessageSelection:
    pick = selection_of(given)
    if pattern:
        return replace(pick, payloads=(*pick.payloads, _pattern(pattern, fixed, ignore_case)))
    if fixed or ignore_case:
        raise UsageError("--fixed-strings and --ignore-case are about PATTERN, but it is missing")
    return pick


def _pattern(text: str, fixed: bool, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(re.escape(text) if fixed else text, re.IGNORECASE if ignore_case else 0)
    except re.error as failure:
        raise UsageError(
            f"PATTERN: invalid expression {text!r}: {failure}", hint="--fixed-strings takes it as plain text"
        ) from failure


def message_test(expression: str) -> Callable[[ArchivedMessage], bool] | None:
    """Return the test of an expression. Raises UsageError, also for names that it may not use."""
    if not expression:
        return None
    from natsctl.api.archive.archive import ArchivedMessage
    from natsctl.client.search import compile_condition

    condition = compile_condition(expression, strict=False)
    condition(MessageScope(ArchivedMessage(0, 0, b"", b"", b"")))
    return lambda message: condition(MessageScope(message))


async def _search(
    manager: Manager,
    stream: str,
    pick: MessageSelection,
    test: Callable[[ArchivedMessage], bool] | None,
    show: Callable[[ArchivedMessage], None],
    *,
    most: int,
    direct: bool,
) -> SearchTotals:
    """Show the messages that match, up to `most`, and return how many there were."""
    from natsctl.client.backup.writer import stored_record
    from natsctl.client.messaging.feed import stored_messages

    found = SearchTotals(0, 0)
    start = _start(pick)
    reading = stored_messages(manager, stream, pick.subjects, start, direct=direct)
    async with aclosing(reading) as messages:
        async for message in messages:
            record = stored_record(message)
            if (pick.last_seq and record.seq > pick.last_seq) or (pick.until_ns and record.ts_ns > pick.until_ns):
                break
            found.searched += 1
            if pick(record) and (test is None or test(record)):
                found.matches += 1
                show(record)
                if found.matches == most:
                    break
    return found


def _start(pick: MessageSelection) -> Start:
    from natsctl.client.messaging.feed import Start

    if pick.first_seq:
        return Start("by_start_sequence", pick.first_seq)
    if pick.since_ns:
        return Start("by_start_time", max(0, time.time_ns() - pick.since_ns))
    return Start()
