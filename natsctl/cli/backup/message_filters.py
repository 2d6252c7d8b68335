"""Flags that select messages of a backup."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

from natsctl.api.errors import UsageError
from natsctl.api.subjects import is_valid_subject
from natsctl.cli.framework.flags import read_moment
from natsctl.cli.framework.parameters import Option

if TYPE_CHECKING:
    from natsctl.client.backup.selection import MessageSelection


_END: Final = 1 << 63
"""A time in ns after any message."""
Subjects = Annotated[
    list[str] | None,
    Option("--subject", metavar="SUBJECT", help="only messages on this subject; may have wildcards"),
]
Since = Annotated[
    str | None,
    Option(
        "--since",
        metavar="TIME",
        help="only messages stored at this time or later, or this long ago",
    ),
]
Until = Annotated[
    str | None,
    Option(
        "--until",
        metavar="TIME",
        help="only messages stored at this time or earlier, or this long ago",
    ),
]
Sequences = Annotated[
    str,
    Option("--seq", metavar="N|FROM-TO", help="only messages with this sequence, or in this range"),
]
ExcludeSubjects = Annotated[
    list[str] | None,
    Option("--exclude-subject", metavar="SUBJECT", help="not on this subject"),
]
After = Annotated[str | None, Option("--after", metavar="TIME", help="the same as --since")]
Before = Annotated[
    str | None,
    Option("--before", metavar="TIME", help="stored before this time, or before so long ago"),
]
FirstSeq = Annotated[int | None, Option("--first-seq", metavar="N", help="with this sequence or a higher one")]
LastSeq = Annotated[int | None, Option("--last-seq", metavar="N", help="with this sequence or a lower one")]
Headers = Annotated[
    list[str] | None,
    Option("--header", metavar="NAME[:VALUE]", help="with this header"),
]
ExcludeHeaders = Annotated[list[str] | None, Option("--exclude-header", metavar="NAME", help="without this header")]
Payloads = Annotated[
    list[str] | None,
    Option("--payload-match", metavar="REGEX", help="with a matching payload"),
]
ExcludePayloads = Annotated[
    list[str] | None,
    Option("--exclude-payload-match", metavar="REGEX", help="without a matching payload"),
]


def read_selection(subjects: list[str] | None, since: str | None, until: str | None, seq: str) -> MessageSelection:
    from natsctl.client.backup.selection import MessageSelection

    first, last = _sequences(seq)
    return MessageSelection(
        tuple(_subject("--subject", text) for text in subjects or ()),
        _moment("--since", since),
        _moment("--until", until),
        first,
        last,
    )


def narrow_selection(
    pick: MessageSelection,
    *,
    after: str | None,
    before: str | None,
    first_seq: int | None,
    last_seq: int | None,
    exclude_subjects: list[str] | None,
    headers: list[str] | None,
    exclude_headers: list[str] | None,
    payloads: list[str] | None,
    exclude_payloads: list[str] | None,
) -> MessageSelection:
    """Return the selection, narrowed by the flags of the `nats` tool. Raises UsageError."""
    since_ns = max(pick.since_ns, _moment("--after", after))
    until_ns = min(pick.until_ns or _END, _moment("--before", before) - 1 if before else _END)
    first, last = max(pick.first_seq, _sequence("--first-seq", first_seq)), pick.last_seq
    if last_seq is not None:
        last = min(last or last_seq, _sequence("--last-seq", last_seq))
    if since_ns > until_ns:
        raise UsageError("--after: must be earlier than --before")
    if last and first > last:
        raise UsageError(f"--first-seq: {first} is after --last-seq {last}")
    return replace(
        pick,
        since_ns=since_ns,
        until_ns=0 if until_ns == _END else until_ns,
        first_seq=first,
        last_seq=last,
        exclude_subjects=tuple(_subject("--exclude-subject", text) for text in exclude_subjects or ()),
        headers=tuple(_header(text) for text in headers or ()),
        exclude_headers=tuple(_header_name("--exclude-header", text) for text in exclude_headers or ()),
        payloads=tuple(_pattern("--payload-match", text) for text in payloads or ()),
        exclude_payloads=tuple(_pattern("--exclude-payload-match", text) for text in exclude_payloads or ()),
    )


def _sequence(flag: str, number: int | None) -> int:
    if number is not None and number < 1:
        raise UsageError(f"{flag}: expected 1 or more, not {number}")
    return number or 0


def _subject(flag: str, text: str) -> str:
    if not is_valid_subject(text):
        raise UsageError(f"{flag}: invalid subject {text!r}")
    return text


def _header(text: str) -> tuple[str, str | None]:
    name, colon, value = text.partition(":")
    return _header_name("--header", name), value.strip() if colon else None


def _header_name(flag: str, name: str) -> str:
    if not name or any(char in ": \t\r\n" for char in name):
        raise UsageError(f"{flag}: invalid header name {name!r}")
    return name


def _pattern(flag: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{flag}: invalid payload expression {text!r}: {error}") from error


def _moment(flag: str, text: str | None) -> int:
    if not text:
        return 0
    try:
        return read_moment(text, back=True)
    except ValueError as error:
        raise UsageError(f"{flag}: invalid time {text!r}: {error}") from error


def _sequences(text: str) -> tuple[int, int]:
    """Return the first and last sequence of `N`, `FROM-TO`, `FROM-` or `-TO`; 0 for an open end."""
    first, dash, last = text.replace("..", "-").partition("-")
    parts = [part.strip() for part in (first, last)]
    if any(part and not part.isdecimal() for part in parts) or (text and not any(parts)):
        raise UsageError(f"--seq: expected N, FROM-TO, FROM- or -TO, not {text!r}")
    low, high = (int(part or 0) for part in parts)
    if not dash:
        return low, low
    if high and low > high:
        raise UsageError(f"--seq: {low} is after {high}")
    return low, high
