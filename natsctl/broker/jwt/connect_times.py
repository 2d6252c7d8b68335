"""When and from where a user may connect."""

from __future__ import annotations

import ipaddress
import re
from datetime import datetime, time, timedelta, tzinfo
from typing import Final

from natsctl.broker.jwt.claims import TimeRange

SECOND_NS: Final = 1_000_000_000
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?\Z")


def clock_time(text: str) -> time | None:
    """Return the time of day of `15:04:05`, None where it is none; parts of seconds are dropped."""
    found = _CLOCK.match(text)
    try:
        return time(int(found[1]), int(found[2]), int(found[3])) if found else None
    except ValueError:
        return None


def zone(name: str) -> tzinfo | None:
    """Return the time zone of that name, None where this machine knows none."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: names of folders
        return None


def may_connect_for_ns(times: list[TimeRange], location: str, now_ns: int) -> int | None:
    """Return how long from now one may stay, in nanoseconds, 0 for ever; None: not now.

    The ranges are of the days of `location`, empty: of this machine. One that ends before it starts spans midnight.
    """
    if not times:
        return 0
    place = zone(location) if location else None
    now = datetime.fromtimestamp(now_ns // SECOND_NS, place).astimezone(place)
    now += timedelta(microseconds=now_ns % SECOND_NS // 1000)
    longest: timedelta | None = None
    for one in times:
        start, end = clock_time(one.start), clock_time(one.end)
        if start is None or end is None:
            return None
        left = _time_left(now, start, end)
        if left is not None and (longest is None or left > longest):
            longest = left
    return None if longest is None else round(longest.total_seconds() * SECOND_NS)


def _time_left(now: datetime, start_of: time, end_of: time) -> timedelta | None:
    """Return how long a range of a day still lasts, None outside of it."""
    today, place = now.date(), now.tzinfo
    start, end = datetime.combine(today, start_of, place), datetime.combine(today, end_of, place)
    if start < now < end or (start > end > now):
        return end - now
    tomorrow = end + timedelta(days=1)
    return tomorrow - now if start > end and start < now < tomorrow else None


def is_inside(host: str, networks: list[str]) -> bool:
    """Return whether an address is in one of the networks; every one is where none is named."""
    if not networks:
        return True
    try:
        address = ipaddress.ip_address(host)
        inside = [address in ipaddress.ip_network(network, strict=False) for network in networks]
    except ValueError:
        return False
    return any(inside)
