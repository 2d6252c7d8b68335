"""Lengths of time on the command line that something waits for."""

from __future__ import annotations

from natsctl.api.errors import UsageError


def wait_seconds(text: str | None, flag: str = "--wait") -> float | None:
    """Seconds of a duration flag, None when it was not given. Raises UsageError."""
    return None if text is None else _seconds(text, flag)


def every_seconds(text: str, flag: str = "--watch") -> float:
    """Seconds between two looks; a bare number is seconds, as the nats tool takes it. Raises UsageError."""
    return _seconds(f"{text}s" if text.replace(".", "", 1).isdecimal() else text, flag)


def watch_seconds(watch: str | None, rounds: int) -> float | None:
    """Seconds between the looks of --watch, None without it. Raises UsageError, also for --count without it."""
    if watch is None:
        if rounds:
            raise UsageError("--count is for --watch")
        return None
    return every_seconds(watch)


def _seconds(text: str, flag: str) -> float:
    from natsctl.api.units import parse_duration

    try:
        seconds = parse_duration(text) / 1e9
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error
    if seconds <= 0:
        raise UsageError(f"{flag}: expected a duration above zero")
    return seconds
