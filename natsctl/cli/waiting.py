"""Lengths of time on the command line that something waits for."""

from __future__ import annotations

from natsctl.api.errors import UsageError


def wait_seconds(text: str | None, flag: str = "--wait") -> float | None:
    """Seconds of a duration flag, None when it was not given. Raises UsageError."""
    if text is None:
        return None
    from natsctl.api.units import parse_duration

    try:
        seconds = parse_duration(text) / 1e9
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error
    if seconds <= 0:
        raise UsageError(f"{flag}: expected a duration above zero")
    return seconds
