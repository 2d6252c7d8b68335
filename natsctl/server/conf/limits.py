"""Keys of nats.conf that bound what clients may do: sizes, numbers and times."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from natsctl.server.conf.setter import Setter, set_option
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import duration_text_of, flag_of, format_seconds, number_of, seconds_of, text_of
from natsctl.server.options import ServerOptions

_INT32_MAX: Final = (1 << 31) - 1
_TOKENS_MAX: Final = 255
_LAME_DUCK_MIN_S: Final = 30.0


def _small(name: str) -> Setter:
    """Return the setter of a number of bytes that fits 31 bits."""

    def read(item: Item) -> int:
        number = number_of(item)
        if number > _INT32_MAX:
            raise item.fault(f"{name} value is too big")
        return number

    return set_option(name, read)


def _max_connections(item: Item) -> int:
    return number_of(item) or -1


def _subscription_tokens(item: Item) -> int:
    number = number_of(item)
    if number > _TOKENS_MAX:
        raise item.fault("max_subscription_tokens value is too big")
    if number <= 0:
        raise item.fault("max_subscription_tokens value can not be negative")
    return number


def _lame_duck_duration(item: Item) -> float:
    seconds = duration_text_of(item, "lame_duck_duration")
    if seconds < _LAME_DUCK_MIN_S:
        raise item.fault(f"invalid lame_duck_duration of {format_seconds(seconds)}, minimum is 30 seconds")
    return seconds


def _lame_duck_grace(item: Item) -> float:
    seconds = duration_text_of(item, "lame_duck_grace_period")
    if seconds < 0:
        raise item.fault("invalid lame_duck_grace_period, needs to be positive")
    return seconds


def _write_timeout(options: ServerOptions, item: Item) -> ServerOptions:
    word = text_of(item)
    if word not in ("default", "close", "retry"):
        raise item.fault("write_timeout must be 'default', 'close' or 'retry'")
    if word == "retry":
        raise item.fault("write_timeout: clients that pass their write_deadline are closed here, 'retry' is not served")
    return options


def _unlimited(name: str) -> Setter:
    """Return the setter of a number of which nats-server takes 0 and less as none."""
    return set_option(name, lambda item: max(number_of(item), 0))


def _accepted_flag(options: ServerOptions, item: Item) -> ServerOptions:
    """Check the value of a switch that has nothing to switch here."""
    flag_of(item)
    return options


def _max_closed(options: ServerOptions, item: Item) -> ServerOptions:
    number = number_of(item)
    return replace(options, max_closed_clients=number) if number > 0 else options


LIMITS: Final[dict[str, Setter]] = {
    "max_payload": _small("max_payload"),
    "max_control_line": _small("max_control_line"),
    "max_pending": set_option("max_pending", number_of),
    "max_connections": set_option("max_connections", _max_connections),
    "max_conn": set_option("max_connections", _max_connections),
    "max_subscriptions": _unlimited("max_subscriptions"),
    "max_subs": _unlimited("max_subscriptions"),
    "max_sub_tokens": set_option("max_subscription_tokens", _subscription_tokens),
    "max_subscription_tokens": set_option("max_subscription_tokens", _subscription_tokens),
    "max_closed_clients": _max_closed,
    "max_traced_msg_len": _unlimited("max_traced_bytes"),
    "ping_interval": set_option("ping_interval_s", seconds_of),
    "ping_max": set_option("ping_max", number_of),
    "write_deadline": set_option("write_deadline_s", seconds_of),
    "write_timeout": _write_timeout,
    "lame_duck_duration": set_option("lame_duck_duration_s", _lame_duck_duration),
    "lame_duck_grace_period": set_option("lame_duck_grace_s", _lame_duck_grace),
    "no_header_support": set_option("no_header_support", flag_of),
    "connect_error_reports": set_option("connect_error_reports", number_of),
    "reconnect_error_reports": set_option("reconnect_error_reports", number_of),
    "disable_sublist_cache": _accepted_flag,
    "no_sublist_cache": _accepted_flag,
    "no_fast_producer_stall": _accepted_flag,
}
