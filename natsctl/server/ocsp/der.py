"""DER as read by Go's encoding/asn1, which nats-server uses for OCSP responses.

It accepts more than the X.509 library does: extra elements at the end of a sequence, default values that are written
out, times with an offset or in the other type. A signed response must not have another status here than there, so that
no encoding of "revoked" counts as a response that failed to arrive.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from natsctl.api.units import SECOND

INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
OBJECT_ID: Final = 0x06
ENUMERATED: Final = 0x0A
BOOLEAN: Final = 0x01
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
SEQUENCE: Final = 0x30
TIMES: Final = (GENERALIZED_TIME, UTC_TIME)

_ZONE: Final = r"(Z|[+-](?!0000)(?:[01]\d|2[0-4])[0-5]\d)"
_GENERALIZED: Final = re.compile(rb"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d{0,8}[1-9]))?" + _ZONE.encode())
_UTC: Final = re.compile(rb"(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)?()" + _ZONE.encode())
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
"""Days of 400 years, after which the calendar repeats."""


class DerReader:
    """The elements of a piece of DER, in order; everything raises ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    @property
    def identifier(self) -> int:
        return -1 if self.is_at_end else self._data[self._at]

    def has(self, identifier: int) -> bool:
        return self.identifier == identifier

    def content(self, *identifiers: int) -> bytes:
        """Return the content of the next element; without identifiers any is accepted."""
        if identifiers and self.identifier not in identifiers:
            raise ValueError(f"asn1: an element of type {identifiers[0]:#x} is missing")
        size = self._header()
        end = self._at + size
        if end > len(self._data):
            raise ValueError("asn1: syntax error: data truncated")
        content, self._at = self._data[self._at : end], end
        return content

    def whole(self) -> bytes:
        start = self._at
        self.content()
        return self._data[start : self._at]

    def nested(self, *identifiers: int) -> DerReader:
        return DerReader(self.content(*identifiers))

    def enter(self, explicit: int, *identifiers: int) -> bool:
        """Go into an optional explicit tag, if it is there with one of the elements; like Go, ignore its length."""
        start = self._at
        if not self.has(explicit):
            return False
        if not self._header() or self.is_at_end:
            raise ValueError("asn1: structure error: explicit tag has no child")
        if self.identifier in identifiers:
            return True
        self._at = start
        return False

    def integer(self, identifier: int = INTEGER) -> int:
        return int.from_bytes(self.content(identifier), "big", signed=True)

    def time_ns(self) -> int:
        is_utc = self.has(UTC_TIME)
        return time_ns(self.content(*TIMES), is_utc=is_utc)

    def _header(self) -> int:
        data, at = self._data, self._at
        if len(data) < at + 2 or data[at] & 0x1F == 0x1F:
            raise ValueError("asn1: syntax error: truncated tag or length")
        size, at = data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            if not count or len(data) < at + count or data[at] == 0 or size < 0x80:
                raise ValueError("asn1: structure error: non-minimal length")
            at += count
        self._at = at
        return size


def time_ns(text: bytes, *, is_utc: bool) -> int:
    """Return a UTCTime or a GeneralizedTime since 1970; raises ValueError."""
    match = (_UTC if is_utc else _GENERALIZED).fullmatch(text)
    if match is None:
        raise ValueError(f"asn1: {text!r} is not a time")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if is_utc:
        year += 1900 if year >= 50 else 2000
    sign, zone = (-1 if match[8][:1] == b"-" else 1), match[8][1:] or b"0000"
    offset_s = sign * (int(zone[:2]) * 3600 + int(zone[2:]) * 60)
    cycles, year_of_cycle = divmod(year, _CYCLE_YEARS)  # datetime has no year 0
    moment = datetime(2000 + year_of_cycle, month, day, hour, minute, second, tzinfo=UTC)
    days = (cycles - 2000 // _CYCLE_YEARS) * _CYCLE_DAYS
    return (int(moment.timestamp()) + days * 86_400 - offset_s) * SECOND + int((match[7] or b"").ljust(9, b"0"))
