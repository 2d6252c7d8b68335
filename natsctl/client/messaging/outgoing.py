"""Headers of published messages by which a stream checks, expires, replaces and schedules them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.api.times import format_time, parse_time
from natsctl.api.units import parse_duration

NS_PER_S = 1_000_000_000


class Outgoing(NamedTuple):
    """A message to be published."""

    subject: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


PLAIN_HEADERS = {
    "msg_id": "Nats-Msg-Id",
    "expect_stream": "Nats-Expected-Stream",
    "expect_last_seq": "Nats-Expected-Last-Sequence",
    "expect_last_subject_seq": "Nats-Expected-Last-Subject-Sequence",
    "expect_last_msg_id": "Nats-Expected-Last-Msg-Id",
    "rollup": "Nats-Rollup",
}
"""Options of a message for its stream, and the header of each."""
_WHEN = ("schedule_after", "schedule_at", "schedule_every", "schedule_cron")
_SCHEDULED = {"schedule_dest": "Nats-Schedule-Target", "schedule_source": "Nats-Schedule-Source"}


_EXCLUSIVE = ("--schedule-cron", "--schedule-every", "--schedule-at", "--schedule-after")
_EXCLUDED = {
    "--schedule-cron": "--schedule-at, --schedule-every or --schedule-after",
    "--schedule-every": "--schedule-at or --schedule-after",
}
"""The flags that say when, and what each of them excludes: a schedule has one time."""


def stream_headers(asked: Mapping[str, Any], now_ns: int) -> tuple[tuple[str, str], ...]:
    """Return the headers of the publish options, by field. Raises UsageError for options that exclude each other."""
    pairs = [(name, str(asked[field])) for field, name in PLAIN_HEADERS.items() if asked.get(field) is not None]
    if asked.get("ttl") is not None:
        pairs.append(("Nats-TTL", ttl("--ttl", asked["ttl"])))
    return (*pairs, *_schedule(asked, now_ns))


def _schedule(asked: Mapping[str, Any], now_ns: int) -> list[tuple[str, str]]:
    when = [field for field in _WHEN if asked.get(field)]
    flags = [_flag(field) for field in when]
    if len(when) > 1:
        one, *others = sorted(flags, key=_EXCLUSIVE.index)
        raise UsageError(f"{one} may not be used with {_EXCLUDED.get(one, ' or '.join(others))}")
    given = [field for field in (*_SCHEDULED, "schedule_ttl") if asked.get(field)]
    if not when and not given:
        return []
    if not asked.get("schedule_dest"):
        named = flags[0] if flags else _flag(given[0])
        raise UsageError(f"{named} needs --schedule-dest: the subject that the message goes to when it is time")
    pairs = [("Nats-Schedule", _pattern(when[0], asked[when[0]], now_ns))] if when else []
    pairs += [(header, asked[field]) for field, header in _SCHEDULED.items() if asked.get(field)]
    if asked.get("schedule_ttl"):
        pairs.append(("Nats-Schedule-TTL", ttl("--schedule-ttl", asked["schedule_ttl"])))
    return pairs


def _pattern(field: str, words: str, now_ns: int) -> str:
    """Return the schedule in the server's words: `@at TIME`, `@every DURATION` or a cron line."""
    flag = _flag(field)
    try:
        if field == "schedule_at":
            return f"@at {format_time(parse_time(words))}"
        if field == "schedule_cron":
            return words
        ns = parse_duration(words)
    except ValueError as failure:
        raise UsageError(f"{flag}: {failure}") from failure
    if ns <= 0:
        raise UsageError(f"{flag} must be greater than 0")
    if ns < NS_PER_S:
        raise UsageError(f"{flag}: at least a second, not {words}")
    # A second is the finest step of schedules: rounded up, a message never comes before its time.
    seconds = -(-ns // NS_PER_S)
    if field == "schedule_every":
        return f"@every {seconds}s"
    return f"@at {format_time(-(-(now_ns + ns) // NS_PER_S) * NS_PER_S)}"


def ttl(flag: str, words: str) -> str:
    """Return how long a message lives, as the header says it: whole seconds, or `never`."""
    if words == "never":
        return words
    try:
        ns = parse_duration(words)
    except ValueError as failure:
        raise UsageError(f"{flag}: {failure}") from failure
    if ns < NS_PER_S or ns % NS_PER_S:
        raise UsageError(f"{flag}: expected whole seconds such as 90s or 1h, or never, not {words}")
    return f"{ns // NS_PER_S}s"


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")
