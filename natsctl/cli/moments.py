"""Moments as people write them: RFC 3339, local time without an offset, or a duration from now."""

from __future__ import annotations

import re
import time
from datetime import datetime

from natsctl.api.times import parse_time
from natsctl.api.units import SECOND, parse_duration

_LOCAL = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)?")
FORMS = "a time (2026-01-31T12:00:00Z, or 2026-01-31 12:00 in local time) or a duration such as 1h"


def read_moment(text: str, *, back: bool = False) -> int:
    """Nanoseconds since the epoch; a duration counts from now, `back` into the past. Raises ValueError.

    What has no offset is in the zone of this machine, as every time that commands show has its offset.
    """
    text = text.strip()
    if _LOCAL.fullmatch(text):
        return _local(text)
    if text[:4].isdigit() and text[4:5] == "-":
        return parse_time(text)
    try:
        length = abs(parse_duration(text))
    except ValueError:
        raise ValueError(f"expected {FORMS}, not {text!r}") from None
    return time.time_ns() + (-length if back else length)


def _local(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except ValueError as error:
        raise ValueError(f"time {text!r}: {error}") from error
    return int(moment.timestamp()) * SECOND + moment.microsecond * 1000
