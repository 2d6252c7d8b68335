"""What a message of a bucket says: which key, what became of it, for how long. Source: ADR-8, ADR-48."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from natsctl.api.errors import UsageError
from natsctl.api.units import SECOND, format_duration, parse_duration

if TYPE_CHECKING:
    from natsctl.client.message import Headers

PUT, DEL, PURGE = "PUT", "DEL", "PURGE"
OPERATION = "KV-Operation"
REASON = "Nats-Marker-Reason"
TTL = "Nats-TTL"
FOREVER = "never"
SIZE = "Nats-Msg-Size"
"""How long a value is, where only its headers were read."""
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
ROLLUP = "Nats-Rollup"
ALL_KEYS = ">"
SHORTEST_TTL_NS = SECOND

_BY_REASON = {"MaxAge": PURGE, "Purge": PURGE, "Remove": DEL}
_KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")
_PATTERN = re.compile(r"[-/_=.a-zA-Z0-9*]*>?")


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of a key at a revision; `created` is RFC 3339, `delta` how many entries the reader has still to read.

    `value` is None where only headers were read; `length` is known then too. `ttl_ns` is how long it lives, 0 where the
    bucket says, -1 for ever.
    """

    bucket: str
    key: str
    revision: int
    operation: str
    created: str
    length: int
    value: bytes | None
    delta: int = 0
    ttl_ns: int = 0

    @property
    def deleted(self) -> bool:
        """Whether the key has no value since then."""
        return self.operation != PUT


def check_key(key: str) -> None:
    """Raise UsageError for what can be no key."""
    if not _KEY.fullmatch(key) or not all(key.split(".")):
        raise UsageError(
            f"{key!r} is not a valid key",
            hint="a key consists of letters, digits and any of - / _ = . with no dot at an end or beside another",
        )


def check_pattern(pattern: str) -> None:
    """Raise UsageError for what can match no key: `*` stands for one whole token, `>` for all that follow."""
    tokens = pattern.split(".")
    whole = all(token and (token in ("*", ">") or {"*", ">"}.isdisjoint(token)) for token in tokens)
    if not _PATTERN.fullmatch(pattern) or not whole:
        raise UsageError(
            f"{pattern!r} matches no key", hint="a filter is a key in which * may stand for a token and > for the rest"
        )


def is_pattern(key: str) -> bool:
    """Whether the words mean many keys."""
    return "*" in key or ">" in key


def operation_of(headers: Headers) -> str:
    """What a stored message did to its key."""
    said = dict(headers.pairs)
    operation = said.get(OPERATION) or _BY_REASON.get(said.get(REASON, ""), "")
    return operation if operation in (DEL, PURGE) else PUT


def ttl_of(headers: Headers) -> int:
    """How long a stored message lives, as `Entry.ttl_ns`; servers write seconds, clients any duration."""
    said = headers.get(TTL, "")
    if said.isdigit():
        return int(said) * SECOND
    try:
        return -1 if said == FOREVER else parse_duration(said) if said else 0
    except ValueError:
        return 0


def write_headers(
    operation: str = PUT, *, expected: int | None = None, ttl_ns: int = 0, text: str = ""
) -> dict[str, str]:
    """The headers of a message that puts, deletes or purges a key."""
    headers = {} if operation == PUT else {OPERATION: operation}
    if operation == PURGE:
        headers[ROLLUP] = "sub"
    if expected is not None:
        headers[EXPECTED] = str(expected)
    if ttl_ns:
        if ttl_ns < SHORTEST_TTL_NS:
            raise UsageError(f"--ttl: a key lives {format_duration(SHORTEST_TTL_NS)} at least")
        headers[TTL] = format_duration(ttl_ns)
    return headers
