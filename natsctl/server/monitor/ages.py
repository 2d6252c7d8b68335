"""How long things last and when they happened, as the endpoints spell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.units import format_duration

if TYPE_CHECKING:
    from natsctl.broker.options import Clock

SECOND_NS: Final = 1_000_000_000


def uptime(age_ns: int) -> str:
    """Return an age as nats-server spells it, such as `1d2h3m4s`; a year has 365 days."""
    seconds = max(age_ns, 0) // SECOND_NS
    days = seconds // 86400
    parts = (
        (days // 365, "y"), (days % 365 if days >= 365 else days, "d"), (seconds // 3600 % 24, "h"),
        (seconds // 60 % 60, "m"), (seconds % 60, "s"),
    )  # fmt: skip
    first = next((at for at, (value, _) in enumerate(parts) if value), len(parts) - 1)
    return "".join(f"{value}{unit}" for value, unit in parts[first:])


def round_trip(rtt_ns: int) -> str:
    """Return a round trip; one below a millisecond has no fraction of a microsecond."""
    return format_duration(rtt_ns - rtt_ns % 1000 if 1000 < rtt_ns < 1_000_000 else rtt_ns)


def wall_time(clock: Clock, monotonic_ns: int) -> int:
    """Return when something happened, since the epoch, that was noted by the other clock."""
    return clock.now_ns() - (clock.monotonic_ns() - monotonic_ns)
