"""Flags that select messages of a backup."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from natsctl.api.errors import UsageError
from natsctl.api.subjects import is_valid_subject
from natsctl.cli.framework.flags import WHOLE, Flag, FlagKind, Given, read_moment

if TYPE_CHECKING:
    from natsctl.client.backup.selection import MessageSelection


_END: Final = 1 << 63
"""A time in ns after any message."""


def _position(text: str) -> int:
    number: int = WHOLE.read(text)
    if number < 1:
        raise ValueError(f"expected 1 or more, not {number}")
    return number


def _subject(text: str) -> str:
    if not is_valid_subject(text):
        raise ValueError(f"invalid subject {text!r}")
    return text


def _header(text: str) -> tuple[str, str | None]:
    name, colon, value = text.partition(":")
    return _header_name(name), value.strip() if colon else None


def _header_name(name: str) -> str:
    if not name or any(char in ": \t\r\n" for char in name):
        raise ValueError(f"invalid header name {name!r}")
    return name


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"invalid payload expression {text!r}: {error}") from error


def _moment(text: str) -> int:
    try:
        return read_moment(text, back=True) if text else 0
    except ValueError as error:
        raise ValueError(f"invalid time {text!r}: {error}") from error


def _sequences(text: str) -> tuple[int, int]:
    """Return the first and last sequence of `N`, `FROM-TO`, `FROM-` or `-TO`; 0 for an open end."""
    first, dash, last = text.replace("..", "-").partition("-")
    parts = [part.strip() for part in (first, last)]
    if any(part and not part.isdecimal() for part in parts) or (text and not any(parts)):
        raise ValueError(f"expected N, FROM-TO, FROM- or -TO, not {text!r}")
    low, high = (int(part or 0) for part in parts)
    if not dash:
        return low, low
    if high and low > high:
        raise ValueError(f"{low} is after {high}")
    return low, high


_SUBJECT: Final = FlagKind("SUBJECT", _subject, repeated=True, gather=tuple)
_TIME: Final = FlagKind("TIME", _moment)
_POSITION: Final = FlagKind("N", _position)
_REGEX: Final = FlagKind("REGEX", _pattern, repeated=True, gather=tuple)
PLACE: Final = (
    Flag("--subject", _SUBJECT, "subjects", "only messages on this subject; may have wildcards"),
    Flag("--since", _TIME, "since_ns", "only messages stored at this time or later, or this long ago"),
    Flag("--until", _TIME, "until_ns", "only messages stored at this time or earlier, or this long ago"),
    Flag("--seq", FlagKind("N|FROM-TO", _sequences), "seq", "only messages with this sequence, or in this range"),
)
CONTENT: Final = (
    Flag("--exclude-subject", _SUBJECT, "exclude_subjects", "not on this subject"),
    Flag("--header", FlagKind("NAME[:VALUE]", _header, repeated=True, gather=tuple), "headers", "with this header"),
    Flag(
        "--exclude-header",
        FlagKind("NAME", _header_name, repeated=True, gather=tuple),
        "exclude_headers",
        "without this header",
    ),
    Flag("--payload-match", _REGEX, "payloads", "with a matching payload"),
    Flag("--exclude-payload-match", _REGEX, "exclude_payloads", "without a matching payload"),
)
BOUNDS: Final = (
    Flag("--after", _TIME, "after", "the same as --since"),
    Flag("--before", _TIME, "before", "stored before this time, or before so long ago"),
    Flag("--first-seq", _POSITION, "first_seq", "with this sequence or a higher one"),
    Flag("--last-seq", _POSITION, "last_seq", "with this sequence or a lower one"),
)
"""Further flags of the nats tool about times and sequences."""


def selection_of(given: Given) -> MessageSelection:
    from natsctl.client.backup.selection import MessageSelection

    low, high = given.get("--seq", (0, 0))
    since_ns = max(given.get("--since", 0), given.get("--after", 0))
    before_ns = given["--before"] - 1 if given.get("--before") else _END
    until_ns = min(given.get("--until") or _END, before_ns)
    first, last = max(low, given.get("--first-seq", 0)), min(high or _END, given.get("--last-seq", _END))
    if since_ns > until_ns:
        lower = "--since" if given.get("--since", 0) == since_ns else "--after"
        upper = "--until" if given.get("--until") == until_ns else "--before"
        raise UsageError(f"{lower}: must be earlier than {upper}")
    if first > last:
        raise UsageError(f"--first-seq: {first} is after --last-seq {last}")
    return MessageSelection(
        since_ns=since_ns,
        until_ns=0 if until_ns == _END else until_ns,
        first_seq=first,
        last_seq=0 if last == _END else last,
        subjects=given.get("--subject", ()),
        **{str(flag.to): given[flag.name] for flag in CONTENT if flag.name in given},
    )
